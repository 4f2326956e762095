#!/usr/bin/env python3
"""Attention with combinations of masks through cudnn-frontend: a library beside another (NVIDIA's), and beside itself
without the masks. Results are compared with PyTorch's arithmetic in f64 first.

    python bench/attention_frontend.py --cudnn OURS --nvidia THEIRS --out FILE [--filter WORDS] [--rounds N]
        [--shapes 2x16x2048x128,…] [--also NAME=LIBRARY]

Needs torch with CUDA and nvidia-cudnn-frontend. Each library has a process of its own, since the frontend looks
functions up once; the parent has them time one round in turns. The L2 is flushed before each by reading 256 MB; times
are medians.
"""

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys

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


def serve(path, kind=Problem):
    """A library's process: what it is told, a line each; an answer in JSON for each."""
    import torch

    torch.cuda.init()
    import cudnn

    library = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    cudnn._pybind_module._set_dlhandle_cudnn(library._handle)
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    flush = torch.ones(64 << 20, device="cuda")
    problem = None
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "build" in order:
                problem = None
                torch.cuda.empty_cache()
                problem = kind(cudnn, torch, handle, *order["build"])
                reply = {"error": problem.error() if order["check"] else None, "workspace": problem.workspace_bytes}
            else:
                times = []
                for _ in range(order["time"]):
                    flush.sum()
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record()
                    problem.run()
                    end.record()
                    torch.cuda.synchronize()
                    times.append(begin.elapsed_time(end) * 1e3)
                reply = {"times": times}
        except Exception as failure:  # the frontend has several
            problem, reply = None, {"refused": f"{type(failure).__name__}: {failure}"[:300]}
        print(json.dumps(reply), file=answer, flush=True)


class Server:
    def __init__(self, path, script=__file__):
        self._process = subprocess.Popen([sys.executable, script, "--serve", path], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)

    def send(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def receive(self):
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"refused": "the process ended"}

    def ask(self, **order):
        self.send(**order)
        return self.receive()


def _median(times):
    return sorted(times)[len(times) // 2] if times else None


def measure(servers, shape, name, options, io, rounds):
    row = {"name": f"{name} {'x'.join(map(str, shape))} {io}"}
    for server in servers.values():
        server.send(build=[shape, options, io], check=True)
    built = {who: server.receive() for who, server in servers.items()}
    times = {who: [] for who in servers}
    for turn in range(rounds + 1):
        for who, server in servers.items():
            if "refused" in built[who]:
                continue
            reply = server.ask(time=3)
            if turn > 0:
                times[who] += reply.get("times", [])
    for who in servers:
        row[who] = {**built[who], "us": _median(times[who])}
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cudnn")
    parser.add_argument("--nvidia")
    parser.add_argument("--also", action="append", default=[])
    parser.add_argument("--shapes", default=",".join("x".join(map(str, shape)) for shape in SHAPES))
    parser.add_argument("--serve")
    parser.add_argument("--out")
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    servers = {"kiln": Server(arguments.cudnn)}
    if arguments.nvidia:
        servers["nvidia"] = Server(arguments.nvidia)
    servers |= {name: Server(path) for name, path in (also.split("=") for also in arguments.also)}
    rows, bare = [], {}
    for shape in [tuple(map(int, shape.split("x"))) for shape in arguments.shapes.split(",")]:
        for number, (name, options, without) in enumerate(COMBINATIONS):
            io = "bfloat16" if number % 3 else "half"
            if arguments.filter and name not in arguments.filter.split(","):
                continue
            row = measure(servers, shape, name, options, io, arguments.rounds)
            ours, theirs = row["kiln"].get("us"), row.get("nvidia", {}).get("us")
            bare[name, shape] = ours
            base = bare.get((without, shape))
            row["of_bare"] = ours / base if ours and base else None
            row["ratio"] = theirs / ours if ours and theirs else None
            rows.append(row)
            print(f"{row['name']:48} {ours or 0:8.1f} us, of bare {row['of_bare'] or 0:.3f}, NVIDIA/ours "
                  f"{row['ratio'] or 0:.3f}, error {row['kiln'].get('error')} {row['kiln'].get('workspace')} B "
                  f"{row['kiln'].get('refused', '')} | "
                  f"{ {who: row[who] for who in servers if who != 'kiln'} }", flush=True)
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    logs = [math.log(row["ratio"]) for row in rows if row["ratio"]]
    if logs:
        print(f"geometric mean {math.exp(sum(logs) / len(logs)):.3f} of {len(logs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
