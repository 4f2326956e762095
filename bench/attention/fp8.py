#!/usr/bin/env python3
"""Attention of 8-bit floats through cudnn-frontend, forward and gradients: a library beside another (NVIDIA's). Results
are compared with PyTorch's arithmetic in f64 first, weights and slopes rounded to 8 bits as the graph spells it.

    python bench/attention/fp8.py --cudnn OURS --nvidia THEIRS --out FILE [--filter WORDS] [--rounds N]
        [--shapes 2x16x2048x128,…]

Processes, turns and times are those of side_by_side.py.
"""

import math

import side_by_side

SHAPES = [(2, 16, 2048, 128), (4, 32, 4096, 128)]
_CAUSAL, _HALF = {"right": 0}, {"padding": 0.5}
COMBINATIONS = [(name, options | {"direction": direction})
                for direction in ("forward", "backward")
                for name, options in [("full", {}), ("causal", _CAUSAL), ("padding_half", _HALF),
                                      ("padding_half_causal", {**_HALF, **_CAUSAL})]]
_DESCALES = {"q": 0.5, "k": 0.75, "v": 1.25, "s": 1 / 256, "o": 0.5, "dO": 0.875, "dP": 1 / 64}
_SCALES = {"s": 256.0, "o": 1.5, "dQ": 2.0, "dK": 1.75, "dV": 0.625, "dP": 64.0}


class Problem:
    """One combination: its tensors, a function that runs it, and what it should give."""

    def __init__(self, cudnn, torch, handle, shape, options, io):
        self.torch, self.options, self.shape = torch, options, shape
        self.lengths = None
        torch.manual_seed(1)
        b, h, s, d = shape
        if "padding" in options:
            part = options["padding"]
            lengths = [min(s, max(1, int(s * part * (1 + 0.4 * (1 - 2 * i / max(b - 1, 1)))))) for i in range(b)]
            self.lengths = torch.tensor(lengths, device="cuda", dtype=torch.int32).reshape(b, 1, 1, 1)
        self.q, self.k, self.v, self.grad = (self._eight(torch.randn(b, s, h, d, device="cuda")).transpose(1, 2)
                                             for _ in range(4))
        self.scale = 1 / math.sqrt(d)
        self._build(cudnn, handle)

    def _eight(self, x):
        return x.clamp(-448, 448).float().to(self.torch.float8_e4m3fn)

    def _build(self, cudnn, handle):
        torch, types = self.torch, cudnn.data_type
        b, h, s, _ = self.shape
        g = cudnn.pygraph(handle=handle, io_data_type=types.FP8_E4M3, intermediate_data_type=types.FLOAT,
                          compute_data_type=types.FLOAT)
        self.pack = {}

        def put(x):
            is_eight = x.dtype == torch.float8_e4m3fn
            tensor = g.tensor(dim=list(x.shape), stride=list(x.stride()),
                              data_type=types.FP8_E4M3 if is_eight else
                              types.INT32 if x.dtype == torch.int32 else types.FLOAT)
            self.pack[tensor] = x.view(torch.uint8) if is_eight else x
            return tensor

        def numbers(descales, scales):
            named = {f"descale_{n}": _DESCALES[n] for n in descales} | {f"scale_{n}": _SCALES[n] for n in scales}
            return {n: put(torch.full((1, 1, 1, 1), x, device="cuda")) for n, x in named.items()}

        def result(tensor, dims, eight=True):
            y = torch.full(dims, 0x7f if eight else math.nan, device="cuda",
                           dtype=torch.uint8 if eight else torch.float32)
            y = y.transpose(1, 2) if eight else y
            tensor.set_output(True).set_dim(list(y.shape)).set_stride(list(y.stride()))
            tensor.set_data_type(types.FP8_E4M3 if eight else types.FLOAT)
            self.pack[tensor] = y
            return y.view(torch.float8_e4m3fn) if eight else y

        asked = {"attn_scale": self.scale}
        if self.lengths is not None:
            asked |= {"use_padding_mask": True, "seq_len_q": put(self.lengths), "seq_len_kv": put(self.lengths.clone())}
        if "right" in self.options:
            asked["use_causal_mask"] = True
        rows, one = (b, s, h, self.shape[3]), (1, 1, 1, 1)
        if self.options["direction"] == "forward":
            o, stats, *peaks = g.sdpa_fp8(q=put(self.q), k=put(self.k), v=put(self.v), generate_stats=True, **asked,
                                          **numbers(("q", "k", "v", "s"), ("s", "o")))
            self.results = [result(o, rows)]
            self.stats = result(stats, (b, h, s, 1), False)
        else:
            self.o, self.stats = self._forward()
            *results, dq_peak, dk_peak, dv_peak, dp_peak = g.sdpa_fp8_backward(
                q=put(self.q), k=put(self.k), v=put(self.v), o=put(self.o), dO=put(self.grad), stats=put(self.stats),
                **asked, **numbers(("q", "k", "v", "o", "dO", "s", "dP"), ("s", "dQ", "dK", "dV", "dP")))
            self.results = [result(y, rows) for y in results]
            peaks = [dq_peak, dk_peak, dv_peak, dp_peak]
        self.peaks = [result(peak, one, False) for peak in peaks]
        g.validate()
        g.build_operation_graph()
        g.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        g.check_support()
        g.build_plans()
        self.workspace_bytes = g.get_workspace_size()
        workspace = torch.empty(max(self.workspace_bytes, 1), device="cuda", dtype=torch.uint8)
        self.run = lambda: g.execute(self.pack, workspace, handle=handle)

    def _scores(self, batch, head):
        """Scores of a head in f64, -inf where nothing is seen."""
        torch, s = self.torch, self.shape[2]
        q, k = (x[batch, head].double() for x in (self.q, self.k))
        score = q @ k.T * (self.scale * _DESCALES["q"] * _DESCALES["k"])
        i, j = torch.arange(s, device="cuda")[:, None], torch.arange(s, device="cuda")[None]
        n = s if self.lengths is None else int(self.lengths[batch])
        seen = (i < n) & (j < n)
        if "right" in self.options:
            seen &= j <= i
        return torch.where(seen, score, -math.inf)

    def _weights(self, batch, head):
        torch = self.torch
        score = self._scores(batch, head)
        log = torch.logsumexp(score, 1)
        return torch.where(log.isinf()[:, None], 0, torch.exp(score - log[:, None])), log

    def _output(self, weight, batch, head):
        kept = self._eight(weight * _SCALES["s"]).double()
        return kept @ self.v[batch, head].double() * (_DESCALES["s"] * _DESCALES["v"])

    def _heads(self):
        return [(batch, head) for batch in range(self.shape[0]) for head in range(self.shape[1])]

    def _forward(self):
        """O and the statistics that the gradients read."""
        torch = self.torch
        b, h, s, d = self.shape
        o = torch.empty(b, s, h, d, device="cuda").transpose(1, 2)
        stats = torch.empty(b, h, s, 1, device="cuda")
        for at in self._heads():
            weight, log = self._weights(*at)
            o[at] = (self._output(weight, *at) * _SCALES["o"]).float()
            stats[at] = log[:, None].float()
        return self._eight(o.transpose(1, 2)).transpose(1, 2), stats

    def error(self):
        """The largest error of each result in 8 bits, behind that of their own rounding, beside the largest value; of
        the statistics; and of the absolute maxima."""
        torch = self.torch
        self.run()
        torch.cuda.synchronize()
        worst, peaks, of_stats = [0.0] * len(self.results), [0.0] * len(self.peaks), 0.0
        for number, at in enumerate(self._heads()):
            wanted, others, log = self._wanted(*at)
            if log is not None:
                got = self.stats[at][:, 0].double()
                of_stats = max(of_stats, torch.where(got == log, 0, (got - log).abs()).max().item())
            for i, (want, scale) in enumerate(wanted):
                peaks[i + (len(wanted) == 1)] = max(peaks[i + (len(wanted) == 1)], want.abs().max().item())
                want = (want * scale).clamp(-448, 448)
                off = (self.results[i][at].double() - want).abs() - want.abs() / 16 - 2.0 ** -10
                off = (off.max() / want.abs().max().clamp(min=1e-30)).item()
                worst[i] = math.inf if math.isnan(off) else max(worst[i], off)
            place = 0 if len(wanted) == 1 else 3
            peaks[place] = max(peaks[place], others)
            if number >= 16 and self.shape[2] > 2048:  # the maxima are of all heads
                return {"results": worst, "stats": of_stats}
        got = [peak.item() for peak in self.peaks]
        return {"results": worst, "stats": of_stats,
                "peaks": [abs(x - y) / y if y else abs(x) for x, y in zip(got, peaks)]}

    def _wanted(self, *at):
        """(value, scale) of each result, another absolute maximum, and the statistics."""
        torch = self.torch
        weight, log = self._weights(*at)
        if self.options["direction"] == "forward":
            return [(self._output(weight, *at), _SCALES["o"])], weight.max().item(), log
        log = self.stats[at].double()
        weight = torch.where(log.isinf(), 0, torch.exp(self._scores(*at) - log))
        q, k, v, grad, o = (x[at].double() for x in (self.q, self.k, self.v, self.grad, self.o))
        mean = (grad * o).sum(1, keepdim=True) * (_DESCALES["dO"] * _DESCALES["o"])
        slope = weight * (grad @ v.T * (_DESCALES["dO"] * _DESCALES["v"]) - mean) * self.scale
        small = self._eight(slope * _SCALES["dP"]).double()
        kept = self._eight(weight * _SCALES["s"]).double()
        return [(small @ k * (_DESCALES["dP"] * _DESCALES["k"]), _SCALES["dQ"]),
                (small.T @ q * (_DESCALES["dP"] * _DESCALES["q"]), _SCALES["dK"]),
                (kept.T @ grad * (_DESCALES["s"] * _DESCALES["dO"]), _SCALES["dV"])], slope.abs().max().item(), None


def _tflops(shape, options, us):
    b, h, s, d = shape
    products = 2 if options["direction"] == "forward" else 5
    return 2 * products * b * h * s * s * d * (0.5 if "right" in options else 1) / us / 1e6


def main():
    arguments = side_by_side.parser(SHAPES).parse_args()
    if arguments.serve:
        return side_by_side.serve(arguments.serve, Problem)

    def line(row, shape, _, options):
        us = row["kiln"].get("us")
        libraries = {who: of for who, of in row.items() if isinstance(of, dict)}
        speed = _tflops(shape, options, us) if us else 0
        return f"{row['name']:44} {us or 0:8.1f} us, {speed:6.1f} TFLOP/s {libraries}"

    combinations = [(f"{name}_{options['direction']}", options, "e4m3") for name, options in COMBINATIONS]
    side_by_side.compare(arguments, __file__, combinations, line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
