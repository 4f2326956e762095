#!/usr/bin/env python3
"""Which libraries and symbol versions the files of an installation need, against the bounds of needed_versions.tsv.

    tools/needed_versions.py PREFIX                   a line a file and library; exit status 1 if one is out of bounds
    tools/needed_versions.py PREFIX --depends FILE…   Debian's packages for these files, as the field Depends has them

A symbol's version is the oldest glibc or libstdc++ that has it, so that the newest one of a file says where the file
loads. Bounds of libstdc++ follow from the compiler, those of glibc from the machine that Kiln is built on: a build on an
older one lowers them, and nothing else does. Libraries of the installation itself are not asked for.
"""

import argparse
import csv
import fnmatch
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).parent / "needed_versions.tsv"
_LIBRARY = re.compile(r"\(NEEDED\).*\[(.+)\]")
_NEEDS_OF = re.compile(r"\bFile: (\S+)")
_VERSION = re.compile(r"\bName: (\S+)")


def table():
    with open(TABLE, newline="", encoding="utf-8") as file:
        return list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(prefix):
    return [path for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink() and is_elf(path)]


def parse_needs(text):
    """{library: versions} from what `readelf -d -V` prints."""
    needs = {library: set() for library in _LIBRARY.findall(text)}
    library, in_needs = None, False
    for line in text.splitlines():
        if line.startswith("Version "):
            in_needs = line.startswith("Version needs")
        of = _NEEDS_OF.search(line)
        if in_needs and of:
            library = of.group(1)
        elif in_needs and library and _VERSION.search(line):
            needs.setdefault(library, set()).add(_VERSION.search(line).group(1))
    return needs


def needs_of(path):
    return parse_needs(subprocess.run(["readelf", "-W", "-d", "-V", path], check=True, capture_output=True, text=True).stdout)


def family_of(version):
    """("GLIBC", (2, 34)) of GLIBC_2.34; a name without a number is a family of its own."""
    match = re.fullmatch(r"(.+)_([\d.]+)", version)
    return (match.group(1), tuple(map(int, match.group(2).split(".")))) if match else (version, ())


def newest(versions):
    """The newest version of each family, sorted."""
    found = {}
    for version in versions:
        family, number = family_of(version)
        found[family] = max(found.get(family, number), number)
    return sorted("_".join(filter(None, (family, ".".join(map(str, number))))) for family, number in found.items())


def row_for(rows, name, library):
    return next((row for row in rows if fnmatch.fnmatch(name, row["file"]) and row["library"] == library), None)


def findings_of(rows, name, library, versions):
    row = row_for(rows, name, library)
    if row is None:
        return [f"{name} needs {library}, which {TABLE.name} does not list for it"]
    bounds = dict(map(family_of, row["newest"].split()))
    findings = []
    for version in newest(versions):
        family, number = family_of(version)
        if family not in bounds:
            findings.append(f"{name} needs {version} of {library}; {TABLE.name} has no bound for {family}")
        elif number > bounds[family]:
            bound = ".".join(map(str, bounds[family]))
            findings.append(f"{name} needs {version} of {library}; {bound} is the bound")
    return findings


def check(prefix, rows):
    own = {path.name for path in (prefix / "lib").iterdir()}
    findings, files = [], elf_files(prefix)
    if not files:
        return [f"{prefix} has no programs and no libraries"]
    for path in files:
        name = path.relative_to(prefix).as_posix()
        for library, versions in sorted(needs_of(path).items()):
            if library not in own:
                print(f"{name}\t{library}\t{' '.join(newest(versions))}")
                findings += findings_of(rows, name, library, versions)
    return findings


def depends(prefix, rows, names):
    """Packages with the oldest version that will do, by the versions that the files need today."""
    own = {path.name for path in (prefix / "lib").iterdir()}
    glibc, packages = (0,), set()
    for name in names:
        for library, versions in needs_of(prefix / name).items():
            if library in own:
                continue
            row = row_for(rows, name, library)
            if row is None:
                sys.exit(f"{name} needs {library}, which {TABLE.name} does not list for it")
            packages.add(row["package"])
            glibc = max([glibc] + [number for family, number in map(family_of, versions) if family == "GLIBC"])
    return ", ".join(sorted(package.format(glibc=".".join(map(str, glibc))) for package in packages))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("--depends", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    rows = table()
    if arguments.depends:
        print(depends(arguments.prefix, rows, arguments.depends))
        return 0
    findings = check(arguments.prefix, rows)
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
