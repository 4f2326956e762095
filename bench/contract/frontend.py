#!/usr/bin/env python3
"""Matrix products and convolutions of a library through cudnn-frontend, beside PyTorch's (cuBLAS, its own cuDNN).

    python bench/contract/frontend.py --cudnn lib/libcudnn.so.9 --out contract_frontend.json --commit H --date D

Needs torch with CUDA and nvidia-cudnn-frontend. The two alternate in one process, the L2 is flushed before each by
reading 256 MB, times are medians. Results are compared with PyTorch's before they are timed: the relative error of
an f16 result stands beside its time.
"""

import argparse
import ctypes
import json
import os

import torch

torch.cuda.init()
import cudnn  # noqa: E402

MATMULS = [(4096, 4096, 4096), (8192, 8192, 8192), (512, 3072, 768)]
# images, channels, height and width, filters, filter size, stride
CONVOLUTIONS = [(32, 256, 56, 256, 3, 1), (32, 64, 56, 64, 3, 1), (32, 512, 28, 512, 3, 2), (32, 256, 14, 1024, 1, 1)]
HALF, FLOAT = cudnn.data_type.HALF, cudnn.data_type.FLOAT


class Library:
    def __init__(self, path):
        # NOTE: the frontend looks functions up at their first call; nothing has been called yet.
        self._library = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        cudnn._pybind_module._set_dlhandle_cudnn(self._library._handle)
        self.handle = cudnn.create_handle()
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)

    def plan(self, x, w, y, operation):
        """A function that runs operation(graph, x, w) into y."""
        graph = cudnn.pygraph(handle=self.handle, io_data_type=HALF, intermediate_data_type=FLOAT, compute_data_type=FLOAT)
        tensors = [graph.tensor_like(x), graph.tensor_like(w)]
        result = operation(graph, *tensors)
        result.set_output(True).set_data_type(HALF)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(max(graph.get_workspace_size(), 1), device="cuda", dtype=torch.uint8)
        pack = {tensors[0]: x, tensors[1]: w, result: y}
        return lambda: graph.execute(pack, workspace, handle=self.handle)


def median_us(functions, repeats):
    """The median time of each function; they take turns."""
    flush = torch.ones(64 << 20, device="cuda")
    times = [[] for _ in functions]
    for turn in range(-3, repeats):
        for function, own in zip(functions, times):
            flush.sum()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function()
            end.record()
            torch.cuda.synchronize()
            if turn >= 0:
                own.append(begin.elapsed_time(end) * 1e3)
    return [sorted(own)[len(own) // 2] for own in times]


def measure(name, flops, run, y, reference, repeats):
    y.fill_(float("nan"))
    run()
    expected = reference().double()
    error = ((y.double() - expected).norm() / expected.norm()).item()
    ours, torch_us = median_us([run, reference], repeats)
    row = {"name": name, "flops": flops, "relative_error": error, "kiln_us": ours, "torch_us": torch_us}
    print(f"{name:28} error {error:.1e}   kiln {ours:8.1f} us {flops / ours * 1e-6:5.0f} TFLOP/s   "
          f"torch {torch_us:8.1f} us {flops / torch_us * 1e-6:5.0f} TFLOP/s", flush=True)
    if not error < 2e-3:
        raise SystemExit(f"{name}: the result is wrong")
    return row


def matmul_rows(library, repeats):
    for m, n, k in MATMULS:
        a = torch.randn(1, m, k, device="cuda", dtype=torch.half)
        b = torch.randn(1, n, k, device="cuda", dtype=torch.half).transpose(1, 2)
        y = torch.empty(1, m, n, device="cuda", dtype=torch.half)
        run = library.plan(a, b, y, lambda graph, x, w: graph.matmul(A=x, B=w))
        yield measure(f"matmul {m}x{n}x{k}", 2.0 * m * n * k, run, y, lambda: torch.matmul(a, b), repeats)


def convolution_rows(library, repeats):
    for n, c, size, k, r, stride in CONVOLUTIONS:
        x = torch.randn(n, c, size, size, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
        w = (torch.randn(k, c, r, r, device="cuda") * 0.05).half().to(memory_format=torch.channels_last)
        reference = lambda: torch.nn.functional.conv2d(x, w, padding=r // 2, stride=stride)  # noqa: E731
        y = torch.empty_like(reference())
        run = library.plan(x, w, y, lambda graph, image, weight: graph.conv_fprop(
            image=image, weight=weight, padding=[r // 2] * 2, stride=[stride] * 2, dilation=[1, 1]))
        name = f"conv {n}x{c}x{size}x{size} k{k} {r}x{r}/{stride}"
        yield measure(name, 2.0 * y.numel() * c * r * r, run, y, reference, repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cudnn", required=True)
    parser.add_argument("--out")
    parser.add_argument("--commit", default="")
    parser.add_argument("--date", default="")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    library = Library(options.cudnn)
    rows = [*matmul_rows(library, options.repeats), *convolution_rows(library, options.repeats)]
    if options.out:
        result = {"benchmark": "contract_frontend", "commit": options.commit, "date": options.date,
                  "device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
        with open(options.out, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
