"""Events of a trace (record.py) as problems of the corpus (corpus.py): a reader for each operation of PyTorch. Called
by trace.py; chains.py makes problems of several events.
"""
import math

import torch

from corpus import Problem
from record import convolution_is_channels_last, is_channels_last

NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float8_e4m3fn: "fp8"}
MOST_BYTES = 8 << 30  # of one tensor: larger ones fit no device beside others


class Unread(Exception):
    """An operation that Kiln's graphs do not have in this form."""


def dtype_of(tensor, contracts=False):
    name = NAMES.get(tensor.dtype)
    if name is None:
        raise Unread(f"data type {tensor.dtype}")
    return "tf32" if contracts and name == "f32" else name


def layout_of(tensor):
    """row, col, nhwc, pN… where a permutation of dims is dense, s… (strides) where rows are apart."""
    dims, strides = tensor.shape, tensor.stride()
    order = sorted(range(len(dims)), key=lambda d: (-strides[d], d))
    if any(stride == 0 and extent > 1 for extent, stride in zip(dims, strides)):
        return "row"
    if tensor.is_contiguous():
        return "row"
    if is_channels_last(tensor):
        return "nhwc"
    expected, dense = 1, True
    for d in reversed(order):
        dense = dense and (dims[d] == 1 or strides[d] == expected)
        expected *= dims[d]
    if dense:
        if order == list(range(len(dims) - 2)) + [len(dims) - 1, len(dims) - 2]:
            return "col"
        return "p" + "".join(map(str, order))
    if 1 in strides[-2:]:
        return "s" + ".".join(map(str, strides))
    return "row"  # PyTorch makes a copy


def make(kind, dtype, layout, dims, **attributes):
    for _, extents in dims:
        if math.prod(extents) == 0:
            raise Unread("no elements")
        if 2 * math.prod(extents) > MOST_BYTES:
            raise Unread("too large")
    pairs = tuple((name, str(value)) for name, value in attributes.items() if value not in (None, ""))
    return Problem(kind, dtype, layout, tuple((name, tuple(extents)) for name, extents in dims), pairs)


def spatial(values, rank, default):
    """"1,2", "1" where all are alike, None where all are the default."""
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    values = values * rank if len(values) == 1 else values
    if all(value == default for value in values):
        return None
    return str(values[0]) if len(set(values)) == 1 else ",".join(map(str, values))


# --- convolutions ----------------------------------------------------------------------------------------------------
class Convolution:
    """Operands of aten::convolution as cuDNN's: 1-D ones are 2-D with a height of 1, as PyTorch passes them."""

    def __init__(self, x, w, stride, padding, dilation, transposed, output_padding):
        is_flat = x.dim() == 3
        self.rank = max(x.dim() - 2, 2)
        self.nhwc = convolution_is_channels_last(x, w)
        self.dtype, self.transposed = dtype_of(x, contracts=True), transposed
        lift = lambda extents: tuple(extents[:2]) + (1,) * is_flat + tuple(extents[2:])
        widen = lambda values, other: [other] * is_flat + list(values)
        self.x, self.w = lift(x.shape), lift(w.shape)
        self.geometry = {"pad": spatial(widen(padding, 0), self.rank, 0),
                         "stride": spatial(widen(stride, 1), self.rank, 1),
                         "dilation": spatial(widen(dilation, 1), self.rank, 1)}
        self.lift = lift

    def problem(self, direction, y):
        """`direction` is the one that PyTorch names; a transposed convolution's forward is a dgrad."""
        x, y = self.x, self.lift(y)
        if self.transposed:
            x, y = y, x
            direction = {"fprop": "dgrad", "dgrad": "fprop", "wgrad": "wgrad"}[direction]
        dims = (("x", x), ("w", self.w))
        return make(f"conv_{direction}", self.dtype, "nhwc" if self.nhwc else "row", dims, **self.geometry)


def read_convolution(event):
    x, w, _, stride, padding, dilation, transposed, output_padding = event.args[:8]
    yield Convolution(x, w, stride, padding, dilation, transposed, output_padding).problem("fprop", event.results.shape)


def read_convolution_backward(event):
    dy, x, w, bias, stride, padding, dilation, transposed, output_padding, _, mask = event.args[:11]
    conv = Convolution(x, w, stride, padding, dilation, transposed, output_padding)
    if mask[0]:
        yield conv.problem("dgrad", dy.shape)
    if mask[1]:
        yield conv.problem("wgrad", dy.shape)
    if mask[2]:
        axes = [0] + list(range(2, len(conv.x)))
        yield make("reduction", dtype_of(dy), "nhwc" if conv.nhwc else "row", (("x", conv.lift(dy.shape)),),
                   mode="add", axes=",".join(map(str, axes)))


# --- products --------------------------------------------------------------------------------------------------------
def matrices(a, b):
    """Both as [batch, rows, columns]."""
    lift = lambda t: t.unsqueeze(0) if t.dim() == 2 else t
    return lift(a), lift(b)


def product(a, b, kind="matmul", dtype=None, **attributes):
    a, b = matrices(a, b)
    # One matrix to be multiplied by a vector, or by itself, is no product for a library of them.
    return make(kind, dtype or dtype_of(a, contracts=True), f"{layout_of(a)},{layout_of(b)}",
                (("a", a.shape), ("b", b.shape)), **attributes)


def read_product(event):
    first = 1 if event.name in ("aten::addmm", "aten::baddbmm") else 0
    yield product(event.args[first], event.args[first + 1])


def read_grouped(event):
    tokens, weights = event.args[:2]
    if tokens.dim() != 2 or weights.dim() != 3:
        raise Unread("experts whose rows are summed over")
    yield make("moe", dtype_of(tokens, contracts=True), f"{layout_of(tokens.unsqueeze(0))},{layout_of(weights)}",
               (("t", (1,) + tuple(tokens.shape)), ("w", weights.shape)))


# --- attention -------------------------------------------------------------------------------------------------------
def read_attention(event):
    q, k, v, mask, causal, _ = event.args
    is_backward = event.name.endswith("backward")
    keeps = "1" if not is_backward and q.requires_grad else None
    bias = None
    if mask is not None:
        bias = "x".join(map(str, (1,) * (4 - mask.dim()) + tuple(mask.shape)))
    yield make("sdpa_bwd" if is_backward else "sdpa_fwd", dtype_of(q), ",".join(layout_of(t) for t in (q, k, v)),
               (("q", q.shape), ("k", k.shape), ("v", v.shape)), causal="1" if causal else None, bias=bias, stats=keeps)


# --- norms -----------------------------------------------------------------------------------------------------------
def plain_layout(tensor):
    return "nhwc" if is_channels_last(tensor) else "row"


def read_batch_norm(event):
    is_backward = event.name.endswith("backward")
    x = event.args[1] if is_backward else event.args[0]
    if x.dim() < 3:
        x = x.unsqueeze(-1)
    trains = event.trains
    yield make("norm_bwd" if is_backward else "norm_fwd", dtype_of(x), plain_layout(x), (("x", x.shape),), mode="batch",
               inference=None if trains else "1")


def read_layer_norm(event):
    is_backward = event.name.endswith("backward")
    x, normalized = (event.args[1], event.args[2]) if is_backward else event.args[:2]
    columns = math.prod(normalized)
    yield make("norm_bwd" if is_backward else "norm_fwd", dtype_of(x), "row",
               (("x", (x.numel() // columns, columns)),), mode="layer", inference=None if event.trains else "1")


def read_rms_norm(event):
    x = event.args[0]
    yield make("norm_bwd" if event.name.endswith("backward") else "norm_fwd", dtype_of(x), "row",
               (("x", (x.numel() // x.shape[-1], x.shape[-1])),), mode="rms", inference=None if event.trains else "1")


def read_group_norm(event):
    is_backward = event.name.endswith("backward")
    x, groups = (event.args[1], event.args[8]) if is_backward else (event.args[0], event.args[6])
    if x.dim() < 3:
        raise Unread("a group norm of a matrix")
    # Statistics are written in either phase.
    yield make("norm_bwd" if is_backward else "norm_fwd", dtype_of(x), plain_layout(x), (("x", x.shape),), mode="group",
               groups=groups)


# --- windows ---------------------------------------------------------------------------------------------------------
def window_problem(event, kind, x, y, mode, window, stride, padding, **more):
    rank = x.dim() - 2
    fill = lambda values: (list(values) * rank)[:rank] if isinstance(values, (list, tuple)) else [values] * rank
    window, padding = fill(window), fill(padding)
    stride = fill(stride) if stride not in ([], (), None) else window
    post = [max(p, (out - 1) * s + k - i - p)
            for p, out, s, k, i in zip(padding, y[2:], stride, window, x.shape[2:])]
    return make(kind, dtype_of(x), plain_layout(x), (("x", x.shape), ("y", y)), mode=mode,
                window=spatial(window, rank, None), stride=spatial(stride, rank, 1), pad=spatial(padding, rank, 0),
                post=spatial(post, rank, None) if post != padding else None, **more)


def read_max_pool(event):
    is_backward = event.name.endswith("backward")
    x, *options = event.args[1:] if is_backward else event.args
    window, stride, padding, dilation = (options + [[], 0, 1][len(options) - 1:])[:4]
    if any(d != 1 for d in (dilation if isinstance(dilation, (list, tuple)) else [dilation])):
        raise Unread("a dilated window")
    y = event.args[0].shape if is_backward else event.results[0].shape
    if x.dim() < 4:
        raise Unread("a window without a batch")
    yield window_problem(event, "resample_bwd" if is_backward else "resample_fwd", x, tuple(y), "maxpool", window, stride,
                         padding, index="1" if event.trains else None)


def read_average_pool(event):
    is_backward = event.name.endswith("backward")
    x, *options = event.args[1:] if is_backward else event.args
    window, stride, padding, _, includes = (options + [[], 0, False, True][len(options) - 1:])[:5]
    y = event.args[0].shape if is_backward else event.results.shape
    if x.dim() < 4:
        raise Unread("a window without a batch")
    mode = "avgpool" if includes or not any(padding if isinstance(padding, (list, tuple)) else [padding]) \
        else "avgpool_exclude"
    yield window_problem(event, "resample_bwd" if is_backward else "resample_fwd", x, tuple(y), mode, window, stride,
                         padding)


def read_adaptive_pool(event):
    is_backward = event.name.endswith("backward")
    x = event.args[1] if is_backward else event.args[0]
    y = tuple(event.args[0].shape if is_backward else event.results.shape)
    if x.dim() < 4 or any(i % o for i, o in zip(x.shape[2:], y[2:])):
        raise Unread("windows of different sizes")
    window = [i // o for i, o in zip(x.shape[2:], y[2:])]
    yield window_problem(event, "resample_bwd" if is_backward else "resample_fwd", x, y, "avgpool", window, window, 0)


def read_upsample(event):
    is_backward = event.name.endswith("backward")
    mode = "nearest" if "nearest" in event.name else "bilinear"
    x_dims = tuple(event.args[2]) if is_backward else tuple(event.args[0].shape)
    dy = event.args[0] if is_backward else event.results
    align = mode == "bilinear" and event.args[3 if is_backward else 2]
    if align or any(o != 2 * i for i, o in zip(x_dims[2:], dy.shape[2:])):
        raise Unread("an interpolation by another factor than 2")
    of = event.args[0]
    yield make("resample_bwd" if is_backward else "resample_fwd", dtype_of(dy), plain_layout(of),
               (("x", x_dims), ("y", tuple(dy.shape))), mode=mode)


# --- rows ------------------------------------------------------------------------------------------------------------
def read_softmax(event):
    is_backward = event.name.endswith("backward_data")
    x, dim = (event.args[1], event.args[2]) if is_backward else event.args[:2]
    if dim % x.dim() != x.dim() - 1:
        raise Unread("a softmax along another dim than the last")
    yield make("softmax_bwd" if is_backward else "softmax_fwd", dtype_of(x), "row",
               (("x", (x.numel() // x.shape[-1], x.shape[-1])),))


def read_reduction(event):
    x, axes = event.args[:2]
    if not axes or x.dim() > 5 or x.numel() < 1024 or not x.is_floating_point():
        raise Unread("a sum of little")
    axes = sorted(axis % x.dim() for axis in axes)
    if all(x.shape[axis] == 1 for axis in axes):
        raise Unread("a sum of one")
    yield make("reduction", dtype_of(x), plain_layout(x), (("x", x.shape),),
               mode="avg" if event.name.startswith("aten::mean") else "add", axes=",".join(map(str, axes)))


READERS = {
    "aten::convolution": read_convolution,
    "aten::convolution_backward": read_convolution_backward,
    **{f"aten::{name}": read_product for name in ("mm", "addmm", "bmm", "baddbmm")},
    "aten::_grouped_mm": read_grouped,
    "corpus::attention": read_attention,
    "corpus::attention_backward": read_attention,
    "corpus::rms_norm": read_rms_norm,
    "corpus::rms_norm_backward": read_rms_norm,
    **{f"aten::{name}": read_batch_norm for name in ("native_batch_norm", "native_batch_norm_backward",
                                                      "_native_batch_norm_legit", "batch_norm_backward")},
    **{f"aten::native_layer_norm{end}": read_layer_norm for end in ("", "_backward")},
    **{f"aten::native_group_norm{end}": read_group_norm for end in ("", "_backward")},
    **{f"aten::max_pool{n}d_with_indices{end}": read_max_pool for n in (2, 3) for end in ("", "_backward")},
    **{f"aten::avg_pool{n}d{end}": read_average_pool for n in (2, 3) for end in ("", "_backward")},
    **{f"aten::_adaptive_avg_pool{n}d{end}": read_adaptive_pool for n in (2, 3) for end in ("", "_backward")},
    **{f"aten::upsample_{name}2d{end}": read_upsample for name in ("nearest", "bilinear") for end in ("", "_backward")},
    "aten::_softmax": read_softmax,
    "aten::_softmax_backward_data": read_softmax,
    "aten::mean": read_reduction,
    "aten::sum": read_reduction,
}
