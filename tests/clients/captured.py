"""What the library wrote of a client's graphs (KILN_CAPTURE), and what the frontend writes of them (its JSON), run again
by `kiln run`, which checks each output against the interpreter. Run by frontend_test.sh:

    python captured.py --cudnn LIBCUDNN --cudart LIBCUDART --kiln KILN
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import preload

_parser = argparse.ArgumentParser()
_parser.add_argument("--cudnn", required=True)
_parser.add_argument("--cudart", required=True)
_parser.add_argument("--kiln", required=True, help="from the repository's root")
_arguments = _parser.parse_args()
_captured = pathlib.Path(tempfile.mkdtemp())
os.environ["KILN_CAPTURE"] = str(_captured)
preload.load(_arguments.cudart, _arguments.cudnn)

import cudnn  # noqa: E402

from builder import Builder  # noqa: E402
from cases import CASES  # noqa: E402
from memory import HostMemory  # noqa: E402

_KILN = pathlib.Path(os.path.abspath(__file__)).parents[2] / _arguments.kiln
# The kinds of 9.22 and later, and one of those before.
_KINDS = ("rope", "grouped_", "transpose", "slice", "reshape", "conv_scale_bias_relu", "sdpa_unified", "sdpa_cumulated",
          "sdpa_log2", "sdpa_ragged_of", "sdpa_fp8_unified")
# Kinds of which the frontend's text has no extents, or not all operands.
_NO_JSON = ("sdpa", "attention", "_groups", "_one_group")


def _is_wanted(name):
    ends = name.endswith(("_fp16", "_e4m3")) or "_groups" in name or "one_group" in name
    return ends and (name.startswith(_KINDS) or "group" in name)


def _again(file):
    """None, or what `kiln run` says."""
    done = subprocess.run([_KILN, "run", "--device", "cpu", "--repeats", "1", file], capture_output=True, text=True)
    outputs = [line for line in done.stdout.splitlines() if line.startswith("check")]
    if done.returncode == 0 and outputs and all(": right" in line for line in outputs):
        return None
    return done.stdout + done.stderr


def main():
    handle = cudnn.create_handle()
    failed, count = [], {"captured": 0, "JSON": 0}
    seen = set()
    for name in filter(_is_wanted, CASES):
        b = CASES[name](lambda **options: Builder(handle, HostMemory(), **options))
        b.run()
        files = [("captured", file) for file in sorted(_captured.iterdir()) if file not in seen]
        seen |= {file for _, file in files}
        if not any(part in name for part in _NO_JSON):
            text = repr(getattr(b.graph, "_lowered_graph", b.graph))
            file = pathlib.Path(tempfile.mkdtemp()) / f"{name}.json"
            file.write_text(text)
            files.append(("JSON", file))
        for kind, file in files:
            count[kind] += 1
            wrong = _again(file)
            if wrong:
                failed.append(f"{name}, {kind}: {wrong}")
    cudnn.destroy_handle(handle)
    print("\n".join(failed))
    print(f"{count['captured']} captured graphs and {count['JSON']} of JSON, {len(failed)} failed")
    # The first of two cases with one graph has it. Fewer would mean that the kinds have other names by now.
    return int(bool(failed) or count["captured"] < 60 or count["JSON"] < 12)


if __name__ == "__main__":
    sys.exit(main())
