"""Rotary position embedding and the gradient of experts' weights, which 1.32's frontend sends as operations of their own:
cases for CASES, and their references in f64."""

import cudnn
import numpy as np

import reference
import versions
from attention import Attention, bshd
from builder import packed
from reference import Ref

_T = cudnn.data_type


def _angles(b, places, width):
    """As rotary embeddings store them, those of both halves: place * base^(-2 i / width)."""
    half = np.arange(places)[:, None] * 100.0 ** (-2.0 * np.arange(width // 2) / width)[None]
    values = np.concatenate([half, half], 1).reshape(places, 1, 1, width)
    return b.input(values.shape, data_type=_T.FLOAT, values=values)


def _turned(x, angles, scale, sign):
    places, depth = x.shape[-2:]
    width = angles.shape[-1]
    theta = Ref(angles.value[:places, 0, 0, :width // 2])
    cos, sin = (reference.pointwise(lambda t, f=f: f(t) * np.float32(scale), theta, cancelled=lambda t: 2 * abs(scale) + 0 * t)
                for f in (np.cos, np.sin))

    def part(begin, end):
        return Ref(x.value[..., begin:end], x.err[..., begin:end])

    rest = depth - width
    low, high = part(rest, rest + width // 2), part(rest + width // 2, depth)
    size = lambda a, c, d, s: np.abs(a * c) + np.abs(d * s)  # the terms may cancel
    parts = [reference.pointwise(lambda v: v * np.float32(scale), part(0, rest)),
             reference.pointwise(lambda a, c, d, s: a * c - sign * d * s, low, cos, high, sin, cancelled=size),
             reference.pointwise(lambda a, c, d, s: a * c + sign * d * s, high, cos, low, sin, cancelled=size)]
    return Ref(*(np.concatenate([getattr(p, what) for p in parts], -1) for what in ("value", "err")))


def _rotated(b, x, angles, backward=False, scale=1.0, layout=packed, **options):
    method = b.graph.rope_backward if backward else b.graph.rope
    tensor = method(x.tensor, angles.tensor, output_scale=scale, **options)
    dims = x.ref.shape
    tensor.set_dim(list(dims)).set_stride(list(layout(dims)))
    node = b.node(tensor, _turned(x.ref, angles.ref, scale, -1 if backward else 1))
    return b.output(node, strides=layout)


def _alone(dims=(2, 3, 17, 24), width=24, places=None, layout=packed, **options):
    def build(b):
        x = b.input(dims, strides=layout)
        if width != dims[3]:
            options["rope_dim"] = width
        _rotated(b, x, _angles(b, places or dims[2], width), layout=layout, **options)

    return build


def _attention(fold=False, **options):
    """Rotated q and k are results of their own, which the gradient wants; `fold` has q's rotation scale the scores."""

    def build(b):
        a = Attention(b, scale=1 if fold else 0.2, **options)
        angles = _angles(b, 50, a.q.ref.shape[3])
        layout = options.get("layout", packed)
        a.q = _rotated(b, a.q, angles, scale=0.2 if fold else 1.0, layout=layout)
        a.k = _rotated(b, a.k, angles, layout=layout)
        a.forward()

    return build


def _grouped_gradient(first, tokens=21, depth=16, columns=24):
    """Of each expert's run of the tokens."""

    def build(b):
        x, dy = b.input((1, tokens, depth)), b.input((1, tokens, columns))
        offsets = b.input((len(first), 1, 1), data_type=_T.INT32, values=np.array(first).reshape(-1, 1, 1))
        tensor = b.graph.moe_grouped_matmul_bwd(dy.tensor, x.tensor, offsets.tensor)
        none = Ref(np.zeros((1, depth, columns)))
        parts = [reference.matmul(Ref(x.ref.value[:, begin:end].swapaxes(1, 2)), Ref(dy.ref.value[:, begin:end]))
                 if begin < end else none for begin, end in zip(first, (*first[1:], tokens))]
        dims = (len(first), depth, columns)
        # Columns of a gradient are contiguous along the depth, as those of its weight are.
        tensor.set_dim(list(dims)).set_stride([depth * columns, 1, depth])
        b.output(b.node(tensor, b.concatenated(parts, 0)), strides=lambda d: (d[1] * d[2], 1, d[1]))

    return build


_ROPE = {
    "rope": _alone(),
    "rope_part": _alone(width=8, scale=0.5),
    "rope_bshd": _alone(layout=bshd, places=40),
    "rope_one_token": _alone(dims=(3, 4, 1, 64), width=64, places=9),
    "rope_backward": _alone(backward=True),
    "rope_backward_part": _alone(width=10, scale=2.0, places=30, backward=True),
    "rope_attention": _attention(right=0),
    "rope_attention_folded": _attention(fold=True, heads=2, layout=bshd),
}


def add_cases(case, for_floats):
    if versions.HAS_ROPE:
        for name, build in _ROPE.items():
            if "attention" in name:
                for suffix, io in {"fp16": _T.HALF, "bf16": _T.BFLOAT16}.items():
                    case(f"{name}_{suffix}", io, build)
            else:
                for_floats(name, build)
    if versions.HAS_GROUPED_GRADIENT:
        for_floats("grouped_gradient", _grouped_gradient((0, 5, 5, 12)))
        for_floats("grouped_gradient_one_token", _grouped_gradient((0, 1), tokens=1))
