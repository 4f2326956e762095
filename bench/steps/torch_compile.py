#!/usr/bin/env python3
"""torch.compile's times for the graphs of bench/bandwidth that it can be asked for, by the same names.

    bench/steps/torch_compile.py --out torch_compile.json [--commit HASH] [--filter batch_norm] [--repeats 20]

bench/report/report.py sets them beside those of bench/bandwidth, run on the same machine. A graph is one compiled function; a gradient
is what autograd runs for one, timed alone. As there, 268 MB are read before each launch, so that the L2 cache holds nothing.
"""

import argparse
import datetime
import json
import re
import statistics

import torch
from torch.nn import functional

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i8": torch.int8}


def tensor(dims, dtype, layout=""):
    if dtype == torch.int8:
        return torch.randint(-100, 100, dims, dtype=dtype, device="cuda")
    made = torch.randn(dims, dtype=torch.float32, device="cuda").to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if layout == "nhwc" else made


def norm_rows(kind, rows, columns, dtype):
    x, weight, bias = tensor((rows, columns), dtype), tensor((columns,), dtype), tensor((columns,), dtype)
    if kind == "layer_norm":
        return lambda x, w, b: functional.layer_norm(x, (columns,), w, b), [x, weight, bias]
    if kind == "rms_norm":
        return lambda x, w: functional.rms_norm(x, (columns,), w, 1e-5), [x, weight]
    return lambda x: torch.softmax(x, 1), [x]


def batch_norm(n, c, h, w, layout, dtype):
    mean, variance = torch.zeros(c, device="cuda"), torch.ones(c, device="cuda")
    weight, bias = tensor((c,), torch.float32), tensor((c,), torch.float32)
    return (lambda x, w, b: functional.batch_norm(x, mean, variance, w, b, True, 0.1, 1e-5),
            [tensor((n, c, h, w), dtype, layout), weight, bias])


def pool(kind, window, layout, dtype):
    x, pad = tensor((256, 64, 112, 112), dtype, layout), window // 2 if window == 3 else 0
    if kind == "max":
        return lambda x: functional.max_pool2d(x, window, 2, pad, return_indices=True), [x]
    return lambda x: functional.avg_pool2d(x, window, 2, pad), [x]


def affine(images, layout, dtype):
    operands = [tensor((images, 64, 56, 56), dtype, layout), tensor((1, 64, 1, 1), dtype), tensor((1, 64, 1, 1), dtype)]
    return lambda x, s, b: torch.relu(x.float() * s.float() + b.float()).to(dtype), operands


def dropout_chain(random):
    x, b, r = tensor((16384, 4096), torch.bfloat16), tensor((1, 4096), torch.bfloat16), tensor((16384, 4096), torch.bfloat16)
    if random:
        return lambda x, b, r: functional.dropout(functional.gelu(x + b), 0.1) + r, [x, b, r]
    keep = torch.rand(16384, 4096, device="cuda") < 0.9
    return lambda x, b, keep, r: functional.gelu(x + b) * keep * 1.1111111 + r, [x, b, keep, r]


NORMS = {
    "layer_norm": ["16384x4096", "16384x16384", "65536x1024", "1024x12288"],
    "rms_norm": ["16384x4096", "16384x16384", "8192x8192", "4096x16384", "8192x5120", "65536x1024", "131072x128", "8192x4096",
                 "4096x6144", "4096x8192", "4096x2048", "2048x4096", "16384x128", "8192x128"],
    "softmax": ["16384x4096", "16384x8192", "16384x16384", "65536x1024"],
}


def images_and_rows():
    """Norms, softmax and pooling, in 16 bits."""
    f16, bf16 = torch.float16, torch.bfloat16
    found = {}
    for kind, shapes in NORMS.items():
        for shape in shapes:
            rows, columns = map(int, shape.split("x"))
            for grad in ("", "_grad"):
                found[f"{kind}{grad}_{shape}", "bf16"] = lambda k=kind, r=rows, c=columns: norm_rows(k, r, c, bf16)
    for dims in ((256, 64, 112, 112), (256, 256, 56, 56), (256, 1024, 14, 14), (32, 256, 56, 56)):
        for layout in ("nhwc", "nchw"):
            for grad in ("", "_grad"):
                name = f"batch_norm{grad}_{'x'.join(map(str, dims))}_{layout}"
                found[name, "f16"] = lambda d=dims, l=layout: batch_norm(*d, l, f16)
    for layout in ("nhwc", "nchw"):
        for kind in ("max", "avg"):
            for window in (2, 3):
                for grad in ("", "_grad"):
                    name = f"{kind}_pool_{window}x{window}{grad}_{layout}"
                    found[name, "f16"] = lambda k=kind, w=window, l=layout: pool(k, w, l, f16)
        found[f"avg_pool_7x7_{layout}", "f16"] = lambda l=layout: (
            lambda x: functional.avg_pool2d(x, 7, 1), [tensor((1024, 2048, 7, 7), f16, l)])
    return found


def reductions(name, dtype, half):
    """Those of one type; sums leave as f32, as in bench/bandwidth."""
    wide, rows = torch.float32, 65536 // half
    kinds = {"add": lambda x, d: x.sum(d, keepdim=True, dtype=wide), "max": lambda x, d: x.amax(d, keepdim=True)}
    axes = {"row": 1, "column": 0}
    found = {}
    for kind, reduce in kinds.items():
        for axis, dim in axes.items():
            found[f"reduce_{kind}_{axis}", name] = lambda r=reduce, d=dim: (lambda x: r(x, d), [tensor((rows, 4096), dtype)])
    found["reduce_add_full", name] = lambda: (lambda x: x.sum(dtype=wide), [tensor((rows, 4096), dtype)])
    found["reduce_amax_full", name] = lambda: (lambda x: x.abs().amax().float(), [tensor((rows, 4096), dtype)])
    found["reduce_add_middle", name] = lambda: (
        lambda x: x.sum(1, keepdim=True, dtype=wide), [tensor((2048 // half, 512, 256), dtype)])
    found["reduce_add_channel", name] = lambda: (
        lambda x: x.sum((0, 2, 3), keepdim=True, dtype=wide), [tensor((1344 // half, 64, 56, 56), dtype, "nhwc")])
    return found


def by_type(name):
    """What bench/bandwidth times in each floating type; f32 has half the rows."""
    dtype, half = TYPES[name], 2 if name == "f32" else 1
    rows, images = 262144 // half, 1344 // half
    nhwc = torch.channels_last
    plain = torch.contiguous_format
    found = {
        "add": lambda: (lambda a, b: a + b, [tensor((rows, 1024), dtype), tensor((rows, 1024), dtype)]),
        "relu": lambda: (torch.relu, [tensor((rows, 1024), dtype)]),
        "scale_bias_relu": lambda: affine(images, "nhwc", dtype),
        "scale_bias_relu_nchw": lambda: affine(images, "", dtype),
        "bias_gelu": lambda: (lambda x, b: functional.gelu(x + b), [tensor((65536 // half, 4096), dtype), tensor((1, 4096), dtype)]),
        "cast_to_f32": lambda: (lambda x: x.to(torch.float32, copy=True), [tensor((rows, 1024), dtype)]),
        "cast_to_bf16": lambda: (lambda x: x.to(torch.bfloat16, copy=True), [tensor((rows, 1024), dtype)]),
        "nhwc_to_nchw": lambda: (
            lambda x: x.contiguous(memory_format=plain), [tensor((images, 256, 28, 28), dtype, "nhwc")]),
        "nchw_to_nhwc": lambda: (lambda x: x.contiguous(memory_format=nhwc), [tensor((images, 256, 28, 28), dtype)]),
    }
    return {(row, name): make for row, make in found.items()} | reductions(name, dtype, half)


def problems():
    """name, type -> (function, operands), made when asked for. The names are those of bench/bandwidth/list.cc."""
    found = images_and_rows()
    for name in ("f16", "bf16", "f32"):
        found |= by_type(name)
    for name in ("f16", "f32", "i8"):
        found["transpose_16384x8192", name] = lambda t=name: (lambda x: x.t().contiguous(), [tensor((16384, 8192), TYPES[t])])
    found["bias_gelu_dropout_add", "bf16"] = lambda: dropout_chain(False)
    found["bias_gelu_rng_add", "bf16"] = lambda: dropout_chain(True)
    dims = (256, 256, 56, 56)
    found["add_relu_nhwc", "f16"] = lambda: (
        lambda x, r: torch.relu(x + r), [tensor(dims, torch.float16, "nhwc"), tensor(dims, torch.float16, "nhwc")])
    return found


def launcher(name, function, operands):
    """What is timed: the compiled function, or the backward pass of one call of it."""
    compiled = torch.compile(function)
    if "_grad" not in name:
        with torch.no_grad():
            compiled(*operands)

        def forward():
            with torch.no_grad():
                compiled(*operands)
        return forward
    for operand in operands:
        operand.requires_grad_(True)
    result = compiled(*operands)
    result = result[0] if isinstance(result, tuple) else result
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, operands, gradient, retain_graph=True)


def timed(launch, repeats):
    flush = torch.ones(1 << 26, device="cuda")
    times = []
    for i in range(-3, repeats):
        flush.sum()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        if i >= 0:
            times.append(begin.elapsed_time(end) * 1e3)
    low, median, high = statistics.quantiles(times, n=4)
    return {"median_us": round(median, 3), "q25_us": round(low, 3), "q75_us": round(high, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--filter", default="", help="a regular expression on NAME/TYPE")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    rows = []
    for (name, dtype), make in problems().items():
        if not re.search(arguments.filter, f"{name}/{dtype}"):
            continue
        row = {"name": name, "dtype": dtype, "torch": None, "torch_error": ""}
        try:
            row["torch"] = timed(launcher(name, *make()), max(arguments.repeats, 3))
        except Exception as error:  # a graph that it cannot do is a row with the reason
            row["torch_error"] = str(error).split("\n")[0]
        print(f"{name:40} {dtype:5} {row['torch']['median_us'] if row['torch'] else row['torch_error']}", flush=True)
        rows.append(row)
        torch.cuda.empty_cache()
        torch.compiler.reset()
    result = {"benchmark": "torch_compile", "commit": arguments.commit, "date": datetime.date.today().isoformat(),
              "device": torch.cuda.get_device_name(), "torch_version": torch.__version__, "rows": rows}
    with open(arguments.out, "w") as out:
        json.dump(result, out, indent=1)


if __name__ == "__main__":
    main()
