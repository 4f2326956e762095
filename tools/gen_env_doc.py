#!/usr/bin/env python3
"""Writes the table of environment variables from ir/base/env.def.

    tools/gen_env_doc.py           rewrites docs/environment.md, and README.md between its markers
    tools/gen_env_doc.py --check   names the files that are out of date; exit status 1 if there are any
"""

import pathlib
import re
import sys

BEGIN, END = "<!-- env:begin -->", "<!-- env:end -->"
_STRING = r'"((?:[^"\\]|\\.)*)"'
_ROW = re.compile(r"^KILN_ENV\(\s*(\w+)\s*,\s*" + r"\s*,\s*".join([_STRING] * 4) + r"\s*\)", re.M)

HEADER = """# Environment

Every variable that Kiln reads, from `ir/base/env.def` (`tools/gen_env_doc.py` writes this page). An unknown
`KILN_*` name or an illegal value is reported with the legal ones, and the default counts.

"""


def parse_rows(text):
    """The (variable, default, legal, meaning) of every row of env.def."""
    return [match.groups()[1:] for match in _ROW.finditer(text)]


def table(rows):
    """The rows as a Markdown table."""
    def cell(text):
        return text.replace("\\\"", '"').replace("|", "\\|")

    def code(text):
        return f"`{cell(text)}`" if text else ""

    lines = ["| variable | default | values | meaning |", "|---|---|---|---|"]
    for variable, default, legal, meaning in rows:
        values = ", ".join(code(value) for value in legal.split("|")) if legal else ""
        lines.append(f"| `{variable}` | {code(default)} | {values} | {cell(meaning)} |")
    return "\n".join(lines) + "\n"


def expected_files(root):
    """{path: text it should have} for the generated page and, where it has the markers, the README."""
    rows = parse_rows((root / "ir/base/env.def").read_text())
    files = {root / "docs/environment.md": HEADER + table(rows)}
    readme = root / "README.md"
    if readme.exists() and BEGIN in readme.read_text():
        before, rest = readme.read_text().split(BEGIN, 1)
        after = rest.split(END, 1)[1]
        files[readme] = f"{before}{BEGIN}\n{table(rows)}{END}{after}"
    return files


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent
    stale = [path for path, text in expected_files(root).items()
             if not path.exists() or path.read_text() != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(root)} is out of date: run tools/gen_env_doc.py")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(expected_files(root)[path])
        print(f"wrote {path.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
