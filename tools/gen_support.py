#!/usr/bin/env python3
"""Writes docs/support.md: operation x data type x layout x device, "tested" only where a test ran.

    tools/gen_support.py                          rewrites the page from bench/results/tested.json
    tools/gen_support.py --check                  exit status 1 where the page is out of date
    tools/gen_support.py --ran cpu LOG            notes what a log of numerics_cpu_test says was right;
    tools/gen_support.py --ran h200 LOG           of numerics_gpu_test on an H200
"""

import datetime
import json
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTED = "bench/results/tested.json"
PAGE = "docs/support.md"
DEVICES = {"cpu": "the CPU", "h200": "an H200"}
DTYPES = ["f32", "f16", "bf16", "f64", "e4m3", "e5m2", "e8m0", "e2m1", "i8", "u8", "i4", "u4", "i32", "u32", "i64",
          "c64", "c128", "bool"]
_OK = re.compile(r"^\[       OK \] (\w+)\.(\w+)", re.M)
_STATEMENT = re.compile(r"(\w+)\((.*?)\)\s*->\s*(.*)$")
_TENSOR = re.compile(r"(%?\w+):(\w+)(?:\[[^\]]*\])?(@[\w.+*]+)?")

HEADER = """# What is tested

Operation by data type of the first operand. Each letter is a layout of which a case of `tests/cases` was right against
the f64 oracle, through the C interface: **p** dense and row-major, **n** channels innermost, **s** any other order of
dims, or gaps; a **bool** in memory is cuDNN's BOOLEAN, of one bit. A capital was right on an H200 as well, others on
the CPU device alone, a letter in parentheses on an H200 alone. An operation and type without a letter has no case of
its own; it is compiled by the same engines, and `tests/numerics/random_graphs_test.cc` runs the whole operation table
in all types and layouts. Written by `tools/gen_support.py` from logs of tests that ran (`bench/results/tested.json`:
their names, and when):

"""


def layout_of(text):
    if not text or text == "@row":
        return "p"
    return "n" if text == "@nhwc" else "s"


def cases(root):
    """(test's name, [(operation, data type, layout)]) of every case that must be right."""
    for path in sorted((root / "tests/cases").glob("*.txt")):
        if path.stem.startswith("bench_") or path.stem == "nvidia_differs":
            continue
        section = ""
        for line in path.read_text().splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line.strip("[]")
            elif line and not line.startswith("#") and ":" in line and "expect=" not in line:
                name, text = line.split(":", 1)
                yield f"{path.stem}_{section}.{name}", list(operations(text))


def operations(text):
    types = {}
    for statement in text.split(";"):
        for name, dtype, layout in _TENSOR.findall(statement):
            types.setdefault(name, (dtype, layout_of(layout)))
        match = _STATEMENT.search(statement)
        if not match:
            continue
        operation, operands, results = match.groups()
        named = [re.match(r"%?\w+", t.strip()) for t in re.split(r",(?![^\[]*\])", operands) + results.split()]
        first = next((types[n.group()] for n in named if n and n.group() in types), None)
        if first:
            yield operation, *first


def read(root):
    """What was noted: {device: {"date", "right": names of tests}}."""
    path = root / TESTED
    return json.loads(path.read_text()) if path.exists() else {}


def page(root):
    tested = read(root)
    found = {}
    for name, uses in cases(root):
        for operation, dtype, layout in uses:
            for device in DEVICES:
                if name in tested.get(device, {}).get("right", ()):
                    found.setdefault(operation, {}).setdefault(dtype, {}).setdefault(layout, set()).add(device)
    runs = [f"* on {DEVICES[d]}: {len(t['right'])} tests were right, {t['date']}" for d, t in sorted(tested.items())]
    columns = [d for d in DTYPES if any(d in by_type for by_type in found.values())]
    lines = ["| operation | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for operation in sorted(found):
        cells = []
        for dtype in columns:
            by_layout = found[operation].get(dtype, {})
            cells.append(" ".join(letter(x, by_layout[x]) for x in "pns" if x in by_layout))
        lines.append(f"| `{operation}` | " + " | ".join(cells) + " |")
    return HEADER + "\n".join(runs) + "\n\n" + "\n".join(lines) + "\n"


def letter(layout, devices):
    if devices == {"h200"}:
        return f"({layout})"
    return layout.upper() if "h200" in devices else layout


def main(arguments):
    if arguments[:1] == ["--ran"]:
        device, log = arguments[1:3]
        date = datetime.datetime.fromtimestamp(os.path.getmtime(log)).strftime("%Y-%m-%d %H:%M")
        right = sorted({f"{suite}.{case}" for suite, case in _OK.findall(pathlib.Path(log).read_text())})
        tested = {**read(ROOT), device: {"date": date, "right": right}}
        (ROOT / TESTED).write_text(json.dumps(tested, indent=1, sort_keys=True) + "\n")
    text = page(ROOT)
    if arguments[:1] == ["--check"]:
        if (ROOT / PAGE).read_text() == text:
            return 0
        print("docs/support.md is out of date: tools/gen_support.py")
        return 1
    (ROOT / PAGE).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
