"""f64 references of graph operations with a bound on what float32 arithmetic may differ by.

A Ref is an array of f64 values and, for each element, `err`: how far a correct implementation that computes
in float32 may be from it. Each operation carries the bound on: through a pointwise function by evaluating
it at value ± err, through a contraction or a sum by the magnitudes that are added up.
"""

import math

import numpy as np

EPS32 = 2.0**-24  # unit roundoff of float32
NORMAL32 = 2.0**-126  # its smallest normal number
# Rounding errors of one pointwise operation, in units of EPS32: library functions are good to a few.
POINTWISE_ULPS = 8.0


class Ref:
    """Values in f64 and the bound of each."""

    def __init__(self, value, err=0.0):
        self.value = np.asarray(value, np.float64)
        self.err = np.broadcast_to(np.asarray(err, np.float64), self.value.shape)

    @property
    def shape(self):
        return self.value.shape


def pointwise(function, *operands, cancelled=None):
    """function applied to f64 arrays that broadcast; the bound by moving one operand at a time. `cancelled` is
    the magnitude of terms that cancel inside the function, where that is more than the result's."""
    values = [o.value for o in operands]
    with np.errstate(all="ignore"):
        out = np.asarray(function(*values), np.float64)
        err = POINTWISE_ULPS * EPS32 * (np.abs(out) if cancelled is None else cancelled(*values))
        for i, operand in enumerate(operands):
            if not operand.err.any():
                continue
            for sign in (-1.0, 1.0):
                moved = list(values)
                moved[i] = values[i] + sign * operand.err
                err = err + np.nan_to_num(np.abs(function(*moved) - out))
    return Ref(out, err)


def _linear(apply, operands, length):
    """A sum of `length` products: apply is multilinear in its operands."""
    out = apply(*[o.value for o in operands])
    magnitudes = [np.abs(o.value) for o in operands]
    # Random signs make errors grow with the root of the length; 4 covers blocked and sequential orders.
    err = (4.0 * math.sqrt(length) + 4.0) * EPS32 * apply(*magnitudes)
    for i, operand in enumerate(operands):
        if operand.err.any():
            err = err + apply(*[o.err if j == i else m for j, (o, m) in enumerate(zip(operands, magnitudes))])
    return Ref(out, err)


def matmul(a, b):
    return _linear(np.matmul, [a, b], a.shape[-1])


# --- convolution ------------------------------------------------------------------------------------------
# Layout of the arrays: images N, C, spatial; filters K, C / groups, spatial.


def _windows(spatial, filter_extents, pre, post, stride, dilation):
    """Output extents, and for each filter offset the slices of the padded image that it reads."""
    out = [(x + p + q - d * (f - 1) - 1) // s + 1
           for x, f, p, q, s, d in zip(spatial, filter_extents, pre, post, stride, dilation)]
    taps = []
    for offset in np.ndindex(*filter_extents):
        taps.append((offset, tuple(slice(o * d, o * d + (n - 1) * s + 1, s)
                                   for o, d, n, s in zip(offset, dilation, out, stride))))
    return out, taps


def _padded(x, pre, post):
    return np.pad(x, [(0, 0), (0, 0)] + list(zip(pre, post)))


def _conv(x, w, pre, post, stride, dilation, flip):
    rank = x.ndim - 2
    groups = x.shape[1] // w.shape[1]
    if flip:
        w = np.flip(w, axis=tuple(range(2, 2 + rank)))
    out, taps = _windows(x.shape[2:], w.shape[2:], pre, post, stride, dilation)
    padded = _padded(x, pre, post)
    padded = padded.reshape(x.shape[0], groups, -1, *padded.shape[2:])
    w = w.reshape(groups, -1, *w.shape[1:])
    y = np.zeros((x.shape[0], groups, w.shape[1], *out))
    for offset, window in taps:
        y += np.einsum("ngc...,gkc->ngk...", padded[(..., *window)], w[(..., *offset)], optimize=True)
    return y.reshape(x.shape[0], -1, *out)


def conv_fprop(x, w, pre, post, stride, dilation, flip=False):
    return _linear(lambda a, b: _conv(a, b, pre, post, stride, dilation, flip), [x, w],
                   math.prod(w.shape[1:]))


def conv_dgrad(dy, w, image_shape, pre, post, stride, dilation):
    def apply(dy, w):
        groups = image_shape[1] // w.shape[1]
        out, taps = _windows(image_shape[2:], w.shape[2:], pre, post, stride, dilation)
        dx = _padded(np.zeros(image_shape), pre, post)
        dx = dx.reshape(image_shape[0], groups, -1, *dx.shape[2:])
        grouped_dy = dy.reshape(dy.shape[0], groups, -1, *out)
        grouped_w = w.reshape(groups, -1, *w.shape[1:])
        for offset, window in taps:
            dx[(..., *window)] += np.einsum("ngk...,gkc->ngc...", grouped_dy, grouped_w[(..., *offset)],
                                            optimize=True)
        dx = dx.reshape(image_shape[0], image_shape[1], *dx.shape[3:])
        return dx[(..., *(slice(p, p + n) for p, n in zip(pre, image_shape[2:])))]

    return _linear(apply, [dy, w], w.shape[0] * math.prod(w.shape[2:]))


def conv_wgrad(x, dy, filter_shape, pre, post, stride, dilation):
    def apply(x, dy):
        groups = x.shape[1] // filter_shape[1]
        out, taps = _windows(x.shape[2:], filter_shape[2:], pre, post, stride, dilation)
        padded = _padded(x, pre, post)
        padded = padded.reshape(x.shape[0], groups, -1, *padded.shape[2:])
        grouped_dy = dy.reshape(dy.shape[0], groups, -1, *out)
        spatial = "xyz"[:len(out)]
        dw = np.zeros((groups, filter_shape[0] // groups, *filter_shape[1:]))
        for offset, window in taps:
            dw[(..., *offset)] = np.einsum(f"ngc{spatial},ngk{spatial}->gkc", padded[(..., *window)],
                                           grouped_dy, optimize=True)
        return dw.reshape(filter_shape)

    return _linear(apply, [x, dy], dy.shape[0] * math.prod(dy.shape[2:]))


# --- reductions -------------------------------------------------------------------------------------------


def _exact_pick(function):
    def reduce(x, axes):
        out = function(x.value, axes)
        return Ref(out, np.max(x.err, axis=axes, keepdims=True))
    return reduce


def _sum(x, axes, scale=1.0):
    length = math.prod(x.shape[a] for a in axes)
    total = _linear(lambda v: np.sum(v, axis=axes, keepdims=True), [x], length)
    return Ref(total.value * scale, total.err * scale + EPS32 * np.abs(total.value * scale))


def _absolute(x):
    return Ref(np.abs(x.value), x.err)


def _product(x, axes):
    out = np.prod(x.value, axis=axes, keepdims=True)
    with np.errstate(all="ignore"):
        relative = np.sum(np.nan_to_num(x.err / np.abs(x.value)) + EPS32, axis=axes, keepdims=True)
    return Ref(out, 2.0 * relative * np.abs(out))


def _average(x, axes):
    return _sum(x, axes, 1.0 / math.prod(x.shape[a] for a in axes))


def _norm2(x, axes):
    return pointwise(np.sqrt, _sum(pointwise(np.square, x), axes))


REDUCTIONS = {
    "ADD": _sum,
    "MUL": _product,
    "MIN": _exact_pick(lambda v, axes: np.min(v, axis=axes, keepdims=True)),
    "MAX": _exact_pick(lambda v, axes: np.max(v, axis=axes, keepdims=True)),
    "AMAX": _exact_pick(lambda v, axes: np.max(np.abs(v), axis=axes, keepdims=True)),
    "AVG": _average,
    "NORM1": lambda x, axes: _sum(_absolute(x), axes),
    "NORM2": _norm2,
    "MUL_NO_ZEROS": lambda x, axes: _product(Ref(np.where(x.value == 0, 1.0, x.value), x.err), axes),
}

# For functions that are commonly computed as 1 + erf(x), 1 + tanh(x) and the like: what they add up.
CANCELLED = {
    "gelu": np.abs,
    "gelu_approx_tanh": np.abs,
    "gelu_backward": lambda dy, x: np.abs(dy) * (1.0 + np.abs(x)),
    "gelu_approx_tanh_backward": lambda dy, x: np.abs(dy) * (1.0 + np.abs(x)),
    "tanh_backward": lambda dy, x: np.abs(dy),
}

# --- pointwise functions, by cudnn-frontend's method name -------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])
_FLT_MAX = float(np.finfo(np.float32).max)
_GELU_C = math.sqrt(2.0 / math.pi)


def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def _phi(x):
    return 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


def _tanh_gelu(x):
    return 0.5 * x * (1.0 + np.tanh(_GELU_C * (x + 0.044715 * x**3)))


def _tanh_gelu_slope(x):
    t = np.tanh(_GELU_C * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * _GELU_C * (1.0 + 3 * 0.044715 * x * x)


def relu(x, negative_slope=0.0, lower_clip=0.0, upper_clip=_FLT_MAX):
    low = lower_clip + negative_slope * (x - lower_clip)
    return np.where(x <= lower_clip, low, np.minimum(x, upper_clip))


def relu_slope(x, negative_slope=0.0, lower_clip=0.0, upper_clip=_FLT_MAX):
    return np.where(x <= lower_clip, negative_slope, np.where(x >= upper_clip, 0.0, 1.0))


def swish(x, swish_beta=1.0):
    return x * _sigmoid(swish_beta * x)


def _swish_slope(x, beta=1.0):
    s = _sigmoid(beta * x)
    return s + beta * x * s * (1.0 - s)


def _truth(function):
    return lambda *operands: function(*operands).astype(np.float64)


POINTWISE = {
    # one operand
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "gelu": lambda x: x * _phi(x),
    "gelu_approx_tanh": _tanh_gelu,
    "identity": lambda x: x,
    "leaky_relu": lambda x, negative_slope: np.where(x > 0, x, negative_slope * x),
    "log": np.log,
    "logical_not": _truth(lambda x: x == 0),
    "neg": np.negative,
    "reciprocal": lambda x: 1.0 / x,
    "relu": relu,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "sqrt": np.sqrt,
    "swish": swish,
    "tan": np.tan,
    "tanh": np.tanh,
    # two operands
    "add": np.add,
    "add_square": lambda a, b: a + b * b,
    "bias": np.add,
    "cmp_eq": _truth(np.equal),
    "cmp_ge": _truth(np.greater_equal),
    "cmp_gt": _truth(np.greater),
    "cmp_le": _truth(np.less_equal),
    "cmp_lt": _truth(np.less),
    "cmp_neq": _truth(np.not_equal),
    "div": np.divide,
    "logical_and": _truth(lambda a, b: (a != 0) & (b != 0)),
    "logical_or": _truth(lambda a, b: (a != 0) | (b != 0)),
    "max": np.maximum,
    "min": np.minimum,
    "mod": np.fmod,
    "mul": np.multiply,
    "pow": np.power,
    "scale": np.multiply,
    "sub": np.subtract,
    # gradients: the loss first
    "elu_backward": lambda dy, x: dy * np.where(x > 0, 1.0, np.exp(x)),
    "gelu_approx_tanh_backward": lambda dy, x: dy * _tanh_gelu_slope(x),
    "gelu_backward": lambda dy, x: dy * (_phi(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)),
    "leaky_relu_backward": lambda dy, x, negative_slope: dy * np.where(x > 0, 1.0, negative_slope),
    "relu_backward": lambda dy, x, **clips: dy * relu_slope(x, **clips),
    "sigmoid_backward": lambda dy, x: dy * _sigmoid(x) * (1.0 - _sigmoid(x)),
    "softplus_backward": lambda dy, x: dy * _sigmoid(x),
    "swish_backward": lambda dy, x, swish_beta=1.0: dy * _swish_slope(x, swish_beta),
    "tanh_backward": lambda dy, x: dy * (1.0 - np.tanh(x)**2),
    # three operands: condition last
    "binary_select": lambda a, b, t: np.where(t != 0, a, b),
}
