"""Where functions and classes of C++ begin and end, by their braces: formatted code is regular enough for that."""

import dataclasses
import re

# Text without braces that count: a raw string, a comment, a string, a character. Digits may have a quote inside.
_TEXT = re.compile(
    r'R"(?P<mark>[^()\s"\\]{0,16})\((?:.|\n)*?\)(?P=mark)"'
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'")
# A directive with the lines that it goes on for.
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
_TYPE = re.compile(r"\b(?:class|struct|union|enum)\s+(?:class\s+)?(?:alignas\([^)]*\)\s*)?(\w+)")
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*?>\s*(?=\w)")
_NAME = re.compile(r"([~\w:]+|operator\s*\S+?)\s*\($")


@dataclasses.dataclass(frozen=True)
class Extent:
    kind: str  # "function" or "class"
    name: str
    line: int  # of its first line, from 1
    lines: int


def _blank(text):
    """The text with spaces for all that is no code; lines stay where they are."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group())
    return _DIRECTIVE.sub(spaces, _TEXT.sub(spaces, text))


def _outside_parentheses(head):
    """A declaration without what stands in parentheses."""
    flat, depth = [], 0
    for char in head:
        if char in "([":
            depth += 1
            if depth == 1:
                flat.append(char)
        elif char in ")]":
            depth -= 1
        elif depth == 0:
            flat.append(char)
    return "".join(flat)


def _kind_of(head, outer):
    """What a brace opens, by the text since the statement before, and by what stands around it."""
    flat = _TEMPLATE.sub("", _outside_parentheses(head))
    if outer not in ("file", "namespace", "class"):
        return "block", ""
    if re.search(r"\bnamespace\b", flat) or re.search(r'\bextern\s*$', flat):
        return "namespace", ""
    if "=" in re.sub(r"operator\s*[=!<>+\-*/]*=", "", flat.split("(")[0]):
        return "block", ""
    if "(" in flat:
        name = _NAME.search(flat[:flat.index("(") + 1])
        return "function", name.group(1) if name else flat.strip()[:40]
    type_ = _TYPE.search(flat)
    if type_:
        return "class", type_.group(1)
    return "block", ""


def extents(text):
    """The functions and classes of a source, in the order in which they end."""
    code = _blank(text)
    found, stack, start = [], [("file", "", 0)], 0
    for at, char in enumerate(code):
        if char == ";" and not _is_in_parentheses(code, start, at):
            start = at + 1
        elif char == "{":
            head = code[start:at]
            kind, name = _kind_of(head, stack[-1][0])
            first = start + len(head) - len(head.lstrip())
            stack.append((kind, name, first))
            start = at + 1
        elif char == "}" and len(stack) > 1:
            kind, name, first = stack.pop()
            if kind in ("function", "class"):
                line = code.count("\n", 0, first) + 1
                found.append(Extent(kind, name, line, code.count("\n", first, at) + 1))
            start = at + 1
    return found


def _is_in_parentheses(code, start, at):
    part = code[start:at]
    return part.count("(") > part.count(")")
