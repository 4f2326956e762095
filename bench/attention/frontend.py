#!/usr/bin/env python3
"""Attention with combinations of masks through cudnn-frontend: a library beside another (NVIDIA's), and beside itself
without the masks. Results are compared with PyTorch's arithmetic in f64 first.

    python bench/attention/frontend.py --cudnn OURS --nvidia THEIRS --out FILE [--filter WORDS] [--rounds N]
        [--shapes 2x16x2048x128,…] [--also NAME=LIBRARY]

Processes, turns and times are those of side_by_side.py.
"""

import math
import sys

import side_by_side

SHAPES = [(2, 16, 2048, 128), (4, 16, 1024, 64)]
_CAUSAL, _BOTTOM, _WINDOW = {"right": 0}, {"right": 0, "bottom": True}, {"right": 0, "left": 256}
_HALF, _ALL = {"padding": 0.5}, {"padding": 1.0}
# Name, what is asked, the name of the same without its masks.
COMBINATIONS = [
    ("full", {}, None),
    ("causal", _CAUSAL, None),
    ("window", _WINDOW, None),
    ("no_stats", {"stats": False}, "full"),
    ("padding_all", _ALL, "full"),
    ("padding_half", _HALF, "full"),
    ("padding_all_causal", {**_ALL, **_CAUSAL}, "causal"),
    ("padding_half_causal", {**_HALF, **_CAUSAL}, "causal"),
    ("padding_all_bottom_right", {**_ALL, **_BOTTOM}, "causal"),
    ("padding_all_window", {**_ALL, **_WINDOW}, "window"),
    ("bias", {"bias": True}, "full"),
    ("bias_padding_all_causal", {"bias": True, **_ALL, **_CAUSAL}, "causal"),
    ("alibi_causal", {"alibi": True, **_CAUSAL}, "causal"),
    ("alibi_padding_all_causal", {"alibi": True, **_ALL, **_CAUSAL}, "causal"),
    ("sink", {"sink": True}, "full"),
    ("sink_causal", {"sink": True, **_CAUSAL}, "causal"),
    ("sink_padding_all_causal", {"sink": True, **_ALL, **_CAUSAL}, "causal"),
    ("dropout", {"dropout": 0.1}, "full"),
    ("grouped_causal", {"kv_heads": 2, **_CAUSAL}, "causal"),
    ("ragged_all", {"ragged": True, **_ALL}, "full"),
    ("ragged_all_causal", {"ragged": True, **_ALL, **_CAUSAL}, "causal"),
    ("ragged_half_causal", {"ragged": True, **_HALF, **_CAUSAL}, "causal"),
    ("ragged_all_window", {"ragged": True, **_ALL, **_WINDOW}, "window"),
    ("paged_64_all", {"page": 64, **_ALL}, "full"),
    ("paged_16_all_causal", {"page": 16, **_ALL, **_CAUSAL}, "causal"),
    ("paged_1_all_causal", {"page": 1, **_ALL, **_CAUSAL}, "causal"),
]


class Problem:
    """One combination: its tensors, a function that runs it, and what it should give."""

    def __init__(self, cudnn, torch, handle, shape, options, io, seed=1):
        self.torch, self.options, self.shape = torch, options, shape
        torch.manual_seed(seed)
        b, h, s, d = shape
        hk = options.get("kv_heads", h)
        self.io = {"half": torch.half, "bfloat16": torch.bfloat16}[io]
        new = lambda *dims: torch.rand(*dims, device="cuda", dtype=torch.float32).mul_(2).sub_(1).to(self.io)  # noqa: E731
        self.q = new(b, s, h, d).transpose(1, 2)
        self.k, self.v = (new(b, s, hk, d).transpose(1, 2) for _ in "kv")
        self.o = torch.full((b, s, h, d), float("nan"), device="cuda", dtype=self.io).transpose(1, 2)
        self.lengths = None
        if "padding" in options:
            part = options["padding"]
            # Around the part on average, the first one longest, odd.
            lengths = [min(s, max(1, int(s * part * (1 + (0.4 * (1 - 2 * i / max(b - 1, 1)) if part < 1 else 0)))))
                       for i in range(b)]
            self.lengths = torch.tensor(lengths, device="cuda", dtype=torch.int32).reshape(b, 1, 1, 1)
        self._build(cudnn, handle)

    def _build(self, cudnn, handle):
        torch, options = self.torch, self.options
        b, h, s, d = self.shape
        g = cudnn.pygraph(handle=handle, io_data_type={torch.half: cudnn.data_type.HALF,
                                                       torch.bfloat16: cudnn.data_type.BFLOAT16}[self.io],
                          intermediate_data_type=cudnn.data_type.FLOAT, compute_data_type=cudnn.data_type.FLOAT)
        self.pack, asked = {}, {"attn_scale": 1 / math.sqrt(d)}

        def put(x):
            tensor = g.tensor_like(x)
            self.pack[tensor] = x
            return tensor

        operands = {"q": self.q, "k": self.k, "v": self.v}
        if "page" in options:
            page = options["page"]
            for name in "kv":
                x = operands[name]
                hk, count = x.shape[1], s // page
                order = torch.randperm(b * count, device="cuda")
                pages = x.reshape(b, hk, count, page, d).transpose(1, 2).reshape(b * count, hk, page, d)
                container = torch.empty_like(pages)
                container[order] = pages
                operands[name] = container
                asked[f"paged_attention_{name}_table"] = put(order.to(torch.int32).reshape(b, 1, count, 1))
            asked["paged_attention_max_seq_len_kv"] = s
        tensors = {}
        for name, x in operands.items():
            if options.get("ragged"):
                tensor, packed, self.offsets = self._ragged(g, put, x)
                self.pack[tensor] = packed
                tensors[name] = tensor
            else:
                tensors[name] = put(x)
        if self.lengths is not None:
            asked |= {"use_padding_mask": True, "seq_len_q": put(self.lengths), "seq_len_kv": put(self.lengths.clone())}
        if "right" in options:
            asked["diagonal_band_right_bound"] = options["right"]
        if "left" in options:
            asked["diagonal_band_left_bound"] = options["left"]
        if options.get("bottom"):
            asked["diagonal_alignment"] = cudnn.diagonal_alignment.BOTTOM_RIGHT
        if options.get("alibi"):
            asked["use_alibi_mask"] = True
        if options.get("bias"):
            self.bias = torch.rand(1, h, s, s, device="cuda").to(self.io)
            asked["bias"] = put(self.bias)
        if options.get("sink"):
            self.sink = torch.rand(1, h, 1, 1, device="cuda")
            asked["sink_token"] = put(self.sink)
        if "dropout" in options:
            numbers = [torch.full((1, 1, 1, 1), n, device="cuda", dtype=torch.int64) for n in (123456, 7)]
            asked["dropout"] = (options["dropout"], *(put(n) for n in numbers))
        o, stats = g.sdpa(q=tensors["q"], k=tensors["k"], v=tensors["v"], generate_stats=options.get("stats", True),
                          **asked)
        o.set_output(True).set_dim([b, h, s, d]).set_stride(list(self.o.stride()))
        if options.get("ragged"):
            offsets, self.flat_o = put(self.offsets), torch.full_like(self.o.transpose(1, 2).reshape(-1), float("nan"))
            o.set_ragged_offset(offsets)
            self.pack[o] = self.flat_o
        else:
            self.pack[o] = self.o
        self.stats = None
        if options.get("stats", True):
            self.stats = torch.full((b, h, s, 1), float("nan"), device="cuda")
            stats.set_output(True).set_data_type(cudnn.data_type.FLOAT)
            self.pack[stats] = self.stats
        g.validate()
        g.build_operation_graph()
        g.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        g.check_support()
        g.build_plans()
        self.workspace_bytes = g.get_workspace_size()
        workspace = torch.empty(max(self.workspace_bytes, 1), device="cuda", dtype=torch.uint8)
        self.run = lambda: g.execute(self.pack, workspace, handle=handle)

    def _ragged(self, g, put, x):
        """Sequences one behind the other; what is behind the last is NaN."""
        torch = self.torch
        b, h, s, d = x.shape
        lengths = self.lengths.reshape(-1).tolist()
        offsets = torch.tensor([0, *lengths]).cumsum(0).mul(h * d).to(torch.int32).cuda().reshape(b + 1, 1, 1, 1)
        packed = torch.full((b * s * h * d,), float("nan"), device="cuda", dtype=self.io)
        rows = torch.cat([x[i, :, :n].transpose(0, 1).reshape(-1) for i, n in enumerate(lengths)])
        packed[:rows.numel()] = rows
        tensor = g.tensor(dim=list(x.shape), stride=[s * h * d, d, h * d, 1])
        tensor.set_ragged_offset(put(offsets))
        return tensor, packed, offsets

    def error(self):
        """The largest error of O beside the largest of |O|, and of the statistics; None with dropout."""
        torch, options = self.torch, self.options
        self.run()
        torch.cuda.synchronize()
        if "dropout" in options:
            return None
        b, h, s, d = self.shape
        worst = [0.0, 0.0]
        i, j = torch.arange(s, device="cuda")[:, None], torch.arange(s, device="cuda")[None]
        for batch in range(b):
            n = s if self.lengths is None else int(self.lengths[batch])
            for head in range(h):
                group = head * self.k.shape[1] // h
                q, k, v = self.q[batch, head].double(), self.k[batch, group].double(), self.v[batch, group].double()
                score = q @ k.T / math.sqrt(d)
                if options.get("bias"):
                    score = score + self.bias[0, head].double()
                if options.get("alibi"):
                    score = score + 2.0 ** (-8.0 / h * (head + 1)) * (j - i)
                seen = (i < n) & (j < n)
                if "right" in options:
                    seen &= j <= i
                if "left" in options:
                    seen &= j > i - options["left"]
                score = torch.where(seen, score, -math.inf)
                if options.get("sink"):
                    column = torch.where(i < n, self.sink[0, head, 0, 0].double(), -math.inf)
                    score = torch.cat([score, column], 1)
                log = torch.logsumexp(score, 1)
                weight = torch.where(log.isinf()[:, None], 0, torch.exp(score - log[:, None]))[:, :s]
                want = (weight @ v)[:n if options.get("ragged") else s]
                if options.get("ragged"):
                    start = int(self.offsets[batch].item())
                    got = self.flat_o[start:start + n * h * d].reshape(n, h, d)[:, head]
                else:
                    got = self.o[batch, head]
                off = (got.double() - want).abs().max() / want.abs().max().clamp(min=1e-30)
                worst[0] = max(worst[0], math.inf if off.isnan() else off.item())
                if self.stats is not None:
                    got = self.stats[batch, head, :, 0].double()
                    off = torch.where(got == log, 0, (got - log).abs()).max()
                    worst[1] = max(worst[1], math.inf if off.isnan() else off.item())
        return worst


def main():
    arguments = side_by_side.parser(SHAPES).parse_args()
    if arguments.serve:
        return side_by_side.serve(arguments.serve, Problem)
    bare, without = {}, {name: base for name, _, base in COMBINATIONS}

    def line(row, shape, name, _):
        ours, theirs = row["kiln"].get("us"), row.get("nvidia", {}).get("us")
        bare[name, shape] = ours
        base = bare.get((without[name], shape))
        row["of_bare"] = ours / base if ours and base else None
        row["ratio"] = theirs / ours if ours and theirs else None
        others = {who: of for who, of in row.items() if isinstance(of, dict) and who != "kiln"}
        return (f"{row['name']:48} {ours or 0:8.1f} us, of bare {row['of_bare'] or 0:.3f}, NVIDIA/ours "
                f"{row['ratio'] or 0:.3f}, error {row['kiln'].get('error')} {row['kiln'].get('workspace')} B "
                f"{row['kiln'].get('refused', '')} | {others}")

    combinations = [(name, options, "bfloat16" if number % 3 else "half")
                    for number, (name, options, _) in enumerate(COMBINATIONS)]
    rows = side_by_side.compare(arguments, __file__, combinations, line)
    logs = [math.log(row["ratio"]) for row in rows if row["ratio"]]
    if logs:
        print(f"geometric mean {math.exp(sum(logs) / len(logs)):.3f} of {len(logs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
