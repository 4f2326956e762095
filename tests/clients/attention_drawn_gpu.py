"""Attention graphs of attention_drawn.py at extents that models have, on a GPU and a libcudnn.so.9 named on the
command line, against the reference in f64. A process runs every SHARDS-th seed:

    python attention_drawn_gpu.py --cudnn lib/libcudnn.so.9 [--graphs N] [--first SEED] [--shard I --shards N]
        [--seeds A,B,…] [--shrink N]

Needs torch (with CUDA), numpy and nvidia-cudnn-frontend. What fails is printed with its seed; the first are made small.
"""

import argparse
import ctypes
import os
import sys
import time

_parser = argparse.ArgumentParser()
_parser.add_argument("--cudnn", required=True)
_parser.add_argument("--graphs", type=int, default=400)
_parser.add_argument("--first", type=int, default=1)
_parser.add_argument("--shard", type=int, default=0)
_parser.add_argument("--shards", type=int, default=1)
_parser.add_argument("--seeds", help="these alone")
_parser.add_argument("--seconds", type=float, default=1e9, help="no graph is begun behind")
_parser.add_argument("--shrink", type=int, default=1, help="failures that are made small")
_arguments = _parser.parse_args()
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # f32 is compared with what f32 has

import torch  # noqa: E402

torch.cuda.init()
import cudnn  # noqa: E402

_library = ctypes.CDLL(os.path.abspath(_arguments.cudnn), mode=os.RTLD_NOW | os.RTLD_LOCAL)
cudnn._pybind_module._set_dlhandle_cudnn(_library._handle)

import drawn_attention  # noqa: E402
from builder import Mismatch  # noqa: E402
from memory import TorchMemory  # noqa: E402


def _failure(handle, drawn):
    try:
        drawn_attention.run(handle, drawn, TorchMemory())
    except Mismatch as wrong:
        return "wrong", str(wrong)
    except Exception as refused:  # the frontend has several
        return "refused", " ".join(str(refused).split())[:300]
    return None


def main():
    handle = cudnn.create_handle()
    cudnn.set_stream(handle, torch.cuda.current_stream().cuda_stream)
    seeds = range(_arguments.first + _arguments.shard, _arguments.first + _arguments.graphs, _arguments.shards)
    if _arguments.seeds:
        seeds = [int(seed) for seed in _arguments.seeds.split(",")]
    end, ran, failed = time.monotonic() + _arguments.seconds, 0, 0
    for seed in seeds:
        if time.monotonic() > end:
            break
        drawn = drawn_attention.draw(seed, drawn_attention.REAL)
        failure = _failure(handle, drawn)
        ran += 1
        if failure is None:
            continue
        failed += 1
        print(f"{failure[0]}: {drawn}\n  {failure[1]}", flush=True)
        if failed <= _arguments.shrink:
            small = drawn_attention.shrink(drawn, lambda d: (_failure(handle, d) or ("",))[0] == failure[0], 20)
            print(f"made small: {small}\n  {_failure(handle, small)}", flush=True)
    print(f"{ran} graphs, {failed} failed", flush=True)
    cudnn.destroy_handle(handle)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
