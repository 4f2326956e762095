"""Rules on C++ as it reads: how long functions and classes are, how comments open, where rates of GPUs and names of device
code are."""

import csv
import re

import cxx

FUNCTION_LINES, CLASS_LINES = 60, 250
LIMITS = {"function": FUNCTION_LINES, "class": CLASS_LINES}
# Functions and classes that are longer, how long, and why; the list only shrinks.
LONG = "tests/style/long_code.tsv"
# How many comments of a file still open with "Of" or "What"; the list only shrinks.
OPENERS = "tests/style/comment_openers.tsv"


def _rows(root, name):
    path = root / name
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def check_extents(root, files):
    """Functions have at most 60 lines, classes 250, but for those of the list, which has what is too long and no more."""
    findings = []
    allowed = {(row["file"], row["name"]): row for row in _rows(root, LONG)}
    for row in allowed.values():
        if len(row["reason"].split()) < 4:
            findings.append(f"{LONG}: {row['file']} {row['name']} has no reason")
    longest = {}
    for name, text in files:
        for extent in cxx.extents(text):
            key = (name, extent.name)
            if extent.lines > LIMITS[extent.kind] and extent.lines > longest.get(key, extent).lines - 1:
                longest[key] = extent
    for (name, what), extent in sorted(longest.items()):
        row = allowed.pop((name, what), None)
        limit = int(row["lines"]) if row else LIMITS[extent.kind]
        if extent.lines > limit:
            findings.append(f"{name}:{extent.line}: {extent.kind} {what} has {extent.lines} lines, {limit} are the limit")
        elif row and extent.lines < limit:
            findings.append(f"{LONG}: {name} {what} has {extent.lines} lines now: write that")
    findings += [f"{LONG}: {name} {what} is not too long any more: strike it" for name, what in allowed]
    return findings


_RULE = re.compile(r"^\s*(?://|#)\s*-{3,}\s*$")
_COMMENT = re.compile(r"^\s*(?://|#)(?!!)\s?(.*)$")
_OPENER = re.compile(r"(?:Of|What)\s")


def check_comments(root, files):
    """A rule of dashes has a name, and a comment opens with its subject: with no bare "Of …" or "What …"."""
    findings = []
    allowed = {row["file"]: int(row["comments"]) for row in _rows(root, OPENERS)}
    for name, text in files:
        opened, is_inside = [], False
        for number, line in enumerate(text.split("\n"), 1):
            comment = _COMMENT.match(line)
            if _RULE.match(line):
                findings.append(f"{name}:{number}: a rule of dashes without a name (// ---- name)")
            elif comment and not is_inside and _OPENER.match(comment.group(1)):
                opened.append(f'{name}:{number}: opens with "{comment.group(1)[:40]}…"; a comment starts with its subject')
            is_inside = comment is not None
        limit = allowed.pop(name, 0)
        if len(opened) > limit:
            findings += opened
        elif len(opened) < limit:
            findings.append(f"{OPENERS}: {name} has {len(opened)} now: write that, or strike it")
    findings += [f"{OPENERS}: {name} is not there" for name in allowed]
    return findings


# A clock, a bandwidth or a rate as a number: 1.7e9, 4.1e12.
_RATE = re.compile(r"\b\d+(?:\.\d+)?e(?:9|1[0-5])\b")


def check_rates(files):
    """A fact about a GPU is in the machine's tables: engines have shares of rates and numbers of cycles."""
    return [f"{name}:{number}: {match.group()} is a GPU's; its place is compiler/machine or ir/board"
            for name, text in files if name.startswith("compiler/engines/")
            for number, line in enumerate(text.split("\n"), 1)
            for match in [_RATE.search(line.split("//")[0])] if match]


# A constant of a configuration as text; a launch member as text, where one is added to a call or by a function of one's
# own. Arguments and parameters of kernels have names of their own, which are text.
_CONSTANT_TEXT = re.compile(r'"(k[A-Z]\w*)"')
_SHAPE_TEXT = re.compile(r'(?:\bshape_?\.(?:push|emplace)_back\(|\b(?:Shape|Config)Member\s*\w*)\s*\{?\s*(?:\w+::format\()?"([^"]*)"')
_MEMBER_TEXT = re.compile(r'\b(?:add|number|AddShapeMember)\([^;"()]*"([^"]*)"')
_DEVICE_ROW = re.compile(r"^[A-Z_]+\((\w+)[,)]", re.M)


def check_rows(root, files):
    """Engines take constants and launch members of device code by the C++ names that its rows (.def) have, not as text."""
    rows = {name for path in sorted((root / "codegen/cuda/device").glob("*/*.def"))
            for name in _DEVICE_ROW.findall(path.read_text())}
    findings = []
    for name, text in files:
        if not name.startswith("compiler/engines/"):
            continue
        text = re.sub(r"//[^\n]*", "", text)
        found = [m for rule in (_CONSTANT_TEXT, _SHAPE_TEXT) for m in rule.finditer(text)]
        found += [m for m in _MEMBER_TEXT.finditer(text) if m.group(1) in rows]
        findings += [f'{name}:{text.count(chr(10), 0, m.start(1)) + 1}: "{m.group(1)}" is a member of device code as text; '
                     "name its row (compiler/kernel/members.h)" for m in sorted(found, key=lambda m: m.start(1))]
    return findings
