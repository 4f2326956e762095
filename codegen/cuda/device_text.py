"""Writes the device library as a table of C++ (device_text.inc): the text of each file, and which others it needs.

    python3 codegen/cuda/device_text.py FILE.cuh... > device_text.inc

A kernel's text is one file, so that `#pragma once` and the includes of device files are left out of it; the files that
they name come first in the table. A file that includes what is not among the arguments, or itself by way of others, is
an error.
"""

import re
import sys

_ROOT = "codegen/cuda/device/"
_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)
_NO_TEXT = re.compile(r'^#pragma once\n|^#include "[^"]+"\n(?:\n(?!#include))?', re.MULTILINE)


def name_of(path):
    return path[path.index(_ROOT) + len(_ROOT):]


def read(paths):
    """{name: (names that it includes, its text without these)}"""
    files = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
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
        print(f'{{"{name}", kNeeds{at}, R"cuh({files[name][1]})cuh"}},')
    print("};")


main(sys.argv[1:])
