#!/usr/bin/env python3
"""Unmodified PyTorch with Kiln's libcudnn.so.9 in front: attention and ResNet-50's convolutions.

    python3 tests/pytorch/train.py PATH/libcudnn.so.9

Needs a CUDA build of PyTorch, a C compiler and nm. Builds, in a temporary folder, a library of the
functions that libtorch_cuda asks for and Kiln does not export; each of them names itself and aborts.
Then starts itself again with both preloaded, so that no call can reach NVIDIA's library.

    attention   scaled_dot_product_attention with the cuDNN backend, forward and backward, against
                the same in float64 on the CPU, no further off than 1.5 times PyTorch's own kernel and
                half a unit of the type
    resnet50    every distinct convolution of a training step, with its input, filter and gradient:
                output and both gradients against float64 without cuDNN, in float32, TF32 and
                bfloat16 and both memory formats

The last line is "N passed, N failed"; what cannot run has failed.
"""
import os
import subprocess
import sys

import in_front


def start_in_front(library):
    environment = dict(in_front.environment(library), SECOND_START="1")
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


def resnet50(torch):
    """ResNet-50 v1.5, batch normalisation outside of cuDNN."""
    nn = torch.nn

    class Norm(nn.BatchNorm2d):
        def forward(self, x):
            with torch.backends.cudnn.flags(enabled=False):
                return super().forward(x)

    class Block(nn.Module):
        def __init__(self, channels, width, stride):
            super().__init__()
            layers = [(channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
            self.convs = nn.ModuleList(
                nn.Conv2d(c, k, size, step, size // 2, bias=False) for c, k, size, step in layers)
            self.norms = nn.ModuleList(Norm(k) for _, k, _, _ in layers)
            self.down = None
            if stride != 1 or channels != 4 * width:
                self.down = nn.Sequential(
                    nn.Conv2d(channels, 4 * width, 1, stride, bias=False), Norm(4 * width))

        def forward(self, x):
            y = x
            for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
                y = norm(conv(y))
                y = torch.relu(y) if i < 2 else y
            return torch.relu(y + (x if self.down is None else self.down(x)))

    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), Norm(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels, blocks = 64, []
    for stage, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for i in range(count):
            blocks.append(Block(channels, width, 2 if i == 0 and stage > 0 else 1))
            channels = 4 * width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*stem, *blocks, *head)


def farthest(got, want):
    """Relative to the largest element."""
    difference = (got.double().cpu() - want.double().cpu()).abs().max().item()
    return difference / max(want.double().abs().max().item(), 1e-30)


def check_attention(torch, dtype, heads, length, size, causal):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(length + size)
    inputs = [torch.randn(2, heads, length, size, device="cuda", dtype=dtype) for _ in range(3)]
    gradient = torch.randn(2, heads, length, size, device="cuda", dtype=dtype)

    def run(tensors, backend, dy):
        tensors = [t.detach().clone().requires_grad_() for t in tensors]
        with sdpa_kernel(backend):
            y = attention(*tensors, is_causal=causal)
            y.backward(dy)
        return [y.detach()] + [t.grad for t in tensors]

    want = run([t.double().cpu() for t in inputs], SDPBackend.MATH, gradient.double().cpu())
    ours = run(inputs, SDPBackend.CUDNN_ATTENTION, gradient)
    own = run(inputs, SDPBackend.FLASH_ATTENTION, gradient)
    errors = []
    for name, a, b, w in zip(("y", "dq", "dk", "dv"), ours, own, want):
        mine, theirs = farthest(a, w), farthest(b, w)
        errors.append(f"{name} {mine:.1e} ({theirs:.1e})")
        # Results are rounded to the type, and rest on weights and gradients of scores that are.
        if not mine <= 1.5 * theirs + torch.finfo(dtype).eps / 2:
            raise AssertionError(f"{name} is off by {mine:.2e}, PyTorch's own kernel by {theirs:.2e}")
    return ", ".join(errors)


def convolutions(torch):
    """[(input, weight, gradient of the output, stride, padding)] of ResNet-50's distinct convolutions, in
    float64, as a training step sees them; made without cuDNN."""
    torch.manual_seed(1)
    model = resnet50(torch).cuda().double()
    seen = {}

    def forward(module, inputs, output):
        key = (tuple(inputs[0].shape), tuple(module.weight.shape), module.stride)
        if key not in seen:
            seen[key] = [inputs[0].detach(), module.weight.detach(), None, module.stride, module.padding]
            output.register_hook(lambda gradient, row=seen[key]: row.__setitem__(2, gradient.detach()))

    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(forward)
    images = torch.randn(8, 3, 224, 224, device="cuda", dtype=torch.float64)
    with torch.backends.cudnn.flags(enabled=False):
        loss = torch.nn.functional.cross_entropy(model(images), torch.randint(0, 1000, (8,), device="cuda"))
        loss.backward()
    return list(seen.values())


def convolve(torch, x, w, dy, stride, padding):
    x, w = x.requires_grad_(), w.requires_grad_()
    y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)
    y.backward(dy)
    return y.detach(), x.grad, w.grad


# Errors allowed, in units of the largest element: operands are rounded to 24, 11 and 8 bits, results of AMP to 8.
ALLOWED = {"float32": 2e-5, "tf32": 4e-3, "bfloat16": 2e-2}


def check_resnet(torch, rows, mode, channels_last):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    dtype = torch.bfloat16 if mode == "bfloat16" else torch.float32
    worst = (0, "")
    for x, w, dy, stride, padding in rows:
        # Gradients of a whole step are tiny: brought to size, that bf16 may keep them.
        cast = [t.to(dtype).to(memory_format=layout) for t in (x, w, dy / dy.abs().max())]
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=mode == "tf32"):
            got = convolve(torch, *[t.detach() for t in cast], stride, padding)
        with torch.backends.cudnn.flags(enabled=False):
            want = convolve(torch, *[t.double() for t in cast], stride, padding)
        for name, a, b in zip(("y", "dx", "dw"), got, want):
            error = ((a.double() - b).abs().max() / b.abs().max()).item()
            worst = max(worst, (error, f"{name} of {tuple(x.shape)} by {tuple(w.shape)}, stride {stride}"))
            if not error <= ALLOWED[mode]:
                raise AssertionError(f"{worst[1]} is off by {error:.2e} of its largest element")
    return f"{len(rows)} convolutions, worst {worst[0]:.1e}, {worst[1]}"


def main():
    import torch

    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    print("libraries: " + " ".join(in_front.loaded_cudnn()))
    checks = []
    # The last two have more heads than the gradients' kernel takes at one time.
    for dtype, heads, length, size, causal in ((torch.bfloat16, 4, 256, 64, False), (torch.bfloat16, 4, 256, 64, True),
                                               (torch.float16, 3, 333, 128, True), (torch.float16, 2, 64, 32, False),
                                               (torch.bfloat16, 160, 512, 64, False), (torch.float16, 160, 500, 128, True)):
        checks.append((f"attention {dtype} {heads}x{length}x{size} causal={causal}",
                       lambda a=(dtype, heads, length, size, causal): check_attention(torch, *a)))
    rows = convolutions(torch)
    for mode in ALLOWED:
        for last in (False, True):
            checks.append((f"resnet50 {mode} channels_last={last}",
                           lambda a=(mode, last): check_resnet(torch, rows, *a)))
    failed = 0
    for name, check in checks:
        try:
            print(f"ok      {name}: {check()}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {name}: {str(error)[:600]}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if "SECOND_START" not in os.environ:
        start_in_front(sys.argv[1])
    sys.exit(main())
