#!/usr/bin/env python3
"""Wraps the paragraphs of Markdown pages at 120 columns.

    tools/wrap_markdown.py FILE…            rewrites each paragraph and list item that has a longer line
    tools/wrap_markdown.py --check FILE…    names the lines that are longer; exit status 1 if there are any

Rows of tables, headings, HTML and what stands between fences (a program's text) are left as they are, and targets of
links do not count. tests/style/checks.py holds every page to it.
"""

import pathlib
import re
import sys

COLUMNS = 120
_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^(\s*)((?:[*+-]|\d+[.)])\s+)")
_TARGET = re.compile(r"\]\([^()\s]*\)")
# A word that would begin a list, a heading, a quotation or a table at the start of a line.
_BEGINS_A_BLOCK = re.compile(r"^(?:[*+-]|\d+[.)]|#{1,6}|>.*|\|.*)$")


def _is_verbatim(line):
    return line.lstrip().startswith(("|", "#", "<")) or line.startswith("    ") and not _ITEM.match(line)


def lines_of_text(text, with_rows=False):
    """(number, line) of each line outside of fences that is no heading, HTML or indented code, and no row of a table
    where these are not asked for."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (not _is_verbatim(line) or with_rows and line.lstrip().startswith("|")):
            yield number, line


def width(line):
    """The columns of a line without the targets of its links."""
    return len(_TARGET.sub("]", line))


def too_long(text):
    """(number, columns) of each line that is too long and could be broken."""
    return [(number, width(line)) for number, line in lines_of_text(text)
            if width(line) > COLUMNS and " " in _ITEM.sub("", line).strip()]


def _pieces(text):
    """Words; one that would begin a block at the start of a line stays with the word before it."""
    pieces = []
    for word in text.split():
        if pieces and _BEGINS_A_BLOCK.match(word):
            pieces[-1] += " " + word
        else:
            pieces.append(word)
    return pieces


def fill(text, first="", rest=""):
    """The text in lines of at most COLUMNS, the first after `first`, the others after `rest`."""
    lines, line = [], first
    for piece in _pieces(text):
        is_empty = line in (first, rest) and line.strip() == (first if not lines else rest).strip()
        if not is_empty and len(line) + 1 + len(piece) > COLUMNS:
            lines.append(line)
            line = rest + piece
        else:
            line += piece if is_empty else " " + piece
    return "\n".join(lines + [line])


def _filled(block):
    if all(width(line) <= COLUMNS for line in block):
        return "\n".join(block)
    item = _ITEM.match(block[0])
    first = item.group(0) if item else re.match(r"\s*", block[0]).group(0)
    return fill(" ".join([block[0][len(first):]] + block[1:]), first, " " * len(first))


def _begins_an_item(line, block):
    """Whether the line is a new item and no continuation of the block: in a paragraph only 1 begins a numbered list."""
    item = _ITEM.match(line)
    if not item:
        return False
    number = re.match(r"\d+", item.group(2))
    before = _ITEM.match(block[0]) if block else None
    is_sibling = before and re.match(r"\d", before.group(2)) and before.group(1) == item.group(1)
    return not block or not number or number.group(0) == "1" or bool(is_sibling)


def wrapped(text):
    """The page with every paragraph and list item that has a line too long filled anew."""
    done, block, fenced = [], [], False

    def flush():
        if block:
            done.append(_filled(block))
            block.clear()

    for line in text.splitlines():
        if _FENCE.match(line):
            flush()
            fenced = not fenced
            done.append(line)
        elif fenced or not line.strip() or _is_verbatim(line):
            flush()
            done.append(line)
        else:
            if _begins_an_item(line, block):
                flush()
            block.append(line)
    flush()
    return "\n".join(done) + "\n"


def main(arguments):
    check = arguments[:1] == ["--check"]
    status = 0
    for name in arguments[check:]:
        path = pathlib.Path(name)
        text = path.read_text()
        if check:
            for number, columns in too_long(text):
                print(f"{name}:{number}: {columns} columns, {COLUMNS} are the limit; run tools/wrap_markdown.py {name}")
                status = 1
        elif too_long(text):
            path.write_text(wrapped(text))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
