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
_ROW = re.compile(r"^KILN_ENV\(\s*(\w+)\s*,\s*" +
                  r"\s*,\s*".join([_STRING, _STRING, r"(\w+)\(([^()]*)\)", _STRING]) + r"\s*\)", re.M)

HEADER = """# Environment

Every variable that Kiln reads, from `ir/base/env.def` (`tools/gen_env_doc.py` writes this page). An unknown
`KILN_*` name has no effect, and for an illegal value the default counts; both are warnings, with the nearest
right name or the legal values, in the log (`KILN_LOG=warn`) and from the tool.

Units of sizes are powers of 1024: `512`, `512MB`, `1.5 GiB`. In a process that has more rights than whoever
started it (setuid, setgid or file capabilities) none of the variables counts, nor does any other that names
code or files (`HOME`, `XDG_CACHE_HOME`, `PYTHONPATH`, `CUDNN_LOGDEST_DBG`): kernels are kept in memory only.

At `KILN_LOG=info` the first call of a process is a line with the library's file, the version that it says and
`KILN_DEVICE`, and each device that a handle opens is another: where neither is seen, it is not Kiln that is called.

"""


def parse_rows(text):
    """The (variable, default, legal, meaning) of every row of env.def; legal is a list of values or a range."""
    return [(variable, default, _legal(kind, argument), meaning)
            for _, variable, default, kind, argument, meaning in (m.groups() for m in _ROW.finditer(text))]


def _legal(kind, argument):
    """Markdown for what the kind of a row allows."""
    if kind == "Choice":
        return ", ".join(f"`{value}`" for value in argument.strip('"').split("|"))
    if kind == "Count":
        least, most = (part.strip() for part in argument.split(","))
        return f"{least} to {most}"
    if kind == "Minor":
        major, least, most = (part.strip() for part in argument.split(","))
        return f"{major}.{least} to {major}.{most}"
    if kind == "Size":
        return f"{argument.strip(chr(34))}, or with a unit; -1"
    if kind == "Text" and not argument:
        return ""
    raise ValueError(f"env.def: {kind}({argument}) is no kind of variable")


def table(rows):
    """The rows as a Markdown table."""
    def cell(text):
        return text.replace("\\\"", '"').replace("|", "\\|")

    def code(text):
        return f"`{cell(text)}`" if text else ""

    lines = ["| variable | default | values | meaning |", "|---|---|---|---|"]
    for variable, default, legal, meaning in rows:
        lines.append(f"| `{variable}` | {code(default)} | {legal} | {cell(meaning)} |")
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
