#!/usr/bin/env python3
"""Unmodified PyTorch with Kiln's libcudnn.so.9 in front: attention and ResNet-50's convolutions.

    python3 tests/pytorch/train.py PATH/libcudnn.so.9

Needs a CUDA build of PyTorch, a C compiler and nm. Builds, in a temporary folder, a library of the
functions that libtorch_cuda asks for and Kiln does not export; each of them names itself and aborts.
Then starts itself again with both preloaded, so that no call can reach NVIDIA's library.

    attention   scaled_dot_product_attention with the cuDNN backend, forward and backward, against
                the same in float64 on the CPU, no further off than PyTorch's own kernel by 1.5 times
    resnet50    every convolution of a training step (batch normalisation by PyTorch's own kernels),
                gradients of all weights against the step with cuDNN off, float32 with and without
                TF32 and AMP in both memory formats

The last line is "N passed, N failed"; what cannot run has failed.
"""
import os
import subprocess
import sys
import tempfile

STUB = """#include <stdio.h>
#include <stdlib.h>
#define STUB(name) void name(void) { fprintf(stderr, "PyTorch called %s\\n", #name); abort(); }
"""


def exported(path):
    text = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in text.stdout.splitlines() if line.strip()}


def wanted(path):
    text = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True)
    names = {line.split()[-1].split("@")[0] for line in text.stdout.splitlines() if line.strip()}
    return {name for name in names if name.startswith("cudnn")}


def torch_library():
    import importlib.util

    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    return os.path.join(folder, "lib", "libtorch_cuda.so")


def start_in_front(library):
    missing = sorted(wanted(torch_library()) - exported(library))
    with tempfile.TemporaryDirectory() as folder:
        source, stubs = os.path.join(folder, "stubs.c"), os.path.join(folder, "stubs.so")
        with open(source, "w") as file:
            file.write(STUB + "".join(f"STUB({name})\n" for name in missing))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", stubs, source], check=True)
        environment = dict(os.environ, LD_PRELOAD=f"{os.path.abspath(library)}:{stubs}", SECOND_START="1")
        print(f"{len(missing)} functions that Kiln does not export would abort", flush=True)
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
        if not mine <= 1.5 * theirs + 1e-4:
            raise AssertionError(f"{name} is off by {mine:.2e}, PyTorch's own kernel by {theirs:.2e}")
    return ", ".join(errors)


def gradients(torch, model, images, labels, cudnn, amp, dtype):
    model.zero_grad(set_to_none=True)
    with torch.backends.cudnn.flags(enabled=cudnn, allow_tf32=torch.backends.cudnn.allow_tf32):
        with torch.autocast("cuda", dtype=dtype, enabled=amp):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
    return loss.item(), {name: p.grad.detach().clone() for name, p in model.named_parameters()}


def check_resnet(torch, amp, tf32, channels_last):
    torch.manual_seed(1)
    torch.backends.cudnn.allow_tf32 = tf32
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = resnet50(torch).cuda().to(memory_format=layout)
    images = torch.randn(8, 3, 224, 224, device="cuda").to(memory_format=layout)
    labels = torch.randint(0, 1000, (8,), device="cuda")
    exact_loss, exact = gradients(torch, model, images, labels, False, False, torch.float16)
    _, own = gradients(torch, model, images, labels, False, amp, torch.bfloat16)
    loss, got = gradients(torch, model, images, labels, True, amp, torch.bfloat16)

    def off(these):
        """The norm of the difference from the gradients in float32, of the whole step."""
        squares = sum(((these[n] - exact[n]).double() ** 2).sum().item() for n in exact)
        return (squares / sum((exact[n].double() ** 2).sum().item() for n in exact)) ** 0.5

    mine, theirs = off(got), off(own)
    allowed = 1.5 * theirs + (3e-2 if tf32 else 2e-3)
    if not mine <= allowed or abs(loss - exact_loss) > 0.05 * exact_loss:
        raise AssertionError(f"gradients are off by {mine:.2e}, with cuDNN off by {theirs:.2e}; loss {loss}, {exact_loss}")
    return f"gradients {mine:.1e} (cuDNN off {theirs:.1e})"


def main():
    import torch

    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "libcudnn" in line}
    print("libraries: " + " ".join(sorted(libraries)))
    checks = []
    for dtype, heads, length, size, causal in ((torch.bfloat16, 4, 256, 64, False), (torch.bfloat16, 4, 256, 64, True),
                                               (torch.float16, 3, 333, 128, True), (torch.float16, 2, 64, 32, False)):
        checks.append((f"attention {dtype} {heads}x{length}x{size} causal={causal}",
                       lambda a=(dtype, heads, length, size, causal): check_attention(torch, *a)))
    for amp, tf32 in ((False, False), (False, True), (True, True)):
        for last in (False, True):
            checks.append((f"resnet50 amp={amp} tf32={tf32} channels_last={last}",
                           lambda a=(amp, tf32, last): check_resnet(torch, *a)))
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
