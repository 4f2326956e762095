#!/usr/bin/env python3
"""Writes the table of environment variables from ir/base/env.def.

    tools/gen_env_doc.py           rewrites docs/environment.md
    tools/gen_env_doc.py --check   says so where it is out of date; exit status 1
"""

import pathlib
import re
import sys

_STRING = r'"((?:[^"\\]|\\.)*)"'
_ROW = re.compile(r"^KILN_ENV\(\s*(\w+)\s*,\s*" +
                  r"\s*,\s*".join([_STRING, _STRING, r"(\w+)\(([^()]*)\)", _STRING]) + r"\s*\)", re.M)

HEADER = """# Environment

Every variable that Kiln reads, from `ir/base/env.def` (`tools/gen_env_doc.py` writes this page). An unknown
`KILN_*` name has no effect, and for an illegal value the default counts; both are warnings, with the nearest
right name or the legal values, in the log (`KILN_LOG=warn`) and from the tool.

Units of sizes are powers of 1024: `512`, `512MB`, `1.5 GiB`. In a process that has more rights than whoever
started it (setuid, setgid or file capabilities) none of the variables counts, nor does any other that names
code or files (`HOME`, `XDG_CACHE_HOME`, `PYTHONPATH`, `CUDNN_LOGDEST_DBG`): kernels are kept in memory only.

At `KILN_LOG=info` the first call of a process is a line with the library's file, the version that it says and
`KILN_DEVICE`, and each device that a handle opens is another: where neither is seen, it is not Kiln that is called.

"""

FOOTER = """
## Refusals

Where no log is asked for, the first refusal of each kind (function, status and reason, whatever its numbers) is a
warning on stderr, at most 8 of a function and 64 of a process; `KILN_LOG=error` is without them.

## cuDNN's log of calls

`CUDNN_LOGLEVEL_DBG=3` (calls; `2` warnings, `1` errors) with `CUDNN_LOGDEST_DBG=stdout`, `stderr` or a file works as
in cuDNN, and so do version 8's `CUDNN_LOGINFO_DBG=1`, `CUDNN_LOGWARN_DBG=1` and `CUDNN_LOGERR_DBG=1`, and
`cudnnSetCallback`. A call is written with its arguments before it runs, in the form of 9.19:

```
I! CuDNN (v92801) function cudnnSetTensorNdDescriptor() called:
i!     tensorDesc: type=cudnnTensorDescriptor_t; val=0x7fcd75e00fc0;
i!     dataType: type=cudnnDataType_t; val=CUDNN_DATA_HALF (2);
i!     nbDims: type=int; val=4;
i!     dimA: type=int; val=[2,3,4,5];
i!     strideA: type=int; val=[60,20,5,1];
i! Time: 2026-11-27T19:27:40.898850 (0d+0h+0m+0s since start)
i! Process=18138; Thread=18138.
```

Every argument of every function has its line, under the name that the headers give it: numbers and enumerations by
value, arrays of a known length and the elements of backend attributes (`[0]: type=int64_t; val=2;`) in full, factors
by the type of their tensor, memory of the device and places for results by address. Objects are named by their
address, and those that a call reads have what they hold below them; a call that makes one has a second message,
`function cudnnCreateTensorDescriptor() made:`, with the new one's address. So calls can be made again from a log; what
device memory held is not in it. Pointers are read as a debugger would, so that one that leads nowhere is printed as
an address, and the call fails as it does without the log. A failed call has a message `E! … function …() returned
STATUS: …` with the reason. With `cudnnSetCallback` the text is the same, without `I! CuDNN (v92801) `, `i! `, time and
thread, which are in the `cudnnDebug_t`.
"""


def parse_rows(text):
    """The (variable, default, legal, meaning) of every row of env.def; legal is a list of values or a range."""
    return [(variable, default, _legal(kind, argument), meaning)
            for _, variable, default, kind, argument, meaning in (m.groups() for m in _ROW.finditer(text))]


def _legal(kind, argument):
    """Markdown for what the kind of a row allows."""
    if kind == "Choice":
        return ", ".join(f"`{value}`" for value in argument.strip('"').split("|"))
    if kind == "Count":
        least, most = (part.strip() for part in argument.split(","))
        return f"{least} to {most}"
    if kind == "Minor":
        major, least, most = (part.strip() for part in argument.split(","))
        return f"{major}.{least} to {major}.{most}"
    if kind == "Size":
        return f"{argument.strip(chr(34))}, or with a unit; -1"
    if kind == "Text" and not argument:
        return ""
    raise ValueError(f"env.def: {kind}({argument}) is no kind of variable")


def table(rows):
    """The rows as a Markdown table."""
    def cell(text):
        return text.replace("\\\"", '"').replace("|", "\\|")

    def code(text):
        return f"`{cell(text)}`" if text else ""

    lines = ["| variable | default | values | meaning |", "|---|---|---|---|"]
    for variable, default, legal, meaning in rows:
        lines.append(f"| `{variable}` | {code(default)} | {legal} | {cell(meaning)} |")
    return "\n".join(lines) + "\n"


def expected_files(root):
    """{path: text it should have} for the generated page."""
    return {root / "docs/environment.md": HEADER + table(parse_rows((root / "ir/base/env.def").read_text())) + FOOTER}


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent
    stale = [path for path, text in expected_files(root).items()
             if not path.exists() or path.read_text() != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(root)} is out of date: run tools/gen_env_doc.py")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(expected_files(root)[path])
        print(f"wrote {path.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
