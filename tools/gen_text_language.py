#!/usr/bin/env python3
"""Writes docs/text_language.md, the reference of the graph's text form, as tools/text_language.cc prints it.

    tools/gen_text_language.py                       builds the program, rewrites the page
    tools/gen_text_language.py --check PROGRAM       exit status 1 where the page is not what PROGRAM prints
"""

import pathlib
import subprocess
import sys

import wrap_markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/text_language.md"
TARGET = "//tools:text_language"


def printed(program):
    return wrap_markdown.wrapped(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def built():
    subprocess.run(["bazel", "build", TARGET], cwd=ROOT, check=True)
    folder = subprocess.run(["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return pathlib.Path(folder.strip()) / "tools/text_language"


def main():
    if sys.argv[1:2] == ["--check"]:
        if (ROOT / PAGE).read_text() == printed(sys.argv[2]):
            return 0
        print(f"{PAGE}: out of date; run tools/gen_text_language.py")
        return 1
    (ROOT / PAGE).write_text(printed(built()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
