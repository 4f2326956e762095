#!/usr/bin/env python3
"""Writes what README.md, docs/tour.md and docs/scope.md have between their marks.

    tools/gen_readme.py [--kiln PATH]           rewrites it; PATH is build/quickstart/bin/kiln by default
    tools/gen_readme.py [--kiln PATH] --check   says which parts are out of date; exit status 1 if any is

docs/tour.md is what the tool prints for examples/graphs/scale_bias_relu.kiln, and the program beside it; README.md has
the graph and the kernel function of it. docs/scope.md has the tables of functions and descriptors. The measurements of
README.md are bench/report/report.py's.
"""

import argparse
import csv
import os
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRAPH = "examples/graphs/scale_bias_relu.kiln"
PROGRAM = "examples/scale_bias_relu.c"
COLUMNS = 120


def fence(language, text):
    return f"```{language}\n{text.strip()}\n```\n"


def dump(kiln, *arguments):
    """What `kiln dump` prints, whatever the KILN_* variables of this shell are."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
    return subprocess.run([kiln, "dump", GRAPH, *arguments], cwd=ROOT, env=environment, check=True,
                          capture_output=True, text=True).stdout


def graph_text():
    return fence("", (ROOT / GRAPH).read_text())


def kernel_page(kiln):
    """The graph and its kernel function, without the prelude above it."""
    cuda = dump(kiln)
    function = cuda[cuda.index('extern "C"'):]
    return "\n".join([
        f"A graph, as text ([{GRAPH}]({GRAPH})):\n",
        graph_text(),
        "The kernel that NVRTC gets for it. `half_t`, `copy` and `fast_div` stand above it in the same file:\n",
        fence("cuda", function),
    ])


def worked_page(kiln):
    program = (ROOT / PROGRAM).read_text()
    calls = re.search(r"/\* tour: begin \*/\n(.*)/\* tour: end \*/", program, re.S).group(1)
    return "\n".join([
        f"## The graph\n\nIts text ([{GRAPH}](../{GRAPH})):\n",
        graph_text(),
        "## After `partition`\n\nPointwise modes are scalar primitives, and the graph is one group, which becomes one kernel."
        " Names are by role and\noperation, so that equal structures have equal texts and share a kernel:\n",
        fence("", dump(kiln, "--what", "after:partition")),
        "## After `schedule`\n\nTile IR: blocks, threads and vectors are chosen; extents and strides are arguments:\n",
        fence("", dump(kiln, "--what", "tile")),
        "## The CUDA\n\nThe text that NVRTC gets. It includes nothing, and compiles with plain nvcc:\n",
        fence("cuda", dump(kiln)),
        f"## The API calls\n\nThe part of [{PROGRAM}](../{PROGRAM}) that makes the graph and runs it; `Tensor`,"
        " `Pointwise` and\n`MAKE` create a descriptor, set its attributes and finalise it:\n",
        fence("c", calls),
    ])


def wrapped(text):
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def rows(name):
    with open(ROOT / "api/spec" / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def functions():
    """How much of each header is exported, and the names of what is not."""
    families = {}
    for row in rows("functions.tsv"):
        header = row["header_9"] or row["header_8"]
        family = re.sub(r"^cudnn_(\w+?)(_infer|_train)?\.h$", r"\1", header).replace("backend", "graph")
        families.setdefault(family, []).append(row)
    lines = ["| family | functions in 8.9 and 9.28 | exported by Kiln |", "|---|---|---|"]
    for family, members in sorted(families.items()):
        exported = sum(row["implemented"] == "y" for row in members)
        lines.append(f"| `cudnn_{family}` | {len(members)} | {exported} |")
    missing = sorted(row["function"] for row in rows("functions.tsv") if row["implemented"] != "y")
    if missing:
        lines += ["", wrapped("Not exported: " + ", ".join(f"`{name}`" for name in missing) + ".")]
    return "\n".join(lines) + "\n"


def descriptors():
    """The kinds of backend descriptors that can be created, of those that 9.28 declares."""
    declared = {row[0] for row in csv.reader(open(ROOT / "api/spec/enums.tsv", encoding="utf-8"), delimiter="\t")
                for row in [[cell for cell in row if re.fullmatch(r"CUDNN_BACKEND_\w+_DESCRIPTOR", cell)]] if row}
    made = set()
    for header in sorted((ROOT / "api/backend").glob("*.h")):
        made |= set(re.findall(r"\w*Of<(CUDNN_BACKEND_\w+_DESCRIPTOR)>", header.read_text()))

    def listed(kinds):
        return ", ".join(f"`{kind[len('CUDNN_BACKEND_'):-len('_DESCRIPTOR')]}`" for kind in sorted(kinds))
    missing = f" Not yet: {listed(declared - made)}." if declared - made else ""
    return wrapped(f"Backend descriptors, {len(made)} of {len(made | declared)} kinds: {listed(made)}.{missing}") + "\n"


def generated(kiln):
    """{page: {marker: text}} of every part."""
    return {
        "README.md": {"kernel": kernel_page(kiln)},
        "docs/tour.md": {"worked": worked_page(kiln)},
        "docs/scope.md": {"functions": functions(), "descriptors": descriptors()},
    }


def with_part(name, page, marker, text):
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        sys.exit(f"{name}: needs one {begin} and one {end} after it")
    head, rest = page.split(begin)
    return f"{head}{begin}\n{text}{end}{rest.split(end)[1]}"


def main():
    parser = argparse.ArgumentParser(description="Writes the generated parts of README.md, docs/tour.md and docs/scope.md.")
    parser.add_argument("--kiln", type=pathlib.Path, default=ROOT / "build/quickstart/bin/kiln")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    stale = []
    for name, parts in generated(arguments.kiln.absolute()).items():
        path = ROOT / name
        page = path.read_text()
        for marker, text in parts.items():
            changed = with_part(name, page, marker, text)
            if changed != page:
                stale.append((name, marker))
            page = changed
        if not arguments.check:
            path.write_text(page)
    if not arguments.check:
        return 0
    for name, marker in stale:
        print(f"{name}: the part '{marker}' is out of date: run tools/quickstart.sh, which builds the tool, and then"
              " tools/gen_readme.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
