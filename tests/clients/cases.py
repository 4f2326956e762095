"""Graphs that cudnn-frontend's users build, as functions of a Builder factory. CASES names them all.

Each function makes a graph and returns its Builder, planned by nobody yet. The CPU test and the GPU program
run the same list.
"""

import cudnn
import numpy as np

import attention
import later
import norms
import quantised
import reference
import rotary
import versions
from builder import channels_last, packed
from reference import Ref

_T = cudnn.data_type
FLOATS = {"fp16": _T.HALF, "bf16": _T.BFLOAT16, "fp32": _T.FLOAT}

CASES = {}


def _case(name, io, build, **options):
    def make(new):
        b = new(io=io, **options)
        build(b)
        return b

    assert name not in CASES, name
    CASES[name] = make


def _for_floats(name, build):
    for suffix, io in FLOATS.items():
        _case(f"{name}_{suffix}", io, build)


# --- convolution ------------------------------------------------------------------------------------------


def _conv_scale_bias_relu(b, layout=channels_last):
    x = b.input((2, 16, 12, 10), strides=layout)
    w = b.input((24, 16, 3, 3), strides=layout)
    scale = b.input((1, 24, 1, 1), low=0.5, high=1.5, strides=layout)
    bias = b.input((1, 24, 1, 1), strides=layout)
    y = b.conv_fprop(x, w, pre=[1, 1])
    b.output(b.pointwise("relu", b.pointwise("bias", b.pointwise("scale", y, scale), bias)))


def _conv(b, image, filters, layout=channels_last, **geometry):
    x = b.input(image, strides=layout)
    w = b.input(filters, strides=layout)
    b.output(b.conv_fprop(x, w, **geometry))


def _conv_residual(b):
    """Two outputs: the sum before the activation is kept for the backward pass."""
    x = b.input((2, 32, 7, 7), strides=channels_last)
    w = b.input((32, 32, 1, 1), strides=channels_last)
    residual = b.input((2, 32, 7, 7), strides=channels_last)
    total = b.output(b.pointwise("add", b.conv_fprop(x, w), residual))
    b.output(b.pointwise("swish", total))


def _scale_relu_conv_genstats(b):
    """A batch norm's apply in front of the convolution, the next one's statistics behind it."""
    x = b.input((2, 16, 8, 8), strides=channels_last)
    scale = b.input((1, 16, 1, 1), strides=channels_last)
    bias = b.input((1, 16, 1, 1), strides=channels_last)
    w = b.input((32, 16, 3, 3), strides=channels_last)
    image = b.pointwise("relu", b.pointwise("add", b.pointwise("mul", x, scale), bias))
    y = b.output(b.conv_fprop(image, w, pre=[1, 1]))
    for statistic in b.genstats(y):
        b.output(statistic, data_type=_T.FLOAT)


def _dgrad(b):
    w = b.input((24, 8, 3, 3), strides=channels_last)
    dy = b.input((2, 24, 6, 5), strides=channels_last)
    b.output(b.conv_dgrad(dy, w, (2, 8, 12, 10), pre=[1, 1], stride=[2, 2]))


def _drelu_dgrad(b):
    y = b.input((2, 24, 8, 8), strides=channels_last)
    w = b.input((24, 16, 3, 3), strides=channels_last)
    dy = b.input((2, 24, 8, 8), strides=channels_last)
    dx = b.conv_dgrad(dy, w, (2, 16, 8, 8), pre=[1, 1])
    x = b.input((2, 16, 8, 8), strides=channels_last)
    b.output(b.pointwise("relu_backward", dx, x))
    del y


def _wgrad(b):
    x = b.input((3, 8, 12, 10), strides=channels_last)
    dy = b.input((3, 16, 12, 10), strides=channels_last)
    b.output(b.conv_wgrad(x, dy, (16, 8, 3, 3), pre=[1, 1]))


_for_floats("conv_scale_bias_relu", _conv_scale_bias_relu)
_for_floats("conv_residual_swish", _conv_residual)
_for_floats("scale_relu_conv_genstats", _scale_relu_conv_genstats)
_for_floats("dgrad_stride_2", _dgrad)
_for_floats("wgrad", _wgrad)
_case("dgrad_relu_backward", _T.HALF, _drelu_dgrad)
_case("conv_scale_bias_relu_nchw", _T.FLOAT, lambda b: _conv_scale_bias_relu(b, packed))
_case("conv_stride_dilation", _T.FLOAT,
      lambda b: _conv(b, (2, 8, 17, 15), (12, 8, 3, 3), pre=[2, 1], stride=[2, 3], dilation=[2, 1]))
_case("conv_asymmetric_padding", _T.HALF,
      lambda b: _conv(b, (1, 8, 9, 11), (8, 8, 3, 3), pre=[0, 1], post=[2, 0]))
_case("conv_groups", _T.HALF, lambda b: _conv(b, (2, 32, 9, 9), (48, 8, 3, 3), pre=[1, 1]))
_case("conv_depthwise", _T.FLOAT, lambda b: _conv(b, (2, 16, 9, 9), (16, 1, 3, 3), pre=[1, 1]))
_case("conv_flipped", _T.FLOAT, lambda b: _conv(b, (2, 4, 9, 9), (8, 4, 3, 2), flip=True))
_case("conv_3d", _T.BFLOAT16,
      lambda b: _conv(b, (1, 8, 6, 7, 8), (16, 8, 3, 3, 3), pre=[1, 1, 1], stride=[1, 2, 1]))
_case("conv_odd_channels", _T.HALF, lambda b: _conv(b, (3, 3, 13, 11), (7, 3, 5, 3), pre=[2, 1]))

# --- matmul -----------------------------------------------------------------------------------------------


def _matmul_bias_gelu(b, activation="gelu"):
    a = b.input((1, 48, 64))
    w = b.input((1, 64, 40))
    bias = b.input((1, 1, 40))
    b.output(b.pointwise(activation, b.pointwise("add", b.matmul(a, w), bias)))


def _matmul_transposed(b):
    a = b.input((3, 33, 20), strides=(33 * 20, 1, 33))
    w = b.input((3, 20, 17), strides=(20 * 17, 1, 20))
    b.output(b.matmul(a, w))


def _matmul_broadcast(b):
    a = b.input((4, 19, 32))
    w = b.input((1, 32, 24))
    b.output(b.matmul(a, w), data_type=_T.FLOAT)


def _matmul_4d(b):
    q = b.input((2, 3, 16, 24))
    k = b.input((2, 3, 24, 20))
    scaled = b.pointwise("mul", b.matmul(q, k), b.scalar(0.125, 4))
    b.output(scaled)


def _scaled_softmax(b):
    """Softmax of a matrix product from primitives, as attention is written without SDPA."""
    q = b.input((2, 3, 16, 24))
    k = b.input((2, 3, 24, 20))
    scores = b.pointwise("mul", b.matmul(q, k), b.scalar(0.2, 4))
    top = b.reduce(scores, "MAX", [3])
    weights = b.pointwise("exp", b.pointwise("sub", scores, top))
    total = b.reduce(weights, "ADD", [3])
    b.output(b.pointwise("div", weights, total))


def _dequantised_matmul(b):
    a = b.input((1, 32, 48), data_type=_T.INT8, low=-20, high=20)
    a_wide = b.pointwise("identity", a)
    w = b.input((1, 48, 24))
    a_wide.tensor.set_data_type(b.io)
    b.output(b.matmul(a_wide, w))


_for_floats("matmul_bias_gelu", _matmul_bias_gelu)
_for_floats("matmul_bias_gelu_tanh", lambda b: _matmul_bias_gelu(b, "gelu_approx_tanh"))
_for_floats("matmul_transposed", _matmul_transposed)
_for_floats("matmul_broadcast_batch", _matmul_broadcast)
_for_floats("matmul_4d_scalar", _matmul_4d)
_for_floats("softmax_of_matmul", _scaled_softmax)
_case("matmul_int8_operand", _T.HALF, _dequantised_matmul)

# --- reduction --------------------------------------------------------------------------------------------


def _reduction(mode, dims, axes, **values):
    def build(b):
        x = b.input(dims, **values)
        b.output(b.reduce(x, mode, axes), data_type=_T.FLOAT)
    return build


for _mode in ("ADD", "MUL", "MIN", "MAX", "AMAX", "AVG", "NORM1", "NORM2", "MUL_NO_ZEROS"):
    _range = {"low": 0.9, "high": 1.1} if _mode.startswith("MUL") else {}
    _for_floats(f"reduce_{_mode.lower()}_row", _reduction(_mode, (6, 5, 70), [2], **_range))
    _case(f"reduce_{_mode.lower()}_column", _T.FLOAT, _reduction(_mode, (60, 7, 9), [0], **_range))
    _case(f"reduce_{_mode.lower()}_all", _T.FLOAT, _reduction(_mode, (5, 6, 7), [0, 1, 2], **_range))
_case("reduce_channels_last", _T.HALF, _reduction("ADD", (4, 16, 9, 9), [0, 2, 3], strides=channels_last))
_case("reduce_long", _T.FLOAT, _reduction("ADD", (1, 3, 70000), [2]))
_case("reduce_two_axes_apart", _T.FLOAT, _reduction("MAX", (6, 7, 8, 9), [1, 3]))


def _mul_no_zeros(b):
    x = b.input((4, 5, 12), low=0.5, high=1.5)
    keep = b.rng.uniform(0, 1, x.ref.shape) > 0.5
    y = b.input((4, 5, 12), values=x.ref.value * keep)
    b.output(b.reduce(b.pointwise("identity", y), "MUL_NO_ZEROS", [2]), data_type=_T.FLOAT)
    b.output(b.pointwise("add", x, y))


def _rms_norm(b):
    """Reduction in the middle of a pointwise DAG; statistics are a second output."""
    x = b.input((12, 96, 1, 1))
    weight = b.input((1, 96, 1, 1), low=0.5, high=1.5)
    mean_square = b.reduce(b.pointwise("mul", x, x), "AVG", [1])
    inverse = b.output(b.pointwise("rsqrt", b.pointwise("add", mean_square, b.scalar(1e-5, 4))),
                       data_type=_T.FLOAT)
    b.output(b.pointwise("mul", b.pointwise("mul", x, inverse), weight))


_case("reduce_mul_no_zeros_with_zeros", _T.FLOAT, _mul_no_zeros)
_for_floats("rms_norm_from_primitives", _rms_norm)

# --- pointwise --------------------------------------------------------------------------------------------

_UNARY = {
    "abs": {}, "ceil": {"low": -3, "high": 3}, "cos": {}, "elu": {}, "erf": {}, "exp": {},
    "floor": {"low": -3, "high": 3}, "gelu": {"low": -3, "high": 3}, "gelu_approx_tanh": {"low": -3, "high": 3},
    "identity": {}, "log": {"low": 0.2, "high": 4}, "neg": {}, "reciprocal": {"low": 0.5, "high": 2}, "relu": {},
    "rsqrt": {"low": 0.2, "high": 4}, "sigmoid": {"low": -4, "high": 4}, "sin": {}, "softplus": {"low": -4, "high": 4},
    "sqrt": {"low": 0, "high": 4}, "swish": {"low": -4, "high": 4}, "tan": {}, "tanh": {"low": -3, "high": 3},
}
_BINARY = {
    "add": {}, "add_square": {}, "div": {"low": 0.5, "high": 2}, "max": {}, "min": {}, "mod": {"low": 0.5, "high": 2},
    "mul": {}, "pow": {"low": 0.5, "high": 2}, "sub": {},
    "elu_backward": {}, "gelu_approx_tanh_backward": {}, "gelu_backward": {}, "relu_backward": {},
    "sigmoid_backward": {}, "softplus_backward": {}, "swish_backward": {}, "tanh_backward": {},
}
_COMPARE = ("cmp_eq", "cmp_ge", "cmp_gt", "cmp_le", "cmp_lt", "cmp_neq")


def _unary(name, values):
    return lambda b: b.output(b.pointwise(name, b.input((3, 7, 11), **values)))


def _binary(name, values):
    def build(b):
        x = b.input((3, 7, 11), **values)
        b.output(b.pointwise(name, x, b.input((3, 7, 11), **values)))
    return build


def _select(name):
    """The comparison's boolean is virtual and selects; few distinct values, so that equality happens."""
    def build(b):
        x = b.input((3, 7, 11), values=b.rng.integers(-2, 3, (3, 7, 11)))
        y = b.input((3, 7, 11), values=b.rng.integers(-2, 3, (3, 7, 11)))
        condition = b.pointwise(name, x, y)
        condition.tensor.set_data_type(_T.BOOLEAN)
        scaled = b.pointwise("mul", x, b.scalar(10.0, 3))
        b.output(b.pointwise("binary_select", scaled, y, condition))
    return build


for _name, _values in _UNARY.items():
    _for_floats(f"unary_{_name}", _unary(_name, _values))
for _name, _values in _BINARY.items():
    _for_floats(f"binary_{_name}", _binary(_name, _values))
for _name in _COMPARE:
    _case(f"select_{_name}", _T.HALF, _select(_name))


def _clipped_relu(b):
    x = b.input((2, 5, 30), low=-2, high=2)
    dy = b.input((2, 5, 30))
    clips = {"negative_slope": 0.25, "lower_clip": -0.5, "upper_clip": 1.5}
    b.output(b.pointwise("relu", x, **clips))
    b.output(b.pointwise("relu_backward", dy, x, **clips))
    b.output(b.pointwise("leaky_relu", x, negative_slope=0.1))
    b.output(b.pointwise("leaky_relu_backward", dy, x, negative_slope=0.1))
    b.output(b.pointwise("swish", x, swish_beta=1.75))


def _diamond(b):
    """Operands of every broadcast kind, a value used twice, three outputs of two data types."""
    x = b.input((4, 6, 8, 10))
    row = b.input((1, 1, 1, 10))
    channel = b.input((1, 6, 1, 1))
    plane = b.input((4, 1, 8, 1))
    u = b.output(b.pointwise("mul", b.pointwise("add", x, row), channel))
    v = b.pointwise("tanh", u)
    w = b.output(b.pointwise("sub", v, plane), data_type=_T.FLOAT)
    b.output(b.pointwise("max", b.pointwise("mul", w, v), b.scalar(-0.25, 4)))


def _causal_mask(b):
    x = b.input((2, 2, 9, 9))
    row, column = b.gen_index(x, 2), b.gen_index(x, 3)
    visible = b.pointwise("cmp_ge", row, column)
    visible.tensor.set_data_type(_T.BOOLEAN)
    b.output(b.pointwise("binary_select", x, b.scalar(-1000.0, 4), visible))


def _logic(b):
    x = b.input((3, 8, 8))
    zero = b.scalar(0.0, 3)
    y = b.input((3, 8, 8))
    booleans = [b.pointwise("cmp_gt", x, zero), b.pointwise("cmp_lt", y, zero)]
    both = b.pointwise("logical_and", *booleans)
    either = b.pointwise("logical_or", *booleans)
    neither = b.pointwise("logical_not", either)
    for node in (*booleans, both, either, neither):
        node.tensor.set_data_type(_T.BOOLEAN)
    b.output(b.pointwise("binary_select", x, y, both))
    b.output(b.pointwise("binary_select", y, x, neither))


def _strided(b):
    """Gaps between rows, a transposed operand, and an output in a third layout."""
    x = b.input((4, 6, 10), strides=(6 * 16, 16, 1))
    y = b.input((4, 6, 10), strides=(1, 40, 4))
    b.output(b.pointwise("add", x, y), strides=(80, 13, 1))


def _long_chain(b):
    x = b.input((2, 16, 33))
    for i in range(12):
        x = b.pointwise("tanh", b.pointwise("add", b.pointwise("mul", x, b.scalar(0.9, 3)), b.scalar(0.01 * i, 3)))
    b.output(x)


def _integers(b):
    x = b.input((5, 64), data_type=_T.INT32, low=-1000, high=1000)
    y = b.input((5, 64), data_type=_T.INT8, low=-100, high=100)
    b.output(b.pointwise("add", x, y), data_type=_T.FLOAT)


def _concatenate(b):
    parts = [b.input((2, n, 5)) for n in (3, 1, 4)]
    tensor = b.graph.concatenate(inputs=[p.tensor for p in parts], axis=1)
    tensor.set_dim([2, 8, 5]).set_stride([40, 5, 1])
    values = b.concatenated([p.ref for p in parts], 1)
    b.output(b.node(tensor, values))


def _slice(b):
    """In 9.19 a slice is a pointer that the frontend moves: its source's uid is not in the graph."""
    x = b.input((2, 8, 16))
    part = b.graph.slice(x.tensor, [slice(0, 2), slice(2, 6), slice(8, 16)]).set_data_type(b.io)
    b.output(b.pointwise("tanh", b.node(part, Ref(x.ref.value[:, 2:6, 8:]))))


def _transpose(b):
    x = b.input((4, 6, 10))
    y = b.pointwise("tanh", x)
    tensor = b.graph.transpose(y.tensor, permutation=[2, 0, 1])
    turned = [np.transpose(part, (2, 0, 1)) for part in (y.ref.value, y.ref.err)]
    b.output(b.pointwise("exp", b.node(tensor, Ref(*turned))))


def _reshape(b):
    """A view: rows become a column of blocks."""
    x = b.input((4, 6, 10))
    y = b.pointwise("tanh", x)
    tensor = b.graph.reshape(y.tensor)
    tensor.set_dim([4, 3, 20]).set_stride([60, 20, 1])
    b.output(b.reduce(b.node(tensor, b.reshaped(y.ref, (4, 3, 20))), "ADD", [2]), data_type=_T.FLOAT)


def _grouped_matmul(b):
    """Each expert has a run of the tokens; the second has none."""
    first, tokens, depth, columns = (0, 5, 5), 12, 16, 24
    x = b.input((1, tokens, depth))
    # Columns of a weight are contiguous along the depth, as NVIDIA's wants them.
    w = b.input((len(first), depth, columns), strides=lambda d: (d[1] * d[2], 1, d[1]))
    offsets = b.input((len(first), 1, 1), data_type=_T.INT32, values=np.array(first).reshape(-1, 1, 1))
    tensor = b.graph.moe_grouped_matmul(x.tensor, w.tensor, offsets.tensor)
    parts = [reference.matmul(Ref(x.ref.value[:, begin:end]), Ref(w.ref.value[e:e + 1]))
             for e, (begin, end) in enumerate(zip(first, (*first[1:], tokens))) if begin < end]
    tensor.set_dim([1, tokens, columns]).set_stride([tokens * columns, columns, 1])
    b.output(b.node(tensor, b.concatenated(parts, 1)))


_case("grouped_matmul_fp16", _T.HALF, _grouped_matmul)
_case("grouped_matmul_bf16", _T.BFLOAT16, _grouped_matmul)
_for_floats("concatenate", _concatenate)
if versions.HAS_SLICE:
    _for_floats("slice", _slice)
if versions.HAS_TRANSPOSE:
    _for_floats("transpose", _transpose)
_for_floats("reshape_then_reduce", _reshape)
_for_floats("diamond", _diamond)
_for_floats("causal_mask", _causal_mask)
_for_floats("clipped_relu", _clipped_relu)
_for_floats("strided", _strided)
_for_floats("long_chain", _long_chain)
_case("logic", _T.FLOAT, _logic)
_case("integers", _T.FLOAT, _integers)

norms.add_cases(_for_floats)
attention.add_cases(_case)
quantised.add_cases(_case)
rotary.add_cases(_case, _for_floats)
later.add_cases(_case, _for_floats)
