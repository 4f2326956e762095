"""A thousand attention graphs as cudnn-frontend spells them (drawn_attention.py), on Kiln's CPU device against the
reference in f64: none refused, none wrong. Run by frontend_test.sh:

    python attention_drawn.py --cudnn LIBCUDNN --cudart LIBCUDART [--graphs N] [--first SEED] [--half 0|1]

Bazel divides the seeds by shards, and halves of them among frontends. What fails is made small, and printed as its options and as Kiln text.
"""

import argparse
import collections
import os
import pathlib
import sys
import tempfile

import preload

_parser = argparse.ArgumentParser()
_parser.add_argument("--cudnn", required=True)
_parser.add_argument("--cudart", required=True)
_parser.add_argument("--graphs", type=int, default=1000)
_parser.add_argument("--first", type=int, default=1)
_parser.add_argument("--half", type=int, choices=(0, 1), help="of each 16 seeds only the first or the second 8")
_parser.add_argument("--failures", type=int, default=5, help="are shown in full")
_arguments = _parser.parse_args()
_captured = pathlib.Path(tempfile.mkdtemp())
os.environ["KILN_CAPTURE"] = str(_captured)
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's; small products in many threads only wait for each other
preload.load(_arguments.cudart, _arguments.cudnn)

import cudnn  # noqa: E402

import drawn_attention  # noqa: E402
from builder import Mismatch  # noqa: E402


def _failure(handle, drawn):
    """None, or (kind, sentence)."""
    try:
        drawn_attention.run(handle, drawn)
    except Mismatch as wrong:
        return "wrong", str(wrong)
    except Exception as refused:  # the frontend has several
        return "refused", str(refused)
    return None


def _text_of(handle, drawn):
    """The graph as the library saw it last."""
    for file in _captured.iterdir():
        file.unlink()
    _failure(handle, drawn)
    return "\n".join(file.read_text() for file in _captured.iterdir())


def _report(handle, drawn, failure):
    small = drawn_attention.shrink(drawn, lambda d: (_failure(handle, d) or ("",))[0] == failure[0])
    again = _failure(handle, small)
    print(f"{failure[0]}: {drawn}\n  {failure[1]}\nmade small: {small}\n  {again and again[1]}\n"
          f"{_text_of(handle, small)}", flush=True)


def main():
    shard, shards = (int(os.environ.get(name, default)) for name, default in (("TEST_SHARD_INDEX", 0),
                                                                              ("TEST_TOTAL_SHARDS", 1)))
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        pathlib.Path(os.environ["TEST_SHARD_STATUS_FILE"]).touch()
    handle = cudnn.create_handle()
    ran, failed, used = 0, [], collections.Counter()
    for seed in range(_arguments.first + shard, _arguments.first + _arguments.graphs, shards):
        if _arguments.half not in (None, seed // 8 % 2):
            continue
        drawn = drawn_attention.draw(seed)
        failure = _failure(handle, drawn)
        ran += 1
        used.update(["backward" if drawn.backward else "forward", drawn.io.name, *drawn.options["drawn"]])
        if failure is None:
            continue
        failed.append(drawn)
        if len(failed) <= _arguments.failures:
            _report(handle, drawn, failure)
        else:
            print(f"{failure[0]}: {drawn}\n  {failure[1]}", flush=True)
    print(f"{ran} graphs, {len(failed)} failed; " + ", ".join(f"{name} {n}" for name, n in sorted(used.items())))
    cudnn.destroy_handle(handle)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
