"""Norms by the frontend's nodes, forward and backward, with their reference in f64."""

import cudnn
import numpy as np

from builder import channels_last, packed
from reference import Ref

_T = cudnn.data_type
_PHASE = cudnn.norm_forward_phase
_EPSILON = 1e-3


def _near(value):
    """What steps in f32 may be off by: sums of some hundred terms, of the size of the largest result."""
    value = np.asarray(value, np.float64)
    return Ref(value, 2e-5 * (np.abs(value) + np.abs(value).max(initial=0)))


class Norm:
    """One problem: statistics over `axes`; `rms` has no mean; weights of extents `weights`."""

    def __init__(self, b, name, x, axes, weights, strides=packed, rms=False, bias=True, stored=None):
        self.b, self.name, self.axes, self.rms, self.strides = b, name, axes, rms, strides
        stored = stored or b.io
        self.x = b.input(x, strides=strides, low=-1.0, high=2.0)
        self.scale = b.input(weights, data_type=stored, strides=strides, low=0.5, high=1.5)
        self.bias = b.input(weights, data_type=stored, strides=strides) if bias else None
        self.weight_axes = tuple(a for a, extent in enumerate(weights) if extent == 1)
        value = self.x.ref.value
        self.mean = 0.0 if rms else value.mean(axes, keepdims=True)
        self.variance = ((value - self.mean) ** 2).mean(axes, keepdims=True)
        self.inverse = 1 / np.sqrt(self.variance + _EPSILON)
        self.normal = (value - self.mean) * self.inverse

    def epsilon(self):
        return self.b.scalar(_EPSILON, len(self.x.ref.shape)).tensor

    def expected(self):
        y = self.normal * self.scale.ref.value
        return _near(y if self.bias is None else y + self.bias.ref.value)

    def forward(self, training):
        b = self.b
        options = {} if self.bias is None else {"bias": self.bias.tensor}
        results = getattr(b.graph, self.name)(
            norm_forward_phase=_PHASE.TRAINING if training else _PHASE.INFERENCE, input=self.x.tensor,
            scale=self.scale.tensor, epsilon=self.epsilon(), **options)
        b.output(b.node(results[0], self.expected()), strides=self.strides)
        if training:
            statistics = [self.inverse] if self.rms else [self.mean, self.inverse]
            for tensor, value in zip([r for r in results[1:] if r is not None], statistics):
                b.output(b.node(tensor, _near(value)), data_type=_T.FLOAT)

    def backward(self, **options):
        b = self.b
        dy = b.input(self.x.ref.shape, strides=self.strides)
        shape = self.inverse.shape
        inverse = b.input(shape, data_type=_T.FLOAT, values=self.inverse)
        if not self.rms:
            options["mean"] = b.input(shape, data_type=_T.FLOAT, values=self.mean).tensor
        results = getattr(b.graph, self.name + "_backward")(
            grad=dy.tensor, input=self.x.tensor, scale=self.scale.tensor, inv_variance=inverse.tensor, **options)
        weighted = dy.ref.value * self.scale.ref.value
        average = 0.0 if self.rms else weighted.mean(self.axes, keepdims=True)
        along = (weighted * self.normal).mean(self.axes, keepdims=True)
        b.output(b.node(results[0], _near(self.inverse * (weighted - average - self.normal * along))),
                 strides=self.strides)
        sums = [(dy.ref.value * self.normal), dy.ref.value]
        for tensor, terms in zip([r for r in results[1:] if r is not None], sums):
            b.output(b.node(tensor, _near(terms.sum(self.weight_axes, keepdims=True))), data_type=_T.FLOAT)


def _batch_training(b):
    """Running statistics move by the momentum; the variance that is kept is the unbiased one."""
    shape, channels, momentum = (4, 16, 5, 6), (1, 16, 1, 1), 0.25
    norm = Norm(b, "batchnorm", shape, (0, 2, 3), channels, channels_last, stored=_T.FLOAT)
    mean, variance = (b.input(channels, data_type=_T.FLOAT, strides=channels_last, low=low, high=2.0)
                      for low in (-1.0, 0.5))
    results = b.graph.batchnorm(norm.x.tensor, norm.scale.tensor, norm.bias.tensor, mean.tensor, variance.tensor,
                                norm.epsilon(), b.scalar(momentum, 4).tensor)
    b.output(b.node(results[0], norm.expected()), strides=channels_last)
    count = np.prod(shape) / channels[1]
    unbiased = norm.variance * count / (count - 1)
    for tensor, value in zip(results[1:], [norm.mean, norm.inverse,
                                           (1 - momentum) * mean.ref.value + momentum * norm.mean,
                                           (1 - momentum) * variance.ref.value + momentum * unbiased]):
        b.output(b.node(tensor, _near(value)), data_type=_T.FLOAT)


def _batch_inference(b):
    norm = Norm(b, "batchnorm", (4, 16, 5, 6), (0, 2, 3), (1, 16, 1, 1), channels_last, stored=_T.FLOAT)
    mean, inverse = (b.input((1, 16, 1, 1), data_type=_T.FLOAT, strides=channels_last, values=values)
                     for values in (norm.mean, norm.inverse))
    y = b.graph.batchnorm_inference(norm.x.tensor, mean.tensor, inverse.tensor, norm.scale.tensor, norm.bias.tensor)
    b.output(b.node(y, norm.expected()), strides=channels_last)


# Options of Norm by the frontend's name.
_NORMS = {
    "layernorm": {"x": (12, 96, 1, 1), "axes": (1, 2, 3), "weights": (1, 96, 1, 1)},
    "rmsnorm": {"x": (12, 96, 1, 1), "axes": (1, 2, 3), "weights": (1, 96, 1, 1), "rms": True, "bias": False},
    "instancenorm": {"x": (3, 8, 6, 7), "axes": (2, 3), "weights": (1, 8, 1, 1), "strides": channels_last,
                     "stored": _T.FLOAT},
    "adalayernorm": {"x": (5, 7, 32), "axes": (2,), "weights": (5, 1, 32)},
}


def add_cases(for_floats):
    def forward(name, options, training):
        return lambda b: Norm(b, name, **options).forward(training)

    def backward(name, options, arguments):
        return lambda b: Norm(b, name, **options).backward(**arguments)

    for name, options in _NORMS.items():
        for_floats(f"{name}_training", forward(name, options, True))
        for_floats(f"{name}_inference", forward(name, options, False))
        arguments = {"has_dbias": False} if name == "rmsnorm" else {}
        for_floats(f"{name}_backward", backward(name, options, arguments))
    batch = {"x": (4, 16, 5, 6), "axes": (0, 2, 3), "weights": (1, 16, 1, 1), "strides": channels_last,
             "stored": _T.FLOAT}
    for_floats("batchnorm_backward", backward("batchnorm", batch, {}))
    for_floats("batchnorm_training", _batch_training)
    for_floats("batchnorm_inference", _batch_inference)
