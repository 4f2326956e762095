"""README.md and the other pages name the commands and options that `kiln --help` names, and no others.

    help_pages_test.py ROOT KILN     the tree, and the tool of this build
"""

import pathlib
import re
import subprocess
import sys
import unittest

# History names what was there then.
LEFT_OUT = ("docs/log/",)
_SPAN = re.compile(r"`([^`\n]+)`")
# A call of the tool up to a comment, a pipe or the next command of the line.
_CALL = re.compile(r"(?:^|[\s/(])kiln((?: +[^\s#|>&;]+)+)")


def calls(page):
    """The words behind `kiln` of each call in a page's code, between fences and in spans."""
    found, fenced = [], False
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        for text in [line] if fenced else _SPAN.findall(line):
            found += [match.group(1).split() for match in _CALL.finditer(text) if not text.lstrip().startswith("//")]
    return found


def listed(help_text, heading):
    """The names in one part of a help text: `Subcommands` or `Options` (long forms)."""
    part = re.search(rf"^{heading}:\n((?:  .*\n?)+)", help_text, re.M)
    if not part:
        return []
    if heading == "Subcommands":
        return re.findall(r"^  (\w+)", part.group(1), re.M)
    return re.findall(r"^  (?:-\w,)?(--[\w-]+)", part.group(1), re.M)


def findings(pages, help_of):
    """What pages ({name: text}) and the tool do not agree on; `help_of(words)` is the help of a command."""
    commands = listed(help_of([]), "Subcommands")
    parts = {command: listed(help_of([command]), "Subcommands") for command in commands}
    found, named = [], set()
    for name, page in pages.items():
        for words in calls(page):
            command = words[0]
            if not re.fullmatch(r"[a-z]+", command):
                continue  # an option of the tool itself, or a placeholder
            if command not in commands:
                found.append(f"{name}: kiln {command}: there is no such command")
                continue
            path = [command]
            if parts[command] and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
                path.append(words[1])
                if words[1] not in parts[command]:
                    found.append(f"{name}: kiln {command} {words[1]}: there is no such command")
                    continue
            if name == "README.md":
                named.add(command)
            options = listed(help_of(path), "Options")
            found += [f"{name}: kiln {' '.join(path)} {word}: there is no such option"
                      for word in words if word.startswith("--") and word.split("=")[0] not in options]
    readme = pages["README.md"]
    found += [f"README.md: does not name kiln {command}" for command in commands if command not in named]
    for command in commands:
        row = next((line for line in readme.splitlines() if line.startswith(f"| `kiln {command}")), "")
        found += [f"README.md: the row of kiln {command} does not name {part}"
                  for part in parts[command] if f"`{part}`" not in row]
    return found


TOOL = """Usage: kiln [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help message and exit

Subcommands:
  run                         run a graph
  cache                       the kernels on disk
"""
RUN = "Options:\n  -h,--help                   Print\n  --seed UINT=1               of the data\n  -o,--output PATH            a file\n"
CACHE = "Subcommands:\n  list                        every kernel\n  prune                       remove some\n"
PRUNE = "Options:\n  --max-mb INT                what may stay\n"
README = "| `kiln run GRAPH` | runs |\n| `kiln cache list` | `list`, `prune` |\n```\nbin/kiln run x --seed 7 --output y  # --no\n```\n"


class FindingsTest(unittest.TestCase):
    """The comparison, on a made-up tool and a made-up page."""

    def found(self, readme, tool=TOOL, **pages):
        helps = {(): tool, ("run",): RUN, ("cache",): CACHE, ("cache", "prune"): PRUNE, ("cache", "list"): ""}
        return findings({"README.md": readme} | {f"docs/{name}.md": text for name, text in pages.items()},
                        lambda words: helps.get(tuple(words), ""))

    def test_what_agrees(self):
        self.assertEqual(self.found(README, page="`kiln cache prune --max-mb 3` and kiln foo in prose, `kiln --help`"), [])

    def test_a_command_that_the_page_lacks(self):
        self.assertEqual(self.found(README, tool=TOOL + "  tune                        measure\n"),
                         ["README.md: does not name kiln tune"])

    def test_a_command_that_the_tool_lacks(self):
        self.assertEqual(self.found(README, tool=TOOL.replace("  run  ", "  walk "), page="")[0],
                         "README.md: kiln run: there is no such command")
        self.assertEqual(self.found(README, page="`kiln cache drop`"),
                         ["docs/page.md: kiln cache drop: there is no such command"])

    def test_an_option_that_the_tool_lacks(self):
        self.assertEqual(self.found(README.replace("--seed", "--sed")),
                         ["README.md: kiln run --sed: there is no such option"])
        self.assertEqual(self.found(README, page="`kiln cache prune --max=3`"),
                         ["docs/page.md: kiln cache prune --max=3: there is no such option"])

    def test_a_part_of_a_command_that_its_row_lacks(self):
        self.assertEqual(self.found(README.replace(", `prune`", "")),
                         ["README.md: the row of kiln cache does not name prune"])


class PagesTest(unittest.TestCase):
    """The tree's pages, and the tool of this build."""
    root = kiln = None

    def help_of(self, words):
        return subprocess.run([self.kiln, *words, "--help"], check=True, capture_output=True, text=True).stdout

    def pages(self):
        folders = [self.root, self.root / "docs", self.root / "examples", self.root / "share"]
        paths = [p for i, folder in enumerate(folders) for p in (folder.glob("*.md") if i == 0 else folder.rglob("*.md"))]
        names = {p.relative_to(self.root).as_posix(): p for p in sorted(paths)}
        return {name: p.read_text() for name, p in names.items() if not name.startswith(LEFT_OUT)}

    def test_pages_and_tool_agree(self):
        pages = self.pages()
        self.assertIn("docs/tour.md", pages)
        self.assertGreater(sum(len(calls(page)) for page in pages.values()), 20)
        self.assertEqual(findings(pages, self.help_of), [])

    def test_graphs_that_pages_name_exist(self):
        for name, page in self.pages().items():
            for words in calls(page):
                for path in (word for word in words if word.startswith("examples/graphs/")):
                    self.assertTrue((self.root / path).exists(), f"{name}: {path}")


if __name__ == "__main__":
    PagesTest.root, PagesTest.kiln = pathlib.Path(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
