"""Rules on the source tree that no compiler checks. Each check takes the tree's root and returns findings.

    python3 tests/style/checks.py ROOT CHECK…     prints the findings; exit status 1 if there are any

CHECKS at the end lists them. checks_selftest.py breaks every rule once in a made-up tree.
"""

import importlib.util
import pathlib
import re
import sys

import cxx_rules

# --- layering -------------------------------------------------------------------------------------------
# LAYERS gives for a path the paths that its files may include. A file belongs to the longest path listed there.
_IR = ("ir/base", "ir", "ir/graph", "ir/tile")
_RUNTIME = ("runtime", "runtime/cache", "runtime/cuda")
# The parts of a session that the rest of api/ knows, and the container that it keeps things in.
_SESSION = ("api/session/session.h", "api/session/recent.h")
# Objects behind the client's pointers stand below descriptors; calls and their log, which has what descriptors
# hold, stand above, in the same folder.
_FORK_GATE = ("api/lifecycle/fork_gate.h", "api/lifecycle/fork_gate.cc")
_OBJECTS = tuple(f"api/lifecycle/{name}" for name in ("object.h", "object.cc", "handle.h", "handle.cc"))
_API = ("include", "api/spec", "api/session/session.h") + _OBJECTS
_DESCRIPTORS = ("api/legacy/functions.h", "api/legacy/descriptors")
_CODEGEN = ("codegen", "codegen/cuda")
# Rows that engines and device code agree on.
_MEMBERS = tuple(f"codegen/cuda/device/{name}.def" for name in (
    "contract/contract_sm90", "contract/contract_grouped", "conv/conv_halo", "recurrence/recurrence", "attention/attention",
    "peers/peers"))
_MODULE = ("compiler/module.h", "compiler/pass.h", "compiler/lowered.h", "compiler/group_limits.h")
_ENGINE = tuple(f"compiler/engines/{name}" for name in ("engine.h", "engine.cc", "engine_of.h", "knob_types.h"))
# The kit that every engine is made with.
_KIT = _IR + _MODULE + _ENGINE + ("compiler/machine", "compiler/patterns", "compiler/kernel")
# An engine includes no other one, but for what stands here: folders that engines share, and engines that
# launch the products of others.
_REDUCTION = ("compiler/engines/reduction",)
_CONTRACTION = ("compiler/engines/contraction",) + _REDUCTION
_PRODUCTS = {
    "winograd": _CONTRACTION + ("compiler/engines/contract_simt", "compiler/engines/contract_wgmma"),
    "recurrence": ("compiler/engines/contract_wgmma",),
}
_FAMILIES = {
    name: _PRODUCTS.get(name, shared)
    for names, shared in (
        ("contraction contract_simt contract_mma contract_wgmma conv_direct conv_first_layer conv_halo winograd",
         _CONTRACTION),
        ("reduction reduce rows columns attention", _REDUCTION),
        ("pointwise window recurrence ctc contract_grouped segments peers", ()),
    ) for name in names.split()
}
_ENGINES = tuple(f"compiler/engines/{name}" for name in _FAMILIES)
_COMPILER = _KIT + _ENGINES + ("compiler", "compiler/engines", "compiler/passes", "compiler/tune")

LAYERS = {
    "ir/base": ("ir/base",),
    "ir": ("ir/base", "ir"),
    "ir/graph": ("ir/base", "ir", "ir/graph"),
    "ir/tile": ("ir/base", "ir", "ir/tile"),
    "codegen": _IR + ("codegen",),
    "codegen/cuda": _IR + _CODEGEN,
    **{f"codegen/cuda/device/{name}": tuple(f"codegen/cuda/device/{n}" for n in ("numbers", "ptx", name)) + _MEMBERS
       for name in ("ptx", "contract", "conv", "attention", "recurrence", "peers")},
    **{name: () for name in _MEMBERS},
    "codegen/cuda/device/numbers": ("codegen/cuda/device/numbers",),
    "codegen/llvm": _IR + ("codegen", "codegen/llvm"),
    # Not codegen/llvm: the library that serves GPUs does not carry LLVM.
    # A file may have a row of its own: what passes transform stands beside the pipeline that runs them.
    **{name: _IR + _MODULE for name in _MODULE},
    "compiler/machine": ("ir/base", "ir", "compiler/machine"),
    "compiler/patterns": _IR + _MODULE + ("compiler/patterns",),
    "compiler/kernel": _IR + _MODULE + _MEMBERS + ("compiler/kernel",),
    **{name: _IR + _MODULE + _ENGINE for name in _ENGINE},
    **{f"compiler/engines/{name}": _KIT + shared + (f"compiler/engines/{name}",)
       for name, shared in _FAMILIES.items()},
    "compiler/engines": _KIT + _ENGINES + ("compiler/engines",),
    "compiler/passes": _KIT + _CODEGEN + ("compiler/engines/contraction", "compiler/engines", "compiler/passes"),
    "compiler": _CODEGEN + _COMPILER,
    "compiler/tune": _CODEGEN + _COMPILER,
    "runtime": ("ir/base", "ir") + _RUNTIME,
    "runtime/cache": ("ir/base", "runtime/cache"),
    "runtime/cuda": ("ir/base", "ir") + _RUNTIME,
    # The plug-in: it owns LLVM, and compiles the tile IR's text that the compiler hands over.
    "runtime/cpu": ("ir/base", "ir", "ir/tile", "runtime", "runtime/cache", "runtime/cpu", "codegen",
                    "codegen/llvm"),
    "api/spec": ("include", "api/spec", "ir/base", "ir"),
    "api/session/session.h": ("ir/base", "ir", "ir/graph"),
    "api/session/recent.h": (),
    **{name: ("ir/base",) + _FORK_GATE for name in _FORK_GATE},
    **{name: ("ir/base", "api/session/session.h") + _FORK_GATE + _OBJECTS for name in _OBJECTS},
    # Knows graphs and configurations, and no device: what it compiles it is given as functions.
    "api/prefetch": ("ir/base", "ir/graph", "runtime/cache", "api/lifecycle/fork_gate.h", "api/prefetch") + _SESSION,
    "api/tuning": ("ir/base", "ir", "ir/graph", "compiler", "compiler/engines", "compiler/tune") + _ENGINE + _MODULE +
                  _RUNTIME + ("api/tuning",),
    # Below handles and descriptors, which it does not know.
    "api/session": ("ir/base", "ir", "ir/graph", "compiler", "compiler/engines") + _ENGINE + _MODULE + _RUNTIME +
                   ("include", "api/spec", "api/prefetch", "api/tuning", "api/session") + _SESSION,
    "api/backend": ("ir/base", "ir", "ir/graph", "api/backend") + _API,
    "api/legacy/functions.h": ("api/spec", "ir/base"),
    "api/legacy/descriptors": ("ir/base", "ir", "ir/graph") + _API + _DESCRIPTORS,
    "api/legacy/plans": ("ir/base", "ir", "ir/graph", "api/session/recent.h", "api/legacy/descriptors",
                         "api/legacy/plans") + _API,
    "api/legacy/calls": ("ir/base", "ir", "ir/graph", "api/legacy/plans", "api/legacy/calls") + _DESCRIPTORS + _API,
    "api/lifecycle": ("ir/base", "runtime/cache", "api/backend", "api/legacy/descriptors", "api/legacy/plans",
                      "api/lifecycle") + _API + _FORK_GATE,
    "api/entry": ("include", "ir/base", "api/spec", "api/lifecycle", "api/backend", "api/legacy/functions.h",
                  "api/entry"),
    # Clients of the exported library.
    "api/miopen": ("include", "api/miopen"),
    "api/sublibraries": (),
    "cli": _CODEGEN + _COMPILER + _RUNTIME + _IR + _SESSION + ("api/tuning", "api/prefetch", "api/session", "cli"),
    "include": ("include",),
    # Beside and above: anything.
    "bench": None,
    "examples": None,
    "tests": None,
    "tools": None,
    "third_party": None,
}

# System headers that only some layers (and all with None above) may include.
SYSTEM_HEADERS = {
    re.compile(r"llvm(-c)?/"): ("codegen/llvm", "runtime/cpu"),
    re.compile(r"(cuda|cuda_\w+|nvrtc)(\.h|/.*)$|cudnn\w*\.h"): ("include", "api/spec", "api/entry"),
    re.compile(r"spdlog/"): ("ir/base",),
    re.compile(r"CLI/"): ("cli",),
    re.compile(r"xxhash\.h"): ("ir/base",),
}

CXX = (".h", ".cc", ".c", ".cuh", ".def", ".inc")
_INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def sources(root, suffixes):
    """Files of the tree with one of the suffixes, sorted; build outputs and hidden folders left out."""
    found = []
    for top in sorted(root.iterdir()):
        if top.name.startswith((".", "bazel-")) or top.name in ("build", "dist"):
            continue
        found += [top] if top.is_file() else [p for p in top.rglob("*") if p.is_file()]
    return [p for p in sorted(found) if p.suffix in suffixes and "__pycache__" not in p.parts]


def layer_of(path):
    """The row of a path written from the root: its own, or that of the longest folder; None for none."""
    if str(path) in LAYERS:
        return str(path)
    for folder in pathlib.PurePosixPath(path).parents:
        if str(folder) in LAYERS:
            return str(folder)
    return None


def check_layering(root):
    findings = []
    for path in sources(root, CXX):
        name = path.relative_to(root).as_posix()
        layer = layer_of(name)
        if layer is None:
            findings.append(f"{name}: its folder is not in the table of tests/style/checks.py")
            continue
        allowed = LAYERS[layer]
        if allowed is None:
            continue
        for match in _INCLUDE.finditer(path.read_text(errors="replace")):
            own, system = match.groups()
            if own and "/" not in own and layer == "include":
                continue  # public headers name their neighbours alone
            if own and layer_of(own) not in allowed:
                findings.append(f'{name}: includes "{own}"; {layer} may include {", ".join(allowed)}')
            for pattern, users in SYSTEM_HEADERS.items():
                if system and pattern.match(system) and layer not in users:
                    findings.append(f'{name}: includes <{system}>; only {", ".join(users)} may')
    return findings


# --- files ----------------------------------------------------------------------------------------------
MAX_LINES = 800
# Data, not code: generated headers, and the interface as tables.
LONG_FILES = (re.compile(r"include/"), re.compile(r"api/spec/.*\.(def|inc|tsv)$"))


def check_file_length(root):
    findings = []
    for path in sources(root, CXX + (".py", ".sh", ".bzl")):
        name = path.relative_to(root).as_posix()
        lines = path.read_text(errors="replace").count("\n")
        if lines > MAX_LINES and not any(p.match(name) for p in LONG_FILES):
            findings.append(f"{name}: {lines} lines, {MAX_LINES} are the limit")
    return findings


def check_headers(root):
    """#pragma once in headers; a source includes its own header first; a comment opens the header, or the
    source that has none."""
    findings = []
    for path in sources(root, (".h", ".cc", ".cuh")):
        name = path.relative_to(root).as_posix()
        if name.startswith("include/"):
            continue
        text = path.read_text(errors="replace")
        has_own_header = path.suffix == ".cc" and path.with_suffix(".h").exists()
        opening = text.lstrip().splitlines()[:3]
        if not has_own_header and not any(line.startswith(("//", "/*")) for line in opening):
            findings.append(f"{name}: starts without the comment that says what it is for")
        if path.suffix == ".h" and "#pragma once" not in text:
            findings.append(f"{name}: has no #pragma once")
        if has_own_header:
            own = path.with_suffix(".h").relative_to(root).as_posix()
            first = _INCLUDE.search(text)
            if not first or first.group(1) != own:
                findings.append(f'{name}: does not include "{own}" first')
    return findings


_FIRST_OWN = re.compile(r'(?:\s*//[^\n]*\n|\s*\n)*#include "([^"]+)"')


def check_mirror(root):
    """A test that opens with a header of the product stands where that header does, below tests/."""
    findings = []
    for path in sorted((root / "tests").rglob("*_test.cc")):
        name = path.relative_to(root / "tests")
        first = _FIRST_OWN.match(path.read_text(errors="replace"))
        header = pathlib.PurePosixPath(first.group(1)) if first else name
        if header.parts[0] == name.parts[0] and header.parent != pathlib.PurePosixPath(name.parent.as_posix()):
            findings.append(f"tests/{name.as_posix()}: tests {header}, whose tests stand in tests/{header.parent}")
    return findings


# --- the tool's output ----------------------------------------------------------------------------------
_PRINTS = re.compile(r"\bfmt::print\(|\bstd::(?:f?printf|puts|fputs|fwrite|cout|cerr)\b")


def check_console(root):
    """The tool prints through cli/console.h, which keeps the control bytes of others from the terminal."""
    findings = []
    for path in sorted((root / "cli").glob("*.cc")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path.name != "console.cc" and _PRINTS.search(line):
                findings.append(f"cli/{path.name}:{number}: prints past cli/console.h")
    return findings


# --- environment ----------------------------------------------------------------------------------------
_ENV_IN_CXX = re.compile(r'"(KILN_[A-Z][A-Z0-9_]*)"')
_ENV_IN_SHELL = re.compile(r"\b(KILN_[A-Z][A-Z0-9_]*)\b")
_ENV_IN_PYTHON = re.compile(r"""["'](KILN_[A-Z][A-Z0-9_]*)["'=]""")
# Names that are wrong on purpose, or macros that scripts generate.
_ENV_EXEMPT = ("tests/ir/base/env_test.cc", "tests/style/", "api/spec/", "tools/gen_env_doc.py")
# Settings of the test programs, which only tests may read (tests/support/runner.cc unsets its own before the
# library looks). They are no variables of Kiln's.
_ENV_OF_TESTS = "KILN_TEST_"


def _tool(name):
    path = pathlib.Path(__file__).resolve().parents[2] / f"tools/{name}.py"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # tools share code
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_env(root):
    generator = _tool("gen_env_doc")
    definition = (root / "ir/base/env.def").read_text()
    rows = generator.parse_rows(definition)
    names = {row[0] for row in rows}
    findings = []
    written = len(re.findall(r"^KILN_ENV\(", definition, re.M))
    if written != len(rows):
        findings.append(f"ir/base/env.def: {written} rows, of which {len(rows)} could be read")
    if [r[0] for r in rows] != [n for n in dict.fromkeys(r[0] for r in rows)]:
        findings.append("ir/base/env.def: a variable stands twice")
    for path in sources(root, CXX + (".sh", ".py")):
        name = path.relative_to(root).as_posix()
        if name == "ir/base/env.def" or name.startswith(_ENV_EXEMPT) or name.startswith("include/"):
            continue
        pattern = {".sh": _ENV_IN_SHELL, ".py": _ENV_IN_PYTHON}.get(path.suffix, _ENV_IN_CXX)
        for used in sorted(set(pattern.findall(path.read_text(errors="replace"))) - names):
            if name.startswith("tests/") and used.startswith(_ENV_OF_TESTS):
                continue
            findings.append(f"{name}: {used} is not in ir/base/env.def")
    for path, text in generator.expected_files(root).items():
        if not path.exists() or path.read_text() != text:
            findings.append(f"{path.relative_to(root)}: out of date; run tools/gen_env_doc.py")
    return findings


# --- coverage -------------------------------------------------------------------------------------------
def check_passes(root):
    """Every pass has its folder of text tests, named as the pass is in text: kebab-case."""
    findings = []
    for source in sorted((root / "compiler/passes").glob("*.cc")):
        name = source.stem.replace("_", "-")
        if not source.with_suffix(".h").exists() or "PassContext" not in source.read_text():
            continue  # a helper that passes share
        if not list((root / "tests/text" / name).glob("*.txt")):
            findings.append(f"{source.relative_to(root)}: tests/text/{name}/ has no .txt file")
    return findings


def check_ops(root):
    """Every op of the graph IR has a case or a text test that names it."""
    table = (root / "ir/graph/graph_ops.def").read_text()
    mnemonics = re.findall(r'^GRAPH_OP\(\s*\w+\s*,\s*"([^"]+)"', table, re.M)
    corpus = "\n".join(p.read_text(errors="replace") for folder in ("tests/cases", "tests/text")
                       for p in sorted((root / folder).rglob("*.txt")))
    words = set(re.findall(r"[A-Za-z_][\w.]*", corpus))
    findings = [] if mnemonics else ["ir/graph/graph_ops.def: no op could be read"]
    for mnemonic in mnemonics:
        if mnemonic not in words:
            findings.append(f"ir/graph/graph_ops.def: {mnemonic} is in no file of tests/cases or tests/text")
    return findings


def check_support(root):
    """docs/support.md follows from bench/results/tested.json and the cases."""
    generator = _tool("gen_support")
    if (root / generator.PAGE).read_text() == generator.page(root):
        return []
    return [f"{generator.PAGE}: out of date; run tools/gen_support.py"]


def check_functions(root):
    """The table of functions and their parameters as JSON follow from api/spec and what tests were seen to call."""
    return [f"{path}: out of date; run tools/gen_functions.py" for path in _tool("gen_functions").stale(root)]


# --- pages ----------------------------------------------------------------------------------------------
# Pages that somebody reads from begin to end.
PAGE_LINES = {"README.md": 150, "docs/architecture.md": 200}
_LINK = re.compile(r"\]\(([^()\s]+)\)")
# A file of the tree, named from its root, from docs/, or as programs include it.
_FILE = re.compile(r"`([a-z_0-9]+/[\w./-]+\.(?:h|cc|c|cuh|def|inc|py|sh|md|tsv|txt|json|kiln))`")
_FILE_ROOTS = ("", "docs", "include")


def check_markdown(root):
    """Paragraphs of pages have at most 120 columns, front pages few lines; links lead to files, and files that are named
    are there."""
    wrap = _tool("wrap_markdown")
    findings = []
    for path in sources(root, (".md",)):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        findings += [f"{name}:{number}: {columns} columns, {wrap.COLUMNS} are the limit; run tools/wrap_markdown.py {name}"
                     for number, columns in wrap.too_long(text)]
        lines = text.count("\n")
        if lines > PAGE_LINES.get(name, lines):
            findings.append(f"{name}: {lines} lines, {PAGE_LINES[name]} are the limit")
        for number, line in wrap.lines_of_text(text, with_rows=True):
            for target in _LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if "://" not in target and not (path.parent / target.split("#")[0]).exists():
                    findings.append(f"{name}:{number}: links to {target}, which does not exist")
            if name.startswith("docs/log/"):
                continue  # history
            for file in _FILE.findall(line):
                if not any((root / folder / file).exists() for folder in _FILE_ROOTS):
                    findings.append(f"{name}:{number}: names {file}, which does not exist")
    return findings


def check_index(root):
    """docs/README.md says of every page in docs/ who reads it."""
    index = root / "docs/README.md"
    if not index.exists():
        return ["docs/README.md: does not exist; it lists the pages of docs/"]
    listed = {target.split("#")[0] for target in _LINK.findall(index.read_text())}
    pages = [p for p in sorted((root / "docs").rglob("*.md")) if p != index]
    return [f"docs/README.md: does not list {name}" for name in (p.relative_to(index.parent).as_posix() for p in pages)
            if name not in listed and not (name.startswith("log/") and "log/README.md" in listed)]


# --- code -----------------------------------------------------------------------------------------------
def _texts(root, suffixes):
    """(name, text) of the sources that people write."""
    for path in sources(root, suffixes):
        name = path.relative_to(root).as_posix()
        if not name.startswith("include/"):
            yield name, path.read_text(errors="replace")


def check_extents(root):
    return cxx_rules.check_extents(root, _texts(root, (".h", ".cc", ".cuh")))


def check_comments(root):
    return cxx_rules.check_comments(root, _texts(root, (".h", ".cc", ".cuh", ".def", ".py", ".sh", ".bzl")))


def check_rows(root):
    return cxx_rules.check_rows(root, _texts(root, (".h", ".cc")))


def check_rates(root):
    return cxx_rules.check_rates(_texts(root, (".h", ".cc")))


CHECKS = {
    "layering": check_layering,
    "file_length": check_file_length,
    "headers": check_headers,
    "mirror": check_mirror,
    "console": check_console,
    "env": check_env,
    "passes": check_passes,
    "ops": check_ops,
    "support": check_support,
    "functions": check_functions,
    "markdown": check_markdown,
    "index": check_index,
    "extents": check_extents,
    "comments": check_comments,
    "rates": check_rates,
    "rows": check_rows,
}


def main(arguments):
    root = pathlib.Path(arguments[0]).resolve()
    findings = [finding for name in arguments[1:] for finding in CHECKS[name](root)]
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
