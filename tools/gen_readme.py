#!/usr/bin/env python3
"""Writes the generated parts of README.md: the worked page and the support tables.

    tools/gen_readme.py [--kiln PATH]           rewrites them; PATH is build/quickstart/bin/kiln by default
    tools/gen_readme.py [--kiln PATH] --check   says which are out of date; exit status 1 if any is

The worked page is what the tool prints for examples/graphs/scale_bias_relu.kiln, and the program beside it.
The table of environment variables is tools/gen_env_doc.py's, the measurements are bench/report.py's.
"""

import argparse
import csv
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRAPH = "examples/graphs/scale_bias_relu.kiln"
PROGRAM = "examples/scale_bias_relu.c"


def fence(language, text):
    return f"```{language}\n{text.strip()}\n```\n"


def dump(kiln, *arguments):
    """What `kiln dump` prints, whatever the KILN_* variables of this shell are."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
    return subprocess.run([kiln, "dump", GRAPH, *arguments], cwd=ROOT, env=environment, check=True,
                          capture_output=True, text=True).stdout


def worked_page(kiln):
    program = (ROOT / PROGRAM).read_text()
    calls = re.search(r"/\* README: begin \*/\n(.*)/\* README: end \*/", program, re.S).group(1)
    return "\n".join([
        f"A graph, as text ([{GRAPH}]({GRAPH})):\n",
        fence("", (ROOT / GRAPH).read_text()),
        "After `partition`: pointwise modes have become scalar primitives, and the graph one group, which is one\n"
        "kernel. Names are by role and operation, so that equal structures have equal texts and share a kernel:\n",
        fence("", dump(kiln, "--what", "after:partition")),
        "After `schedule`: tile IR. Blocks, threads and vectors are chosen; extents and strides are arguments:\n",
        fence("", dump(kiln, "--what", "tile")),
        "The CUDA that NVRTC gets. It includes nothing, and compiles with plain nvcc:\n",
        fence("cuda", dump(kiln)),
        f"The API calls that make it ([{PROGRAM}]({PROGRAM}); `Tensor`, `Pointwise` and `MAKE` create a descriptor,\n"
        "set its attributes and finalise it):\n",
        fence("c", calls),
    ])


def rows(name):
    with open(ROOT / "api/spec" / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def functions():
    """How much of each header is exported, and the names."""
    families = {}
    for row in rows("functions.tsv"):
        header = row["header_9"] or row["header_8"]
        family = re.sub(r"^cudnn_(\w+?)(_infer|_train)?\.h$", r"\1", header).replace("backend", "graph")
        families.setdefault(family, []).append(row)
    lines = ["| family | functions in 8.9 and 9.28 | exported by Kiln |", "|---|---|---|"]
    for family, members in sorted(families.items()):
        exported = sum(row["implemented"] == "y" for row in members)
        lines.append(f"| `cudnn_{family}` | {len(members)} | {exported} |")
    names = sorted(row["function"] for row in rows("functions.tsv") if row["implemented"] == "y")
    return "\n".join(lines) + "\n\nExported: " + ", ".join(f"`{name}`" for name in names) + ".\n"


def descriptors():
    """The kinds of backend descriptors that can be created, of those that 9.28 declares."""
    declared = {row[0] for row in csv.reader(open(ROOT / "api/spec/enums.tsv", encoding="utf-8"), delimiter="\t")
                for row in [[cell for cell in row if re.fullmatch(r"CUDNN_BACKEND_\w+_DESCRIPTOR", cell)]] if row}
    made = set()
    for header in sorted((ROOT / "api/backend").glob("*.h")):
        made |= set(re.findall(r"\w*Of<(CUDNN_BACKEND_\w+_DESCRIPTOR)>", header.read_text()))

    def listed(kinds):
        return ", ".join(f"`{kind[len('CUDNN_BACKEND_'):-len('_DESCRIPTOR')]}`" for kind in sorted(kinds))
    missing = f"\n\nNot yet: {listed(declared - made)}." if declared - made else ""
    return f"Backend descriptors, {len(made)} of {len(made | declared)} kinds: {listed(made)}.{missing}\n"


def generated(kiln):
    """{marker: text} of every part."""
    return {"worked": worked_page(kiln), "functions": functions(), "descriptors": descriptors()}


def with_part(page, marker, text):
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        sys.exit(f"README.md: needs one {begin} and one {end} after it")
    head, rest = page.split(begin)
    return f"{head}{begin}\n{text}{end}{rest.split(end)[1]}"


def main():
    parser = argparse.ArgumentParser(description="Writes the generated parts of README.md.")
    parser.add_argument("--kiln", type=pathlib.Path, default=ROOT / "build/quickstart/bin/kiln")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    page = readme.read_text()
    stale = []
    for marker, text in generated(arguments.kiln.absolute()).items():
        changed = with_part(page, marker, text)
        if changed != page:
            stale.append(marker)
        page = changed
    if arguments.check:
        for marker in stale:
            print(f"README.md: the part '{marker}' is out of date: run tools/quickstart.sh, which builds the tool,"
                  " and then tools/gen_readme.py")
        return 1 if stale else 0
    readme.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
