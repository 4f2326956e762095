"""Chains that a library runs as one kernel: a convolution or a product whose result one operation alone reads, which
adds a bias, a residual, or an activation; and so on behind it. A batch norm of inference becomes part of the bias.
"""
import math

import torch

from problems import Convolution, Unread, dtype_of, make, matrices, product

# Operations that give the same elements with other extents.
VIEWS = {f"aten::{name}" for name in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "detach",
                                      "expand_as")}
NORMS = {"aten::native_batch_norm", "aten::_native_batch_norm_legit_no_training", "aten::_native_batch_norm_legit"}
ACTIVATIONS = {"relu": "relu", "silu": "silu", "sigmoid": "sigmoid", "tanh": "tanh", "hardswish": "hardswish"}


def first_tensor(results):
    return results[0] if isinstance(results, (tuple, list)) else results


def activation_of(event):
    """The chain's word for an activation, or None."""
    name = event.name.removeprefix("aten::").rstrip("_")
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    if name == "gelu":
        return "gelu_tanh" if event.kwargs.get("approximate") == "tanh" else "gelu"
    if name == "hardtanh" and tuple(event.args[1:3]) == (0.0, 6.0):
        return "relu6"
    if name == "leaky_relu":
        return f"leaky_relu:{event.args[1]:g}" if len(event.args) > 1 else "leaky_relu:0.01"
    return None


class Chains:
    """What find_chains found: indices of events that are part of a chain, and by the index of its first event a
    function that makes its problem."""

    def __init__(self):
        self.swallowed, self.problems = set(), {}


def readers_of(events):
    """By identity of a tensor, the indices of the events that read it, in order."""
    readers = {}
    for index, event in enumerate(events):
        for argument in event.args:
            for tensor in argument if isinstance(argument, (list, tuple)) else [argument]:
                if isinstance(tensor, torch.Tensor):
                    readers.setdefault(id(tensor), []).append(index)
    return readers


class Walk:
    """Follows the one reader of each result."""

    def __init__(self, events, readers, taken):
        self.events, self.readers, self.taken = events, readers, taken

    def next(self, tensor, index):
        """The index of the only event behind `index` that reads the tensor, or None."""
        later = [i for i in self.readers.get(id(tensor), []) if i > index]
        if not later or later[0] in self.taken or self.events[later[0]].is_backward:
            return None
        writes_in_place = first_tensor(self.events[later[0]].results) is tensor
        return later[0] if writes_in_place or len(later) == 1 else None

    def link(self, tensor, index, extents, channel):
        """(word, event) of the next operation that a chain may have; None where it ends."""
        at = self.next(tensor, index)
        if at is None:
            return None
        event = self.events[at]
        if event.name in VIEWS:
            return "", at
        if event.name in NORMS:
            return "bias", at
        word = activation_of(event)
        if word:
            return word, at
        name = event.name.removeprefix("aten::").rstrip("_")
        if name in ("add", "mul") and len(event.args) >= 2 and isinstance(event.args[1], torch.Tensor):
            other = event.args[1] if event.args[0] is tensor else event.args[0]
            if not isinstance(other, torch.Tensor) or other is tensor:
                return None
            if other.numel() == math.prod(extents):
                return name, at
            if name == "add" and other.numel() == extents[channel]:
                return "bias", at
        return None


def follow(walk, index, extents, channel):
    """Words and indices of the chain behind an event."""
    words, indices, at = [], [], index
    tensor = first_tensor(walk.events[index].results)
    while True:
        found = walk.link(tensor, at, extents, channel)
        if found is None:
            break
        word, at = found
        tensor = first_tensor(walk.events[at].results)
        indices.append(at)
        words.append(word)
    while words and not words[-1]:  # views at the end are no part of it
        words.pop(), indices.pop()
    return [word for word in words if word], indices


def joined(words):
    """Two summands of a channel are one."""
    kept = []
    for word in words:
        if word != "bias" or not kept or kept[-1] != "bias":
            kept.append(word)
    return ",".join(kept)


def convolution_problem(event, chain):
    x, w, _, stride, padding, dilation, transposed, output_padding = event.args[:8]
    conv = Convolution(x, w, stride, padding, dilation, transposed, output_padding)
    return make("conv_fused", conv.dtype, "nhwc" if conv.nhwc else "row", (("x", conv.x), ("w", conv.w)), chain=chain,
                **conv.geometry)


def scaled_problem(event, chain):
    a, b = matrices(*event.args[:2])
    return product(a, b, kind="matmul_fused", dtype=dtype_of(a), chain=chain)


def find_chains(events, trains):
    """In training only the bias of a linear layer is joined: everything else is kept for the backward pass."""
    chains, readers = Chains(), readers_of(events)
    walk = Walk(events, readers, chains.swallowed)
    for index in reversed(range(len(events))):
        event = events[index]
        if event.is_backward:
            continue
        if event.name == "aten::convolution" and not trains and not event.args[6]:
            words, indices = follow(walk, index, event.results.shape, 1)
            chain = joined((["bias"] if event.args[2] is not None else []) + words)
            build = convolution_problem
        elif event.name in ("aten::mm", "aten::addmm"):
            words, indices = ([], []) if trains else follow(walk, index, event.results.shape, -1)
            chain = joined((["bias"] if event.name == "aten::addmm" else []) + words)
            first = 1 if event.name == "aten::addmm" else 0
            build = lambda e, c, first=first: product(e.args[first], e.args[first + 1], kind="matmul_fused", chain=c)
        elif event.name == "aten::_scaled_mm":
            words, indices = follow(walk, index, event.results.shape, -1)
            chain, build = joined(["descale"] + words), scaled_problem
        else:
            continue
        if chain:
            chains.swallowed.update(indices)
            chains.problems[index] = lambda e=event, c=chain, build=build: build(e, c)
    return chains
