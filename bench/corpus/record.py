"""What a network asks of a library, as the operations that PyTorch dispatches on meta tensors: shapes and strides, no
data. trace.py runs networks under a Tracer, and problems.py reads its events.
"""
import contextlib

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode


class Event:
    """One operation: its name, its operands and its results, as PyTorch passed them."""

    def __init__(self, name, args, kwargs, results, is_backward, trains):
        self.name, self.args, self.kwargs, self.results = name, args, kwargs, results
        self.is_backward, self.trains = is_backward, trains


def is_channels_last(tensor):
    if tensor.dim() == 5:
        return tensor.is_contiguous(memory_format=torch.channels_last_3d) and not tensor.is_contiguous()
    return tensor.dim() == 4 and tensor.is_contiguous(
        memory_format=torch.channels_last) and not tensor.is_contiguous()


def convolution_is_channels_last(x, w):
    """As PyTorch decides it for cuDNN: one of both suffices."""
    return is_channels_last(x) or is_channels_last(w)


class Tracer(TorchDispatchMode):
    """Keeps an Event of each operation. Tensors stay alive, so that their identity says who reads whose result."""

    def __init__(self, trains):
        super().__init__()
        self.events = []
        self.trains = trains
        self.hidden = 0  # > 0 inside of a module that is an event itself
        self.is_backward = False

    def add(self, name, args, results, kwargs=None):
        self.events.append(Event(name, args, kwargs or {}, results, self.is_backward, self.trains))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name == "aten::convolution" and convolution_is_channels_last(args[0], args[1]):
            # The meta kernel answers as a CPU would; on a device the layout is kept.
            is_3d = results.dim() == 5
            results = torch.empty_like(results).to(
                memory_format=torch.channels_last_3d if is_3d else torch.channels_last)
        if not self.hidden:
            self.add(name, args, results, kwargs)
        return results


class _Attention(torch.autograd.Function):
    """Attention as one operation in either direction, whatever PyTorch would choose on this device."""

    @staticmethod
    def forward(ctx, tracer, q, k, v, mask, causal, scale):
        ctx.tracer, ctx.causal, ctx.scale = tracer, causal, scale
        ctx.save_for_backward(q, k, v, *([] if mask is None else [mask]))
        batch, heads, rows, _ = q.shape
        # As fused kernels write it: heads inside of places.
        o = torch.empty(batch, rows, heads, v.shape[-1], dtype=q.dtype, device=q.device).transpose(1, 2)
        tracer.add("corpus::attention", (q, k, v, mask, causal, scale), o)
        return o

    @staticmethod
    def backward(ctx, grad):
        q, k, v, *mask = ctx.saved_tensors
        ctx.tracer.add("corpus::attention_backward", (q, k, v, mask[0] if mask else None, ctx.causal, ctx.scale), grad)
        return None, torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None, None, None


def _attention_for(tracer, original):
    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if query.dim() != 4 or query.device.type != "meta":
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        return _Attention.apply(tracer, query, key, value, attn_mask, is_causal, scale)

    return attention


class _RmsBackward(torch.autograd.Function):
    """Nothing, but for the event when a gradient comes by."""

    @staticmethod
    def forward(ctx, tracer, x, y):
        ctx.tracer = tracer
        ctx.save_for_backward(x)
        return y.view_as(y)

    @staticmethod
    def backward(ctx, grad):
        ctx.tracer.add("corpus::rms_norm_backward", ctx.saved_tensors, grad)
        return None, None, grad


def _hook_rms_norms(tracer, model):
    """RMS norms are spelled by each library in its own way: a module of that name is one event."""

    def before(module, args):
        tracer.hidden += 1

    def after(module, args, result):
        tracer.hidden -= 1
        tracer.add("corpus::rms_norm", (args[0],), result)
        return _RmsBackward.apply(tracer, args[0], result) if result.requires_grad else result

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            yield module.register_forward_pre_hook(before)
            yield module.register_forward_hook(after)


@contextlib.contextmanager
def tracing(model, trains):
    """A Tracer at work on `model`, with attention and RMS norms as operations."""
    tracer, original = Tracer(trains), F.scaled_dot_product_attention
    hooks = list(_hook_rms_norms(tracer, model))
    F.scaled_dot_product_attention = _attention_for(tracer, original)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with tracer:
            yield tracer
    finally:
        F.scaled_dot_product_attention = original
        for hook in hooks:
            hook.remove()


def floats_of(output):
    """All floating-point tensors of what a network returned."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        return [t for part in output.values() for t in floats_of(part)]
    if isinstance(output, (list, tuple)):
        return [t for part in output for t in floats_of(part)]
    return []


def record(model, args, kwargs, trains):
    """The events of one step: forward, and backward where the network trains."""
    model.train(trains)
    with tracing(model, trains) as tracer:
        with torch.set_grad_enabled(trains):
            output = model(*args, **kwargs)
        if trains:
            losses = [t for t in floats_of(output) if t.requires_grad]
            tracer.is_backward = True
            torch.autograd.backward(losses, [torch.empty_like(t) for t in losses])
    return tracer.events
