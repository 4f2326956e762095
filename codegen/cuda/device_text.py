"""Writes the device library as a table of C++ (device_text.inc): the text of each file, and which others it needs.

    python3 codegen/cuda/device_text.py FILE.cuh... > device_text.inc

A kernel's text is one file, so that `#pragma once` and the includes of device files are left out of it; the files that
they name come first in the table. Where a file includes rows (`.def`), what its macros above make of them stands there.
A file that includes what is not among the arguments, or itself by way of others, is an error, and so is a row that is
not a name with values in parentheses.
"""

import re
import sys

_ROOT = "codegen/cuda/device/"
_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)
_ROWS = re.compile(r'(?P<macros>(?:^#define (?:[^\n\\]|\\\n)*\n)+)^#include "(?P<file>[^"]+\.def)"\n', re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)\(([^)]*)\) (.*)$", re.MULTILINE)
_ROW = re.compile(r"^(\w+)\(([^()]*)\)(\s*//.*)?$")
_NO_TEXT = re.compile(r'^#pragma once\n|^#include "[^"]+"\n(?:\n(?!#include))?', re.MULTILINE)


def name_of(path):
    return path[path.index(_ROOT) + len(_ROOT):]


def expand(match):
    """The rows of a .def as the macros above its include spell them, with the comments of those that they take."""
    macros = {name: ([p.strip() for p in parameters.split(",")], body)
              for name, parameters, body in _MACRO.findall(re.sub(r"\s*\\\n\s*", " ", match.group("macros")))}
    lines, comments = [], []
    with open(match.group("file"), encoding="utf-8") as file:
        text = file.read()
    for line in text[text.index("\n// ----"):].splitlines():
        row = _ROW.match(line)
        if not row and line and not line.startswith(("//", "#")):
            sys.exit(f"{match.group('file')}: {line!r} is no row")
        if row and row.group(1) in macros:
            parameters, body = macros[row.group(1)]
            values = dict(zip(parameters, (value.strip() for value in row.group(2).split(",")), strict=True))
            # One pass, so that a value that is spelled as a parameter stays a value.
            body = re.sub(r"\b(\w+?)(##\w+|\b)", lambda m: values.get(m[1], m[1]) + m[2].removeprefix("##"), body)
            lines += comments + [f"  {body}{row.group(3) or ''}"]
        comments = comments + [f"  {line}"] if line.startswith("//") and not line.startswith("// ----") else []
    if not lines:
        sys.exit(f"{match.group('file')} has no row for {', '.join(macros)}")
    return "\n".join(lines) + "\n"


def read(paths):
    """{name: (names that it includes, its text without these)}"""
    files = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = _ROWS.sub(expand, file.read())
        included = _INCLUDE.findall(text)
        for other in included:
            if not other.startswith(_ROOT):
                sys.exit(f'{path} includes "{other}", which is no device file ({_ROOT}…)')
        files[name_of(path)] = ([name_of(other) for other in included], _NO_TEXT.sub("", text))
    return files


def order(files):
    """Names, each behind those that it includes; where that leaves a choice numbers first, then instructions."""
    done, open_ = [], []

    def visit(name):
        if name in done:
            return
        if name in open_:
            sys.exit("device files include each other: " + " → ".join(open_[open_.index(name):] + [name]))
        open_.append(name)
        for other in sorted(files[name][0]):
            if other not in files:
                sys.exit(f"{name} includes {other}, which is not there")
            visit(other)
        done.append(open_.pop())

    for name in sorted(files, key=lambda name: (not name.startswith("numbers/"), not name.startswith("ptx/"), name)):
        visit(name)
    return done


def main(paths):
    files = read(paths)
    names = order(files)
    needs = {}
    for name in names:
        needs[name] = {name}.union(*(needs[other] for other in files[name][0]))
    for at, name in enumerate(names):
        rows = ", ".join(str(i) for i, other in enumerate(names) if other in needs[name])
        print(f"constexpr int kNeeds{at}[] = {{{rows}}};")
    print("constexpr DeviceFile kFiles[] = {")
    for at, name in enumerate(names):
        print(f'{{"{name}", kNeeds{at}, R"cuh({files[name][1]})cuh"sv}},')
    print("};")


main([path for path in sys.argv[1:] if path.endswith(".cuh")])
