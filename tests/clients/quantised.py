"""Products and attention of 8-bit floats, with scales of whole tensors and of blocks: cases for CASES.

A scaled product of the frontend's users: operands times their descales, the absolute maximum of the result as a
second output, and the result times its scale in 8 bits.
"""

import cudnn
import numpy as np

import memory
import reference
from attention import Attention, exp_where, per_head, swapped
from builder import channels_last
from reference import Ref

_T = cudnn.data_type
_E4M3, _E5M2, _E8M0 = _T.FP8_E4M3, _T.FP8_E5M2, _T.FP8_E8M0
_BLOCK = 32


def _factor(b, value, rank):
    return b.input((1,) * rank, data_type=_T.FLOAT, values=np.full((1,) * rank, value))


def _scaled(b, product, descales, scale, io):
    """Two outputs: the absolute maximum, and the result in `io`."""
    rank = len(product.ref.shape)
    for descale in descales:
        product = b.pointwise("mul", product, _factor(b, descale, rank))
    b.output(b.reduce(product, "AMAX", list(range(rank))), data_type=_T.FLOAT)
    b.output(b.pointwise("mul", product, _factor(b, scale, rank)), data_type=io)


def _matmul(left, right, io, rows=33):
    def build(b):
        x = b.input((2, rows, 48), data_type=left)
        w = b.input((2, 48, 32), data_type=right, strides=lambda d: (d[1] * d[2], 1, d[1]))
        _scaled(b, b.matmul(x, w), (0.5, 1.75), 2.5, io)
    return build


def _conv(direction):
    def build(b):
        image, filters, geometry = (2, 16, 9, 8), (32, 16, 3, 3), {"pre": [1, 1]}
        x, dy = (b.input(dims, strides=channels_last) for dims in (image, (2, 32, 9, 8)))
        w = b.input(filters, strides=channels_last)
        if direction == "fprop":
            product = b.conv_fprop(x, w, **geometry)
        elif direction == "dgrad":
            product = b.conv_dgrad(dy, w, image, **geometry)
        else:
            product = b.conv_wgrad(x, dy, filters, **geometry)
        _scaled(b, product, (0.5, 0.75), 1.5, b.io)
    return build


# --- scales of blocks --------------------------------------------------------------------------------------


def _blocks(scales, axis, length):
    return np.take(np.repeat(scales, _BLOCK, axis), range(length), axis)


def _dequantised(b, dims, axis, strides=None):
    """An operand in 8 bits with a power of two for each 32 elements along `axis`."""
    options = {"strides": strides} if strides else {}
    x = b.input(dims, data_type=_E4M3, **options)
    counts = tuple(-(-d // _BLOCK) if a == axis else d for a, d in enumerate(dims))
    scale = b.input(counts, data_type=_E8M0, values=2.0 ** b.rng.integers(-2, 3, counts), **options)
    blocks = [_BLOCK] if axis == len(dims) - 1 else [_BLOCK, 1]
    tensor = b.graph.block_scale_dequantize(x.tensor, scale.tensor, block_size=blocks)
    return b.node(tensor, Ref(x.ref.value * _blocks(scale.ref.value, axis, dims[axis])))


def _block_matmul(b):
    x = _dequantised(b, (2, 40, 64), 2)
    w = _dequantised(b, (2, 64, 24), 1, lambda d: (d[1] * d[2], 1, d[1]))
    b.output(b.matmul(x, w), data_type=_T.HALF)


def _block_quantise(b):
    """The scale of a block is the least power of two by which its largest element fits."""
    x = b.input((2, 40, 96), data_type=_T.FLOAT, low=-30, high=30)
    y, scale = b.graph.block_scale_quantize(x.tensor, block_size=_BLOCK, axis=2)
    counts = (2, 40, 3)
    scale.set_dim(list(counts)).set_stride([120, 3, 1])
    largest = np.abs(x.ref.value).reshape(*counts, _BLOCK).max(3)
    powers = 2.0 ** np.ceil(np.log2((largest / 448).astype(np.float32)))
    b.output(b.node(y, Ref(x.ref.value / _blocks(powers, 2, 96))), data_type=_E4M3)
    b.output(b.node(scale, Ref(powers)), data_type=_E8M0)


# --- attention ---------------------------------------------------------------------------------------------

_DESCALES = {"q": 0.5, "k": 0.75, "v": 1.25, "s": 1 / 256, "o": 0.5, "dO": 0.875, "dP": 1 / 64}
_SCALES = {"s": 256.0, "o": 1.5, "dQ": 2.0, "dK": 1.75, "dV": 0.625, "dP": 64.0}
_SPELLED = {"diagonal_band_left_bound": "left_bound", "diagonal_band_right_bound": "right_bound"}


def _product(a, b):
    """Hopper's tensor cores add products of 8-bit floats with about 14 bits."""
    exact = reference.matmul(a, b)
    return Ref(exact.value, exact.err + 2.0**-13 * np.matmul(np.abs(a.value), np.abs(b.value)))


class Fp8Attention(Attention):
    """Each of q, k, v, the weights and the results has a scale of its own."""

    def __init__(self, b, **options):
        super().__init__(b, **options)
        self.options = {_SPELLED.get(name, name): value for name, value in self.options.items()}
        self.scale *= _DESCALES["q"] * _DESCALES["k"]
        self.attention_scale = self.scale / (_DESCALES["q"] * _DESCALES["k"])

    def _score(self):
        score, heads = super()._score(), self.q.ref.shape[1]
        coarse = _product(self.q.ref, swapped(per_head(self.k.ref, heads))).err * self.scale
        return Ref(score.value, score.err + coarse)

    def _factors(self, descales, scales):
        named = {f"descale_{n}": _DESCALES[n] for n in descales} | {f"scale_{n}": _SCALES[n] for n in scales}
        return {name: _factor(self.b, value, 4).tensor for name, value in named.items()}

    def _amax(self, tensor, ref):
        tensor.set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1])
        self.b.output(self.b.node(tensor, reference.REDUCTIONS["AMAX"](ref, (0, 1, 2, 3))), data_type=_T.FLOAT)

    def _result(self, tensor, ref, scale):
        dims = ref.shape
        tensor.set_dim(list(dims)).set_stride(list(self.o_strides(dims)))
        self.b.output(self.b.node(tensor, _times(ref, _SCALES[scale])))

    def _eight_bits(self, ref, name):
        """Scaled and rounded, which leaves an error only where a border between two numbers is within it."""
        scaled = _times(ref, _SCALES[name])
        low, value, high = (memory.quantise(scaled.value + side * scaled.err, self.io) for side in (-1, 0, 1))
        return Ref(value, np.maximum(high - value, value - low))

    def forward(self, stats=True):
        b = self.b
        o, logs, amax_s, amax_o = b.graph.sdpa_fp8(
            self.q.tensor, self.k.tensor, self.v.tensor, generate_stats=stats,
            **self._factors(("q", "k", "v", "s"), ("s", "o")), **self.options)
        weights, expected = self._softmax()
        heads = self.q.ref.shape[1]
        product = _product(self._eight_bits(weights, "s"), per_head(self.v.ref, heads))
        product = _times(product, _DESCALES["s"] * _DESCALES["v"])
        self._amax(amax_s, weights)
        self._amax(amax_o, product)
        self._result(o, product, "o")
        if stats:
            b.output(b.node(logs, expected), data_type=_T.FLOAT)

    def backward(self):
        b = self.b
        weights, logs = self._softmax()
        o = b.input(self.o_dims, strides=self.o_strides)
        grad = b.input(self.o_dims, strides=self.o_strides)
        stats = b.input(logs.shape, data_type=_T.FLOAT, values=logs.value)
        results = b.graph.sdpa_fp8_backward(
            self.q.tensor, self.k.tensor, self.v.tensor, o.tensor, grad.tensor, stats.tensor,
            **self._factors(("q", "k", "v", "o", "dO", "s", "dP"), ("s", "dQ", "dK", "dV", "dP")), **self.options)
        weights = exp_where(Ref(self._score().value - stats.ref.value, self._score().err),
                       np.broadcast_to(self.seen, weights.shape))
        inner = reference.REDUCTIONS["ADD"](reference.pointwise(np.multiply, grad.ref, o.ref), (3,))
        inner = _times(inner, _DESCALES["dO"] * _DESCALES["o"])
        over = _times(_product(grad.ref, swapped(self.v.ref)), _DESCALES["dO"] * _DESCALES["v"])
        ds = reference.pointwise(lambda w, d, i: w * (d - i) * self.attention_scale, weights, over, inner,
                                 cancelled=lambda w, d, i: w * (np.abs(d) + np.abs(i)) * self.attention_scale)
        small = self._eight_bits(ds, "dP")
        kept = self._eight_bits(weights, "s")
        expected = [
            _times(_product(small, self.k.ref), _DESCALES["dP"] * _DESCALES["k"]),
            _times(_product(swapped(small), self.q.ref), _DESCALES["dP"] * _DESCALES["q"]),
            _times(_product(swapped(kept), grad.ref), _DESCALES["s"] * _DESCALES["dO"])]
        for tensor, ref, scale in zip(results, expected, ("dQ", "dK", "dV")):
            self._result(tensor, ref, scale)
        for tensor, ref in zip(results[3:7], [*expected, ds]):
            self._amax(tensor, ref)


def _times(ref, factor):
    return reference.pointwise(lambda v: v * factor, ref)


_ATTENTION = {
    "plain": {"q": (2, 2, 24, 32), "keys": 40},
    "causal": {"q": (2, 2, 24, 32), "keys": 24, "right": 0},
    "lengths": {"q": (2, 2, 24, 32), "keys": 40, "seq_q": (24, 7), "seq_kv": (13, 40)},
    "grouped": {"q": (1, 4, 17, 16), "keys": 33, "heads": 2},
}
# The frontend takes depths of 128 alone where the GPU is a Hopper.
_BACKWARD = {
    "plain": {"q": (1, 2, 24, 128), "keys": 40},
    "causal": {"q": (2, 2, 24, 128), "keys": 24, "right": 0},
}


def add_cases(case):
    """Calls case(name, data type, build) for each."""

    def forward(options):
        return lambda b: Fp8Attention(b, **options).forward()

    def backward(options):
        return lambda b: Fp8Attention(b, **options).backward()

    for name, arguments in {"e4m3": (_E4M3, _E4M3, _E4M3), "e4m3_e5m2": (_E4M3, _E5M2, _E5M2),
                            "e5m2_e4m3_to_fp16": (_E5M2, _E4M3, _T.HALF)}.items():
        case(f"matmul_fp8_{name}", _E4M3, _matmul(*arguments))
    case("matmul_fp8_one_row", _E4M3, _matmul(_E4M3, _E4M3, _E4M3, rows=1))
    for direction in ("fprop", "dgrad", "wgrad"):
        case(f"conv_fp8_{direction}", _E4M3, _conv(direction))
    case("block_scale_matmul", _E4M3, _block_matmul)
    case("block_scale_quantise", _E4M3, _block_quantise)
    for io, suffix in ((_E4M3, "e4m3"), (_E5M2, "e5m2")):
        for name, options in _ATTENTION.items():
            case(f"sdpa_fp8_{name}_{suffix}", io, forward(options))
        for name, options in _BACKWARD.items():
            case(f"sdpa_fp8_backward_{name}_{suffix}", io, backward(options))
