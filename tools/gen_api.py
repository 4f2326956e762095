#!/usr/bin/env python3
"""Generates everything that follows from the description of the C interface in api/spec/*.tsv.

    tools/gen_api.py            writes the files
    tools/gen_api.py --check    fails, naming them, if files on disk differ from what would be written

Written: the public headers include/v8/*.h and include/v9/*.h; the version scripts
api/spec/libcudnn.so.{8,9}.map; the C++ tables api/spec/{status_v8,status_v9,names}.inc; and of the functions of
legacy.tsv, which says what each parameter is, the declarations for the core and the exported functions that call it,
api/spec/legacy_{functions,entries}.inc; the exported functions that refuse every call, api/spec/refused_entries.inc;
what the API log prints of each exported function's arguments, api/spec/{arguments,enum_names}.inc;
and the sub-libraries of each generation, api/sublibraries/. All of it is
committed, so that a build needs no Python; a test runs --check.
"""

import argparse
import csv
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPEC = ROOT / "api" / "spec"

# Headers of a generation: (file, what it declares, our headers it includes), in order of inclusion.
HEADERS = {
    8: [
        ("cudnn_ops_infer.h", "handles, legacy tensors and the operations that inference needs",
         ["cudnn_version.h"]),
        ("cudnn_ops_train.h", "operations that only training needs", ["cudnn_version.h", "cudnn_ops_infer.h"]),
        ("cudnn_adv_infer.h", "recurrent networks and attention, forward",
         ["cudnn_version.h", "cudnn_ops_infer.h"]),
        ("cudnn_adv_train.h", "recurrent networks, attention and CTC, backward",
         ["cudnn_version.h", "cudnn_ops_infer.h", "cudnn_ops_train.h", "cudnn_adv_infer.h"]),
        ("cudnn_cnn_infer.h", "convolutions, forward and data gradient", ["cudnn_version.h", "cudnn_ops_infer.h"]),
        ("cudnn_cnn_train.h", "convolutions, filter gradient, and fused operations",
         ["cudnn_version.h", "cudnn_ops_infer.h", "cudnn_ops_train.h", "cudnn_cnn_infer.h"]),
        ("cudnn_backend.h", "the backend API: graphs of operations as descriptors with attributes",
         ["cudnn_version.h", "cudnn_cnn_infer.h"]),
    ],
    9: [
        ("cudnn_graph.h", "handles and the backend API: graphs of operations as descriptors with attributes",
         ["cudnn_version.h"]),
        ("cudnn_ops.h", "legacy tensor operations", ["cudnn_version.h", "cudnn_graph.h"]),
        ("cudnn_adv.h", "recurrent networks, attention and CTC", ["cudnn_version.h", "cudnn_ops.h"]),
        ("cudnn_cnn.h", "legacy convolutions and fused operations", ["cudnn_version.h", "cudnn_ops.h"]),
        ("cudnn_subquadratic_ops.h", "causal convolutions along a sequence", ["cudnn_version.h", "cudnn_ops.h"]),
        ("cudnn_gnn_ops.h", "aggregation and attention over the edges of graphs",
         ["cudnn_version.h", "cudnn_ops.h"]),
    ],
}

# Headers that only include others.
FORWARDERS = {
    8: {"cudnn.h": ["cudnn_version.h"] + [name for name, _, _ in HEADERS[8]]},
    9: {"cudnn.h": ["cudnn_version.h"] + [name for name, _, _ in HEADERS[9]],
        "cudnn_backend.h": ["cudnn_graph.h"]},
}

# The libraries beside libcudnn.so of a generation, and the headers whose functions they export. 9 has further ones that
# export none: programs open them by name, or name them to the linker.
SUBLIBRARIES = {
    8: {"ops_infer": ["cudnn_ops_infer.h"], "ops_train": ["cudnn_ops_train.h"],
        "cnn_infer": ["cudnn_cnn_infer.h", "cudnn_backend.h"], "cnn_train": ["cudnn_cnn_train.h"],
        "adv_infer": ["cudnn_adv_infer.h"], "adv_train": ["cudnn_adv_train.h"]},
    9: {"graph": ["cudnn_graph.h"], "ops": ["cudnn_ops.h"], "cnn": ["cudnn_cnn.h"], "adv": ["cudnn_adv.h"],
        "heuristic": [], "engines_precompiled": [], "engines_runtime_compiled": [], "engines_tensor_ir": [],
        "ext": ["cudnn_subquadratic_ops.h", "cudnn_gnn_ops.h"]},
}

# Which header defines a macro: the first pattern that matches its name. {base} is the first header of the list.
DEFINE_HOMES = [
    (r"CUDNN_(OPS|CNN|ADV|GRAPH)(_INFER|_TRAIN)?_(MAJOR|MINOR|PATCH)$", None),  # the header of that name
    (r"CUDNN_(MAJOR|MINOR|PATCHLEVEL|VERSION|.*_DEVICE_VERSION|MAX_SM_.*|SM_.*)$", "cudnn_version.h"),
    (r"CUDNN_(RNN|ATTN|SEQDATA)_", {8: "cudnn_adv_infer.h", 9: "cudnn_adv.h"}),
    (r"CUDNN_(LRN|BN)_", {8: "cudnn_ops_infer.h", 9: "cudnn_ops.h"}),
    (r"", {8: "cudnn_ops_infer.h", 9: "cudnn_graph.h"}),
]

# Enums whose constants messages spell out: table name -> enum.
NAMED_ENUMS = {
    "kAttributeNames": "cudnnBackendAttributeName_t",
    "kAttributeTypes": "cudnnBackendAttributeType_t",
    "kDescriptorTypes": "cudnnBackendDescriptorType_t",
    "kDataTypes": "cudnnDataType_t",
    "kPointwiseModes": "cudnnPointwiseMode_t",
    "kReductionOperators": "cudnnReduceTensorOp_t",
    "kKnobTypes": "cudnnBackendKnobType_t",
    "kHeurModes": "cudnnBackendHeurMode_t",
    "kOperationGraphModes": "cudnnBackendOperationGraphMode_t",
}

NOTICE = "Generated by tools/gen_api.py from api/spec; edit those, not this file."


def read(name):
    with open(SPEC / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def evaluate(value):
    return int(value, 0)


class Spec:
    def __init__(self):
        self.functions = read("functions.tsv")
        self.types = read("types.tsv")
        self.defines = read("defines.tsv")
        self.statuses = read("statuses.tsv")
        self.legacy = read("legacy.tsv")
        self.deprecated = {row["name"] for row in read("deprecated.tsv")}  # in 9
        self.nulls = read("nulls.tsv")
        self.enums = {}
        for row in read("enums.tsv"):
            self.enums.setdefault(row["enum"], []).append(row)

    def constants(self, enum, generation):
        """(name, value) of an enum, by value; constants of one value keep the order of the table."""
        rows = [(row["constant"], evaluate(row[f"value_{generation}"]))
                for row in self.enums[enum] if row[f"value_{generation}"]]
        return sorted(rows, key=lambda row: row[1])

    def mark(self, name, generation, macro="CUDNN_DEPRECATED"):
        """The macro behind a deprecated name, else nothing."""
        return f" {macro}" if generation == 9 and name in self.deprecated else ""

    def names(self, enum, generation):
        """One name for each value: the last of the table, since older names of a value stand first."""
        return [(name, value) for value, name in {v: n for n, v in self.constants(enum, generation)}.items()]

    def exported(self, generation):
        return sorted(row["function"] for row in self.functions
                      if row[f"in_{generation}"] and row["implemented"])


# Roles of a parameter for its function, in legacy.tsv: the object that it names is read, created, set or destroyed; a
# number is a value; memory of the host is read or written; memory of the device is read, written, or both. Behind
# memory stands how much of it: a number of elements (of bytes where the parameter is a void pointer without a
# descriptor), or the descriptor that describes it.
ROLES = {"read", "create", "set", "destroy", "value", "in", "out", "inout", "device_in", "device_out", "device_inout"}
EFFECTS = {"create", "destroy", "set", "query", "compute"}


def parameters_of(row):
    """(type, name) of each."""
    inside = re.match(r".*?\((.*)\)$", row["signature"]).group(1)
    return [re.match(r"(.*?) ?(\w+)$", p).groups() for p in inside.split(", ")] if inside else []


def check_legacy(spec):
    """Sentences about rows of legacy.tsv that do not fit to functions.tsv."""
    functions = {row["function"]: row for row in spec.functions}
    for row in spec.legacy:
        function, problem = functions.get(row["function"]), f"legacy.tsv: {row['function']}: "
        if function is None or function["implemented"] != "y":
            yield problem + "functions.tsv has no such function, or does not have it as implemented"
            continue
        if row["effect"] not in EFFECTS:
            yield problem + f"effect {row['effect']} is none of {sorted(EFFECTS)}"
        names = [name for _, name in parameters_of(function)]
        roles = [re.match(r"(\w+)=(\w+)(?:\[(.+)\])?$", p) for p in row["parameters"].split("; ")]
        if [role and role.group(1) for role in roles] != names:
            yield problem + f"the parameters are {names}"
            continue
        for role in roles:
            if role.group(2) not in ROLES:
                yield problem + f"{role.group(1)} is {role.group(2)}, which is none of {sorted(ROLES)}"
            if role.group(2) in {"create", "destroy"}:
                continue  # one object, or an array of as many as the brackets say
            if (role.group(3) is not None) != ("in" in role.group(2) or "out" in role.group(2)):
                yield problem + f"{role.group(1)}: memory, and nothing else, has a size"


# Answers of 9.19 where one argument is NULL and all others are valid, in nulls.tsv, and ours: the same, and
# BAD_PARAM_NULL_POINTER where it crashes. `case` names other valid arguments than the plain ones. A row that is checked
# by the entry holds whatever the other arguments are; what depends on them is the call's.
NULL_ANSWERS = {"SUCCESS": None, "NOT_SUPPORTED": None, "BAD_PARAM": "kBadParam",
                "BAD_PARAM_NULL_POINTER": "kNullPointer"}


def check_nulls(spec):
    """Sentences about rows of nulls.tsv that do not fit to functions.tsv and legacy.tsv, or to each other."""
    functions = {row["function"]: row for row in spec.functions}
    legacy = {row["function"] for row in spec.legacy}
    for row in spec.nulls:
        problem = f"nulls.tsv: {row['function']} {row['case']} {row['parameter']}: "
        if row["parameter"] not in [name for _, name in parameters_of(functions[row["function"]])]:
            yield problem + "no such parameter"
        if row["answer"] not in NULL_ANSWERS or row["by"] not in {"entry", "call"}:
            yield problem + f"answer {row['answer']} by {row['by']}"
        if row["by"] == "entry" and (row["case"] or row["function"] not in legacy or not NULL_ANSWERS[row["answer"]]):
            yield problem + "the entry checks the plain case of legacy functions, and what is refused"
        same = row["answer"] == row["nvidia_9_19"] or row["nvidia_9_19"] == "crashes"
        if same == bool(row["note"]) and row["nvidia_9_19"] != "SUCCESS":
            yield problem + "a note says why the answer is another, and nothing else"


def banner(title, extra=""):
    text = textwrap.wrap(title, 96)
    lines = text + ([""] + textwrap.wrap(extra, 96) if extra else []) + ["", NOTICE]
    return "/*\n" + "\n".join((" * " + line).rstrip() for line in lines) + "\n */\n"


def guard(name, generation):
    """The macro by which a program sees that a header was included: NVIDIA's, for those that NVIDIA has."""
    macro = re.sub(r"\W", "_", name).upper() + "_"
    if name.startswith("kiln"):
        return f"KILN_V{generation}_{macro}"
    return f"_{macro}" if name == "cudnn_backend.h" else macro


def wrap_header(name, generation, text):
    macro = guard(name, generation)
    return f"{text}#ifndef {macro}\n#define {macro}\n\n%s\n#endif /* {macro} */\n"


def emit_enum(name, doc, spec, generation):
    constants = [(constant + spec.mark(constant, generation, "CUDNN_DEPRECATED_ENUM"), value)
                 for constant, value in spec.constants(name, generation)]
    width = max(len(constant) for constant, _ in constants)
    body = "\n".join(f"  {constant:<{width}} = {value}," for constant, value in constants)
    return f"/* {doc} */\ntypedef enum {{\n{body}\n}} {name}{spec.mark(name, generation)};\n"


def emit_struct(name, doc, definition, mark):
    tag, fields = definition.split(": ", 1)
    union = re.match(r"union (\w+) \{ (.*) \} (\w+)$", fields)
    if union:
        members = "".join(f"    {field};\n" for field in union.group(2).rstrip("; ").split("; "))
        body = f"  union {union.group(1)} {{\n{members}  }} {union.group(3)};\n"
    else:
        body = "".join(f"  {field};\n" for field in fields.split("; "))
    return f"/* {doc} */\ntypedef struct {tag} {{\n{body}}} {name}{mark};\n"


def emit_type(row, spec, generation):
    kind, name, doc, definition = row["kind"], row["name"], row["doc"], row["definition"]
    mark = spec.mark(name, generation)
    if kind == "enum":
        return emit_enum(name, doc, spec, generation)
    if kind == "struct":
        return emit_struct(name, doc, definition, mark)
    if kind == "opaque":
        return f"/* {doc} */\ntypedef struct {definition} {name}{mark};\n"
    if kind == "handle":
        target = f"struct {definition} *" if definition else "void *"
        return f"/* {doc} */\ntypedef {target}{name}{mark};\n"
    return f"/* {doc} */\ntypedef {definition}{mark};\n"


# The column `implemented` as words of the header: a function is there, or exported and answers NOT_SUPPORTED whatever
# it is asked, or not exported.
EXPORTED_AS = {"y": "", "refused": "Not supported yet.", "": "Declared only."}


def emit_function(row, spec, generation):
    signature = (row["signature_9_if_different"] if generation == 9 else "") or row["signature"]
    result, parameters = re.match(r"(.*?)\((.*)\)$", signature).groups()
    parameters = [re.sub(r"\* (?=\w)", "*", p) for p in parameters.split(", ")] if parameters else ["void"]
    section = f"Reference {row['reference_section']}." if row["reference_section"] else ""
    note = " ".join(filter(None, [section, EXPORTED_AS[row["implemented"]]]))
    mark = spec.mark(row["function"], generation).strip()
    head = f"{mark} {result} CUDNNWINAPI {row['function']}(".replace("* ", "*").lstrip()
    lines = [""]
    for parameter in [p + ", " for p in parameters[:-1]] + parameters[-1:]:
        if len(lines[-1] + parameter) > 94:
            lines.append("")
        lines[-1] += parameter
    joined = head + ", ".join(parameters) + ");"
    if len(joined) > 100:
        joined = head + "\n" + "\n".join("    " + line.rstrip() for line in lines) + ");"
    return (f"/* {note} */\n" if note else "") + joined + "\n"


def define_home(name, generation):
    for pattern, home in DEFINE_HOMES:
        match = re.match(pattern, name.split("(")[0])
        if not match:
            continue
        if home is None:
            return "cudnn_" + (match.group(1) + (match.group(2) or "")).lower() + ".h"
        return home if isinstance(home, str) else home[generation]
    raise AssertionError(name)


def emit_defines(spec, header, generation):
    rows = [(row["define"], row[f"value_{generation}"]) for row in spec.defines
            if row[f"value_{generation}"] and define_home(row["define"], generation) == header]
    return "".join(f"#define {name} {value}\n" for name, value in rows)


DECLARED_ONLY = ("A function marked 'Declared only' is part of the interface but not yet in the library, which does "
                 "not export it: a program that calls it compiles and fails to link.")

# Warnings are asked for by the client's CUDNN_WARN_DEPRECATED. 8.9 has no such macro for enumerators.
DEPRECATION = {
    8: ["CUDNN_DEPRECATED"],
    9: ["CUDNN_DEPRECATED", "CUDNN_DEPRECATED_ENUM"],
}


def deprecation(generation):
    def define(attribute):
        return "".join(f"#define {name} {attribute}".rstrip() + "\n" for name in DEPRECATION[generation])

    return ("#if defined(CUDNN_WARN_DEPRECATED) && defined(__GNUC__)\n" + define("__attribute__((deprecated))") +
            "#elif defined(CUDNN_WARN_DEPRECATED) && defined(_MSC_VER)\n" + define("__declspec(deprecated)") +
            "#elif defined(CUDNN_WARN_DEPRECATED) && defined(__cplusplus) && __cplusplus >= 201402L\n" +
            define("[[deprecated]]") + "#else\n" + define("") + "#endif\n")


def version_check(header, defines):
    """A header beside others of another version is a mistake of an installation."""
    match = re.search(r"CUDNN_(\w+)_MAJOR", defines)
    if not match or header == "cudnn_version.h":
        return ""
    part = f"CUDNN_{match.group(1)}"
    return (f"#if {part}_MAJOR != CUDNN_MAJOR || {part}_MINOR != CUDNN_MINOR || {part}_PATCH != CUDNN_PATCHLEVEL\n"
            f'#error "{header} and cudnn_version.h are of different versions"\n#endif\n')


# CUDA's headers that those of cuDNN include, the first whose files are there: 8.9's have the C++ overloads of the runtime
# too, and include a header of the compiler's, which may not be installed with the runtime's.
CUDA_HEADERS = {
    8: [(["cuda_runtime.h", "crt/host_config.h"], ["cuda_runtime.h"]),
        (["cuda_runtime_api.h", "library_types.h"], ["cuda_runtime_api.h", "library_types.h"])],
    9: [(["cuda_runtime_api.h", "library_types.h"], ["cuda_runtime_api.h", "library_types.h"])],
}

CUDA_TYPES = """\
#if defined(__has_include)
%s\
#endif
#endif

#ifndef KILN_HAS_CUDA_HEADERS_
/* Streams and graphs are pointers to the driver's objects, so the runtime's and the driver's are the same. */
typedef struct CUstream_st *cudaStream_t;
typedef struct CUgraph_st *cudaGraph_t;

typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
#endif
"""


def cuda_types(generation):
    choices = ""
    for files, includes in CUDA_HEADERS[generation]:
        choices += "#elif " if choices else "#if "
        choices += " && ".join(f"__has_include(<{file}>)" for file in files) + "\n"
        choices += "".join(f"#include <{header}>\n" for header in includes) + "#define KILN_HAS_CUDA_HEADERS_ 1\n"
    return CUDA_TYPES % choices


def public_headers(spec, generation):
    out = {}
    defines = {row["define"]: row[f"value_{generation}"] for row in spec.defines}
    version = ".".join(defines[f"CUDNN_{part}"] for part in ("MAJOR", "MINOR", "PATCHLEVEL"))

    def put(name, title, body, extra=""):
        text = banner(f"{name}: {title}. Compatible with cuDNN {version}.", extra)
        out[f"include/v{generation}/{name}"] = wrap_header(name, generation, text).replace("%s", body, 1)

    put("cudnn_version.h", "the version of the interface", emit_defines(spec, "cudnn_version.h", generation))
    put("kiln_cuda_types.h", "the types of CUDA that the interface names",
        cuda_types(generation), "CUDA's own headers where the compiler finds them, else declarations of the same types.")
    for name, title, includes in HEADERS[generation]:
        parts = []
        if name == HEADERS[generation][0][0]:
            parts.append("#include <stddef.h>\n#include <stdint.h>\n")
            parts.append("".join(f'#include "{i}"\n' for i in includes + ["kiln_cuda_types.h"]))
            parts.append("#ifndef CUDNNWINAPI\n#define CUDNNWINAPI\n#endif\n")
            parts.append(deprecation(generation))
        else:
            parts.append("".join(f'#include "{i}"\n' for i in includes))
        macros = emit_defines(spec, name, generation)
        if macros:
            parts.append(macros)
            parts += [check for check in [version_check(name, macros)] if check]
        parts.append('#ifdef __cplusplus\nextern "C" {\n#endif\n')
        parts += [emit_type(row, spec, generation) for row in spec.types if row[f"header_{generation}"] == name]
        parts += [emit_function(row, spec, generation) for row in spec.functions
                  if row[f"in_{generation}"] and row[f"header_{generation}"] == name]
        parts.append("#ifdef __cplusplus\n}\n#endif\n")
        put(name, title, "\n".join(parts), DECLARED_ONLY)
    for name, includes in FORWARDERS[generation].items():
        put(name, "the whole interface" if name == "cudnn.h" else "the backend API, which cudnn_graph.h declares",
            "".join(f'#include "{i}"\n' for i in includes))
    return out


def version_script(spec, generation):
    names = "".join(f"    {name};\n" for name in spec.exported(generation))
    return f"# {NOTICE}\nlibcudnn.so.{generation} {{\n  global:\n{names}  local:\n    *;\n}};\n"


def sublibrary(spec, generation, headers, soname):
    """The version script of a sub-library, and its jumps into libcudnn.so."""
    functions = sorted(row["function"] for row in spec.functions
                       if row[f"in_{generation}"] and row["implemented"] and row[f"header_{generation}"] in headers)
    exports = "  global:\n" + "".join(f"    {name};\n" for name in functions) if functions else ""
    jumps = "".join(f"FORWARD({name})\n" for name in functions)
    return (f"# {NOTICE}\n{soname} {{\n{exports}  local:\n    *;\n}};\n",
            f"/* {NOTICE} */\n#define LIBRARY libcudnn.so.{generation}\n"
            f'#include "api/sublibraries/forward.inc"\n{jumps}')


def rows_of(table, rows):
    return f"inline constexpr {table}[] = {{\n" + "".join(f"    {row},\n" for row in rows) + "};\n"


def status_tables(spec, generation):
    codes = rows_of("StatusRow kStatusRows",
                    (f"{{Code::{row['code']}, {row[f'status_{generation}']}}}" for row in spec.statuses))
    names = rows_of("StatusName kStatusNames",
                    (f'{{{name}, "{name}"}}' for name, _ in spec.names("cudnnStatus_t", generation)))
    return f"// {NOTICE}\n// Included by api/entry/status_map.cc of generation {generation}.\n{codes}\n{names}"


def name_tables(spec):
    tables = [rows_of(f"EnumName {table}", (f'{{{value}, "{name}"}}' for name, value in spec.names(enum, 9)))
              for table, enum in NAMED_ENUMS.items()]
    return f"// {NOTICE}\n// Included by api/spec/names.cc: the constants of generation 9, ascending.\n" + "\n".join(tables)


def core_parameter(kind_of, type_, name):
    """(type, argument) of a parameter as the core has it, which knows no type of the public headers."""
    base = type_.replace("const ", "").replace("*", "").strip()
    kind, pointer = kind_of.get(base), "*" in type_
    if base == "cudaStream_t":
        return "void*", name
    is_const = type_.startswith("const ")
    if kind == "handle" and pointer:
        core = "void* const*" if is_const else "void**"
        return core, f"reinterpret_cast<{core}>({name})"
    if kind == "handle":
        return "void*", name
    if kind == "enum" and pointer:
        core = "const int*" if is_const else "int*"
        return core, f"reinterpret_cast<{core}>({name})"
    if kind == "enum":
        return "int", f"api::Number({name})"
    if kind == "struct":
        return ("const void*" if is_const or not pointer else "void*"), (name if pointer else f"&{name}")
    return re.sub(r"^const (?=\w+$)", "", type_).replace(" *", "*"), name


# The type that the API log prints of a number, as 9.19 prints it, and how its bytes are read.
SCALARS = {
    "int": ("int", "kInt32"), "int32_t": ("int", "kInt32"), "int64_t": ("int64_t", "kInt64"),
    "uint32_t": ("unsigned", "kUint32"), "unsigned int": ("unsigned", "kUint32"), "size_t": ("size_t", "kUint64"),
    "unsigned long long": ("unsigned long long", "kUint64"), "float": ("float", "kFloat"),
    "double": ("double", "kDouble"), "libraryPropertyType": ("int", "kInt32"),
}
# Counts of dimensions: arrays of more are refused before they are read.
DIMENSION_COUNTS = {"nbDims", "arrayLength"}


def argument_row(kind_of, role, size, type_, names, types, name):
    """(type that the log prints, form, scalar, index of the argument that `size` names, what is added to it)."""
    base = re.sub(r"\bconst\b|\*", "", type_).strip()
    kind, is_pointer = kind_of.get(base), "*" in type_
    shown, scalar = SCALARS.get(base, (base, "kEnum" if kind == "enum" else "kPointer"))

    def row(form, scalar="kPointer", at=-1, add=0):
        return shown, form, scalar, at, add

    if not is_pointer:
        if kind == "struct":
            return row("kValue", "kInt32")  # cudnnAlgorithm_t: a union of enumerations
        if base in SCALARS or kind == "enum":
            return row("kValue", scalar)
        if kind == "handle":
            return row("kRead" if role == "read" else "kObject")
        return row("kObject" if base in {"cudaStream_t", "cudaGraph_t"} else "kHost")
    if role.startswith("device_"):
        return row("kDevice")
    if role == "create":
        return row("kMade", at=names.index(size) if size else -1)
    is_attribute = base == "void" and "attributeType" in names
    if is_attribute:
        return row("kElements" if role == "in" else "kFilled")
    if role != "in":
        return row("kHost")
    if base == "void" and size == "1":  # a factor, of the type that its tensor's is scaled by, or an element
        describing = [i for i, t in enumerate(types) if t == "cudnnDataType_t"]
        describing += [i for i, t in enumerate(types) if re.search("cudnn(Tensor|Filter)Descriptor_t", t)]
        return row("kFactor" if re.match("alpha|beta", name) else "kElement", at=describing[0])
    counted = re.match(r"(\w+)(?: (- \d+))?$", size)
    if base == "void" or not counted or counted.group(1) not in names:
        return row("kHost")
    count = names.index(counted.group(1))
    if types[count].split()[-1] not in SCALARS:
        return row("kHost")
    return row("kDims" if counted.group(1) in DIMENSION_COUNTS else "kArray", scalar, count,
               int((counted.group(2) or "0").replace(" ", "")))


class Words:
    """Words of a table, each once in one string and named by its place there: tables of pointers would cost each
    program that loads the library the relocation of every one."""

    def __init__(self, name):
        self.name, self.places, self.size = name, {}, 0

    def at(self, word):
        if word not in self.places:
            self.places[word] = self.size
            self.size += len(word) + 1
        return self.places[word]

    def text(self):
        lines = "".join(f'\n    "{word}\\0"' for word in self.places)
        return f"inline constexpr char {self.name}[] ={lines};\n"


def argument_table(spec):
    """For each exported function what the API log prints of its arguments: from its signature, and from what
    legacy.tsv and roles.tsv say that each parameter is."""
    kind_of = {row["name"]: row["kind"] for row in spec.types}
    functions = {row["function"]: row for row in spec.functions if row["implemented"]}
    words, parameters, table = Words("kWords"), [], []
    for row in sorted(spec.legacy + read("roles.tsv"), key=lambda row: row["function"]):
        function = functions[row["function"]]
        types, names = map(list, zip(*parameters_of(function))) if parameters_of(function) else ([], [])
        roles = [re.match(r"\w+=(\w+)(?:\[(.+)\])?$", p).groups() for p in row["parameters"].split("; ") if p]
        last = dict(function, signature=function["signature_9_if_different"] or function["signature"])
        table.append(f'{{{words.at(row["function"])}, {len(parameters)}, {len(names)}}}')
        for i, ((role, size), (_, name)) in enumerate(zip(roles, parameters_of(last), strict=True)):
            shown, form, scalar, at, less = argument_row(kind_of, role, size, types[i], names, types, names[i])
            parameters.append(f'{{{words.at(name)}, {words.at(shown)}, Form::{form}, Scalar::{scalar}, {at}, {less}}}')
    return (f"// {NOTICE}\n// Included by api/lifecycle/call_log.cc; functions ascend by name.\n" +
            words.text() + "\n" + rows_of("ParameterRow kParameters", parameters) + "\n" +
            rows_of("FunctionRow kFunctions", table))


def enum_names(spec):
    """Every enumeration's constants by value: those of 9, and those that 8 alone has. Statuses, whose values differ,
    are in status_v8.inc and status_v9.inc."""
    words, names, table = Words("kWords"), [], []
    for enum in sorted(spec.enums):
        if enum == "cudnnStatus_t":
            continue
        constants = {value: name for generation in (8, 9) for name, value in spec.names(enum, generation)}
        table.append(f'{{{words.at(enum)}, {len(names)}, {len(constants)}}}')
        names += [f"{{{value}, {words.at(name)}}}" for value, name in sorted(constants.items())]
    return (f"// {NOTICE}\n// Included by api/lifecycle/call_log_values.cc; enumerations ascend by name.\n" +
            words.text() + "\n" + rows_of("ConstantRow kConstants", names) + "\n" + rows_of("EnumRow kEnums", table))


def legacy_functions(spec):
    """Declarations of the core's functions, and the exported ones that call them."""
    functions = {row["function"]: row for row in spec.functions}
    kind_of = {row["name"]: row["kind"] for row in spec.types}
    needed = {}
    for row in spec.nulls:
        if row["by"] == "entry":
            needed.setdefault(row["function"], []).append((row["parameter"], NULL_ANSWERS[row["answer"]]))
    declarations, entries = [], []
    for row in spec.legacy:
        function = functions[row["function"]]
        name = row["function"].removeprefix("cudnn")
        core = [core_parameter(kind_of, *parameter) for parameter in parameters_of(function)]
        types = ", ".join(f"{type_} {name_}" for (type_, _), (_, name_) in zip(core, parameters_of(function)))
        declarations.append(f"Status {name}({types});\n")
        public = ", ".join(f"{type_} {name_}".replace("* ", "*") for type_, name_ in parameters_of(function))
        arguments = ", ".join(argument for _, argument in core)
        given = "".join(f", {name_}" for _, name_ in parameters_of(function))
        check = ""
        if pointers := needed.get(row["function"]):
            rows = ", ".join(f'{{{parameter}, "{parameter}", Code::{code}}}' for parameter, code in pointers)
            check = (f"    if ({' || '.join(f'{parameter} == nullptr' for parameter, _ in pointers)}) [[unlikely]]\n"
                     f"      return api::NullArgument({{{rows}}});\n")
        entry = (f"KILN_EXPORT cudnnStatus_t cudnn{name}({public}) {{\n"
                 f'  return api::Entry("cudnn{name}", [&] {{\n{check}'
                 f"    return api::legacy::{name}({arguments});\n  }}{given});\n}}\n")
        only = [generation for generation in (8, 9) if function[f"in_{generation}"]]
        entries.append(entry if len(only) == 2 else f"#if CUDNN_MAJOR == {only[0]}\n{entry}#endif\n")
    return (f"// {NOTICE}\n// Included by api/legacy/functions.h.\n" + "".join(declarations),
            f"// {NOTICE}\n// Included by api/entry/legacy.cc.\n" + "\n".join(entries))


def refused_entries(spec):
    """The exported functions of generation 9 that refuse every call."""
    entries = []
    for row in spec.functions:
        if row["implemented"] != "refused":
            continue
        parameters = ", ".join(f"{type_} {name}".replace("* ", "*") for type_, name in parameters_of(row))
        given = "".join(f", {name}" for _, name in parameters_of(row))
        entries.append(f"KILN_EXPORT cudnnStatus_t {row['function']}({parameters}) {{\n"
                       f'  return api::Entry("{row["function"]}", NotYet{given});\n}}\n')
    return f"// {NOTICE}\n// Included by api/entry/refused.cc.\n" + "\n".join(entries)


def legacy_roles(spec):
    """Each function of the core with its parameters' public types and roles, for tests that call them all."""
    functions = {row["function"]: row for row in spec.functions}
    rows = []
    for row in spec.legacy:
        types = [type_ for type_, _ in parameters_of(functions[row["function"]])]
        roles = "; ".join(f"{type_} {role}" for type_, role in zip(types, row["parameters"].split("; ")))
        rows.append(f'LEGACY_FUNCTION({row["function"].removeprefix("cudnn")}, "{roles}")\n')
    return f"// {NOTICE}\n// Included by tests/fuzz.\n" + "".join(rows)


def generate(spec):
    out = {"api/spec/names.inc": name_tables(spec), "api/spec/legacy_roles.inc": legacy_roles(spec),
           "api/spec/refused_entries.inc": refused_entries(spec), "api/spec/arguments.inc": argument_table(spec),
           "api/spec/enum_names.inc": enum_names(spec)}
    out["api/spec/legacy_functions.inc"], out["api/spec/legacy_entries.inc"] = legacy_functions(spec)
    for generation in (8, 9):
        out.update(public_headers(spec, generation))
        out[f"api/spec/libcudnn.so.{generation}.map"] = version_script(spec, generation)
        out[f"api/spec/status_v{generation}.inc"] = status_tables(spec, generation)
        for part, headers in SUBLIBRARIES[generation].items():
            soname = f"libcudnn_{part}.so.{generation}"
            script, jumps = sublibrary(spec, generation, headers, soname)
            out[f"api/sublibraries/{soname}.map"] = script
            out[f"api/sublibraries/{soname}.S"] = jumps
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    spec = Spec()
    if problems := [*check_legacy(spec), *check_nulls(spec)]:
        sys.exit("\n".join(problems))
    stale = []
    for path, text in sorted(generate(spec).items()):
        file = ROOT / path
        old = file.read_text(encoding="utf-8") if file.exists() else None
        if old == text:
            continue
        stale.append(path)
        if not arguments.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if arguments.check and stale:
        sys.exit("stale, run tools/gen_api.py: " + ", ".join(stale))
    for path in stale:
        print("wrote", path)


if __name__ == "__main__":
    main()
