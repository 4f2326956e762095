#!/usr/bin/env python3
"""Writes docs/engines.md: every engine, from the head comment of the file that has its row in the registry.

    tools/gen_engines.py                       builds //tools:engines, rewrites the page
    tools/gen_engines.py --check PROGRAM       exit status 1 where the page is not what the heads and PROGRAM say

A head begins with the engines' names and has a paragraph each for `Takes:`, `How:`, `Wins:` and `Declines:`. Rows, notes
and knobs are what the program prints.
"""

import pathlib
import re
import subprocess
import sys

import wrap_markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/engines.md"
FOLDER = "compiler/engines"
TARGET = "//tools:engines"
LABELS = {"Takes": "Takes", "How": "How it works", "Wins": "Wins", "Declines": "Declines"}
MANY_VALUES = 6

HEADER = """# Engines

An engine is a way to run a group of a graph, usually as one kernel. When a graph is compiled, each group is offered to
every engine; those that take it are ranked by their cost models, or by tuning records ([tuning.md](tuning.md)), and the
first one runs it. `kiln explain GRAPH` says which engine took each group, what the others answered, and which knobs
there are; `--engine NAME` asks for one. [architecture.md](architecture.md) says why it is done this way.

`tools/gen_engines.py` writes this page from the heads of the engines' files, in the order of the registry. The row is
what plans' JSON and kernel caches hold. An engine with the note "down-converts inputs" rounds f32 operands to TF32;
with "nondeterministic" it adds in any order, and is for clients that allow that. A knob's default stands first.

"""


def registry(root):
    """The constants of the engines' rows, in order."""
    text = (root / FOLDER / "registry.cc").read_text()
    return re.findall(r"\bk(\w+)Engine\b", text[text.index("kEngines[] = {"):text.index("};")])


def files(root):
    """{constant: file that defines its row}."""
    found = {}
    for path in sorted((root / FOLDER).rglob("*.cc")):
        for name in re.findall(r"^const Engine k(\w+)Engine\b", path.read_text(), re.M):
            found[name] = path
    return found


def head(text):
    """The comment at the top of a file as paragraphs; indented ones are pictures, with their lines kept."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" ").rstrip())
    paragraphs = []
    for block in "\n".join(lines).split("\n\n"):
        is_picture = block.startswith("  ")
        paragraphs.append(block if is_picture else " ".join(block.split()))
    return [p for p in paragraphs if p]


def faults(name, paragraphs, engines):
    """What a head lacks."""
    if not paragraphs:
        return [f"{name}: has no comment at its top that says what its engines take"]
    found = [f"{name}: its head has no paragraph that begins with '{label}:'"
             for label in LABELS if not any(p.startswith(f"{label}: ") for p in paragraphs)]
    named = paragraphs[0].split(":")[0].split(", ")
    if named != engines:
        found.append(f"{name}: its head begins with {', '.join(named)}, the file has the rows of {', '.join(engines)}")
    return found


def section(name, paragraphs, engines, knobs_text):
    """The part of the page for one file."""
    lines = ["## " + ", ".join(engines), ""]
    for paragraph in paragraphs:
        if paragraph.startswith("  "):
            lines += ["```", *[line.removeprefix("  ") for line in paragraph.splitlines()], "```", ""]
            continue
        if paragraph is paragraphs[0]:
            paragraph = paragraph.split(": ", 1)[1]
        label = paragraph.split(":")[0]
        if label in LABELS:
            paragraph = f"**{LABELS[label]}.** {capital(paragraph.split(': ', 1)[1])}"
        lines += [wrap_markdown.fill(capital(paragraph)), ""]
    lines += [wrap_markdown.fill(f"Knobs: {knobs_text}. Source: [{name}](../{name})."), ""]
    return "\n".join(lines)


def capital(text):
    """A sentence's first letter, where it begins a plain word."""
    return text[0].upper() + text[1:] if re.match(r"(?:a|[a-z]{2,})[ ,]", text) else text


def values(knob):
    name, domain = knob.split("=")
    numbers = domain.split(",")
    if len(numbers) <= MANY_VALUES:
        return f"`{name}` ({', '.join(numbers)})"
    every = sorted(map(int, numbers))
    return f"`{name}` ({numbers[0]}; {len(numbers)} values from {every[0]} to {every[-1]})"


def knobs(members):
    """The knobs of a file's engines; those of later engines where they are others than the first one's."""
    def listed(row):
        return ", ".join(values(knob) for knob in row[4].split(";") if knob) or "none"
    others = [f"of {row[1]} {listed(row)}" for row in members[1:] if row[4] != members[0][4]]
    return "; ".join([listed(members[0]), *others])


def notes(root, numbers):
    """The notes' names, as the header has them, in words."""
    header = (root / "include/v9/cudnn_graph.h").read_text()
    names = {number: name for name, number in re.findall(r"CUDNN_NUMERICAL_NOTE_(\w+)\s*= (\d+)", header)}
    words = {"TENSOR_CORE": "tensor cores", "DOWN_CONVERT_INPUTS": "down-converts inputs"}
    return ", ".join(words.get(names[n], names[n].lower().replace("_", " ")) for n in numbers.split(",") if n)


def page(root, printed):
    """(the page, what is wrong with heads)."""
    rows = [line.split("\t") for line in printed.splitlines()]
    constants, defined = registry(root), files(root)
    if len(rows) != len(constants):
        return "", [f"{FOLDER}/registry.cc: {len(constants)} rows could be read, the program prints {len(rows)}"]
    by_file = {}
    for constant, row in zip(constants, rows):
        by_file.setdefault(defined[constant], []).append(row)
    table = ["| row | engine | notes |", "|---|---|---|"]
    table += [f"| {row} | [{name}](#{anchor(by_file[defined[constant]])}) | {notes(root, numerical)} |"
              for constant, (row, name, _, numerical, _) in zip(constants, rows)]
    found, sections = [], []
    for path, members in by_file.items():
        name = path.relative_to(root).as_posix()
        paragraphs = head(path.read_text())
        engines = [row[1] for row in members]
        wrong = faults(name, paragraphs, engines)
        found += wrong
        if not wrong:
            sections.append(section(name, paragraphs, engines, knobs(members)))
    return HEADER + "\n".join(table) + "\n\n" + "\n".join(sections).rstrip("\n") + "\n", found


def anchor(members):
    """The link of a section's heading."""
    return "-".join(row[1] for row in members)


def built():
    subprocess.run(["bazel", "build", TARGET], cwd=ROOT, check=True)
    folder = subprocess.run(["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return pathlib.Path(folder.strip()) / "tools/engines"


def main():
    is_check = sys.argv[1:2] == ["--check"]
    program = sys.argv[2] if is_check else built()
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    text, found = page(ROOT, printed)
    if found:
        print("\n".join(found))
        return 1
    if not is_check:
        (ROOT / PAGE).write_text(text)
    elif not (ROOT / PAGE).exists() or (ROOT / PAGE).read_text() != text:
        print(f"{PAGE}: out of date; run tools/gen_engines.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
