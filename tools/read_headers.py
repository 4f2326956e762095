#!/usr/bin/env python3
"""Reads the facts that cuDNN's headers of a release state, and adds what is new to the tables of the interface.

    tools/read_headers.py FOLDER           FOLDER has NVIDIA's cudnn*.h, as the include/ of a wheel; writes
    tools/read_headers.py FOLDER --check   names the tables that would change; exit status 1 if there are any

Read are names (with their header, and whether they are deprecated), values of enumerators and macros, prototypes, and
fields of structs; no comment. Written are tests/data/interface/*.tsv, a column a release, which the tests hold the
committed headers against, and api/spec/*.tsv, from which tools/gen_api.py makes those: a new function is declared and not
exported, a new type has no sentence yet, and the version that the library says stays what it was. docs/versions.md says
what is left to do by hand. Wants gcc.
"""

import argparse
import csv
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INTERFACE, SPEC = "tests/data/interface", "api/spec"
# Macros of which the version is made that the library says it is.
VERSION = r"_(MINOR|PATCH|PATCHLEVEL)$"
# CUDA's types that the headers name, so that no toolkit is needed.
CUDA = """typedef struct CUstream_st *cudaStream_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
"""
_OLD = r"__attribute__\(\(deprecated\)\)"


class Headers:
    """What the compiler sees of a folder of headers."""

    def __init__(self, folder, scratch):
        self.scratch = pathlib.Path(scratch)
        for name in ("cuda_runtime_api.h", "cuda_runtime.h", "library_types.h"):
            (self.scratch / name).write_text("#pragma once\n" + ("" if name != "library_types.h" else CUDA))
        self.folder = pathlib.Path(folder).resolve()
        self.options = ["-I", str(self.folder), "-I", scratch]
        self.source = "#include <library_types.h>\n#include <cudnn.h>\n#include <cudnn_backend.h>\n"
        self.lines = self._lines("-DCUDNN_WARN_DEPRECATED", "-DCUDNNWINAPI=FUNCTION")

    def _gcc(self, *options, source):
        done = subprocess.run(["gcc", "-x", "c", *self.options, *options, "-"], input=source, text=True,
                              capture_output=True)
        if done.returncode != 0:
            sys.exit(f"gcc does not take the headers of {self.folder}:\n{done.stderr}")
        return done.stdout

    def _lines(self, *options):
        """{header: its lines} behind the preprocessor."""
        found, current = {}, ""
        for line in self._gcc("-E", *options, source=self.source).splitlines():
            if marker := re.match(r'# \d+ "([^"]*)"', line):
                current = pathlib.Path(marker.group(1)).name
            elif current.startswith("cudnn"):
                found.setdefault(current, []).append(line)
        return found

    def macros(self):
        """{name: (header, what it stands for)}; a function-like macro's name has its parameters."""
        found = {}
        for header, lines in self._lines("-dD").items():
            for line in lines:
                if m := re.match(r"#define (\w+)(\([^)]*\))?\s*(.*)$", line):
                    found[m.group(1) + (m.group(2) or "")] = (header, " ".join(m.group(3).split()))
        return found

    def statements(self):
        """(header, statement without its `;`, with the bodies of enums and structs) in order."""
        for header, lines in self.lines.items():
            text = re.sub(_OLD, " OLD ", "\n".join(lines)).replace('extern "C" {', "")
            depth, start = 0, 0
            for i, c in enumerate(text):
                depth += (c == "{") - (c == "}")
                if c == ";" and depth == 0:
                    yield header, " ".join(text[start:i].split())
                    start = i + 1

    def values(self, constants):
        """{constant: value}."""
        rows = "".join(f'printf("%s\\t%lld\\n", "{c}", (long long)({c}));\n' for c in constants)
        program = self.scratch / "values"
        self._gcc("-w", "-o", str(program), source=f"#include <stdio.h>\n{self.source}int main(void) {{\n{rows}}}\n")
        out = subprocess.run([program], text=True, capture_output=True, check=True).stdout
        return dict(line.split("\t") for line in out.splitlines())


def without_old(text):
    return " ".join(re.sub(r"\bOLD\b", " ", text).split()), bool(re.search(r"\bOLD\b", text))


def spaced(declaration):
    """`const void *x` as the tables write it: `const void * x`."""
    return " ".join(declaration.replace("*", " * ").split()).replace("* *", "**")


def read_headers(headers):
    """Everything that the tables hold of a release."""
    facts = {"names": set(), "enums": [], "functions": [], "structs": [], "types": []}
    for header, statement in headers.statements():
        flat, old = without_old(re.sub(r"\{.*\}", "", statement))
        if enum := re.match(r"typedef enum(?: \w+)? \{(.*)\} (.*)$", statement):
            name, old = without_old(enum.group(2))
            facts["types"].append((header, "enum", name, ""))
            for entry in filter(None, (e.strip() for e in enum.group(1).split(","))):
                constant, gone = without_old(entry.split("=")[0])
                facts["enums"].append((name, constant))
                facts["names"].add(("enumerator", constant, header, "y" if gone else ""))
        elif struct := re.match(r"typedef struct(?: (\w+))? \{(.*)\} (.*)$", statement):
            name, old = without_old(struct.group(3))
            fields = "; ".join(spaced(f) for f in struct.group(2).split(";") if f.strip())
            facts["structs"].append((struct.group(1) or name, fields))
            facts["types"].append((header, "struct", name, f"{struct.group(1) or name}: {fields}"))
        elif function := re.match(r"(.*?) ?FUNCTION (cudnn\w+)\((.*)\)$", flat):
            parameters = "" if function.group(3) == "void" else function.group(3)
            signature = f"{function.group(1)}({', '.join(spaced(p) for p in parameters.split(','))})"
            facts["functions"].append((header, function.group(2), signature))
            facts["names"].add(("function", function.group(2), header, "y" if old else ""))
            continue
        elif flat.startswith("typedef "):
            pointer = re.search(r"\(\*\s*(\w+)\)", flat)
            name = pointer.group(1) if pointer else re.findall(r"\w+", flat)[-1]
        else:
            continue
        facts["names"].add(("type", name, header, "y" if old else ""))
    macros = headers.macros()
    facts["names"] |= {("macro", name.split("(")[0], header, "") for name, (header, _) in macros.items()}
    facts["defines"] = {name: text for name, (_, text) in macros.items()}
    facts["values"] = headers.values([constant for _, constant in facts["enums"]])
    parts = headers.values(["CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"])
    facts["version"] = ".".join(parts.values())
    return facts


class Table:
    """A tab-separated file with a header line, whose cells have no quotes."""

    def __init__(self, path):
        self.path = path
        with open(ROOT / path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            self.rows, self.columns = list(reader), list(reader.fieldnames)
        self.text = (ROOT / path).read_text(encoding="utf-8")

    def add_column(self, name, after):
        if name not in self.columns:
            self.columns.insert(self.columns.index(after) + 1, name)

    def printed(self):
        lines = [self.columns] + [[row.get(c) or "" for c in self.columns] for row in self.rows]
        return "".join("\t".join(line) + "\n" for line in lines)


def last_of(columns, prefix):
    return [c for c in columns if re.match(prefix + r"9\.", c)][-1]


def insert_enumerators(rows, enums, values, column):
    """Sets a column, and puts a new constant behind those of its enum."""
    known = {(row["enum"], row["constant"]): row for row in rows}
    for enum, constant in enums:
        if (enum, constant) not in known:
            row = {"enum": enum, "constant": constant}
            places = [i for i, r in enumerate(rows) if r["enum"] == enum]
            rows.insert(places[-1] + 1 if places else len(rows), row)
            known[enum, constant] = row
        known[enum, constant][column] = values[constant]


def interface(facts):
    """The tables of tests/data/interface."""
    version = facts["version"]
    defines, enums, functions, structs, names = (
        Table(f"{INTERFACE}/{name}.tsv") for name in ("defines", "enums", "functions", "structs", "names_9"))
    column = f"value_{version}"
    enums.add_column(column, last_of(enums.columns, "value_"))
    insert_enumerators(enums.rows, facts["enums"], facts["values"], column)
    before = last_of(defines.columns, "value_")
    defines.add_column(column, before)
    for row in defines.rows:
        row[column] = facts["defines"].get(row["define"], "")
    column = f"in_{version}"
    functions.add_column(column, last_of(functions.columns, "in_"))
    known = {row["function"]: row for row in functions.rows}
    for header, name, signature in facts["functions"]:
        if name not in known:
            known[name] = {"function": name, "header_9": header, "signature": signature}
            functions.rows.append(known[name])
        known[name][column] = "y"
    functions.rows.sort(key=lambda row: row["function"])
    known = {(row["kind"], row["name"]): row for row in structs.rows if row["kind"] == "struct"}
    for name, fields in facts["structs"]:
        row = known.get(("struct", name))
        if row is None:
            structs.rows.append({"kind": "struct", "name": name, "versions": version, "definition": fields})
        elif version not in row["versions"].split(","):
            row["versions"] += "," + version
    for row in structs.rows:
        if row["kind"] == "typedef" and ("type", row["name"]) in {n[:2] for n in facts["names"]}:
            if version not in row["versions"].split(","):
                row["versions"] += "," + version
    names.rows = [dict(zip(names.columns, row)) for row in sorted(facts["names"])]
    return [defines, enums, functions, structs, names]


def specification(facts):
    """The tables of api/spec, and sentences about what a person has to add."""
    defines, enums, functions, types, deprecated = (
        Table(f"{SPEC}/{name}.tsv") for name in ("defines", "enums", "functions", "types", "deprecated"))
    left = []
    for row in defines.rows:
        if row["value_9"] and row["define"] in facts["defines"] and not re.search(VERSION, row["define"]):
            row["value_9"] = facts["defines"][row["define"]]
    insert_enumerators(enums.rows, facts["enums"], facts["values"], "value_9")
    known = {row["function"] for row in functions.rows}
    for header, name, signature in facts["functions"]:
        if name not in known:
            functions.rows.append({"function": name, "in_9": "y", "header_9": header, "signature": signature})
            left.append(f"{name} is declared and not exported")
    functions.rows.sort(key=lambda row: row["function"])
    known = {row["name"] for row in types.rows}
    for header, kind, name, definition in facts["types"]:
        if name not in known:
            types.rows.append({"kind": kind, "name": name, "generations": "9", "header_9": header,
                               "definition": definition})
            left.append(f"{SPEC}/types.tsv has no sentence about {name}")
    # A release may take a deprecation back.
    plain = {name for _, name, _, old in facts["names"] if not old}
    deprecated.rows = [row for row in deprecated.rows if row["name"] not in plain]
    known = {row["name"] for row in deprecated.rows}
    for kind, name, _, old in sorted(facts["names"]):
        if old and name not in known:
            deprecated.rows.append({"kind": kind, "name": name})
    deprecated.rows.sort(key=lambda row: (row["kind"], row["name"]))
    return [defines, enums, functions, types, deprecated], left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        facts = read_headers(Headers(arguments.folder, scratch))
    tables, left = specification(facts)
    stale = [t for t in interface(facts) + tables if t.printed() != t.text]
    for table in stale:
        print(f"cuDNN {facts['version']}: {'differs' if arguments.check else 'wrote'}", table.path)
        if not arguments.check:
            (ROOT / table.path).write_text(table.printed(), encoding="utf-8")
    for sentence in left:
        print("left to do:", sentence)
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
