"""The public headers against the interface as tests/data/interface has it: names (both ways), values, prototypes, which
header of 9 declares what and what is deprecated there, and what programs do with them. The compilers are the readers.
"""

import csv
import os
import pathlib
import re
import subprocess
import unittest

DATA = pathlib.Path("tests/data/interface")
VERSION = {8: "8.9.1", 9: "9.28.1"}  # of 9 the newest release of the tables, whose names the headers have
# Macros of the version that the headers say, which is one of the tables' releases.
SAID = re.compile(r"CUDNN_\w+_(MINOR|PATCH)$|CUDNN_(MINOR|PATCHLEVEL)$")
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
HAS_CUDA = (CUDA / "cuda_runtime.h").exists()
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic-errors"]

# 8.9.1's header guards and the macros that are no values; 9's stand in names_9.tsv.
MACROS_8 = {"CUDNNWINAPI", "CUDNN_DEPRECATED", "CUDNN_H_", "CUDNN_VERSION_H_", "CUDNN_OPS_INFER_H_",
            "CUDNN_OPS_TRAIN_H_", "CUDNN_ADV_INFER_H_", "CUDNN_ADV_TRAIN_H_", "CUDNN_CNN_INFER_H_",
            "CUDNN_CNN_TRAIN_H_", "_CUDNN_BACKEND_H_"}


def rows(name):
    with open(DATA / f"{name}.tsv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def compiled(source, generation, language="c", options=(), cuda=False):
    """The compiler's complaints about a program, or '' where it takes it."""
    compiler = "g++" if language == "c++" else "gcc"
    command = [compiler, "-x", language, "-fsyntax-only", f"-Iinclude/v{generation}", *options]
    command += ["-isystem", str(CUDA)] if cuda else []
    done = subprocess.run([*command, "-"], input=source, text=True, capture_output=True)
    return "" if done.returncode == 0 else done.stderr or "failed"


def preprocessed(generation, header, *options):
    """{header: its lines}, of cuDNN's headers, when one is included."""
    command = ["gcc", "-E", "-x", "c", f"-Iinclude/v{generation}", *options, "-"]
    done = subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True, check=True)
    found, current = {}, ""
    for line in done.stdout.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            current = pathlib.Path(marker.group(1)).name
        elif current.startswith("cudnn"):
            found.setdefault(current, []).append(line)
    return found


def names(generation):
    """{(kind, name, header, deprecated)} as the preprocessor leaves them."""
    found = set()
    for header in ("cudnn.h", "cudnn_backend.h"):
        for name, lines in preprocessed(generation, header, "-dD").items():
            found |= {("macro", m.group(1), name, "") for m in (re.match(r"#define (\w+)", line) for line in lines) if m}
    options = ["-DCUDNN_WARN_DEPRECATED", "-DCUDNNWINAPI=FUNCTION"]
    for header, lines in preprocessed(generation, "cudnn.h", *options).items():
        text = "\n".join(lines).replace("__attribute__((deprecated))", "OLD").replace('extern "C" {', "")
        for body in re.findall(r"typedef enum \{(.*?)\}", text, re.S):
            for constant in re.findall(r"(\w+)( OLD)? *= ", body):
                found.add(("enumerator", constant[0], header, "y" if constant[1] else ""))
        flat = re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", text))
        for statement in flat.split(";"):
            words = " ".join(statement.split())
            old = "y" if re.search(r"\bOLD\b", words) else ""
            words = re.sub(r" ?\bOLD\b ?", "", words)
            if function := re.search(r"\bFUNCTION (cudnn\w+)\(", words):
                found.add(("function", function.group(1), header, old))
            elif "typedef " in words:
                pointer = re.search(r"\(\*(\w+)\)", words)
                found.add(("type", pointer.group(1) if pointer else re.findall(r"\w+", words)[-1], header, old))
    return found


class Names(unittest.TestCase):
    maxDiff = None

    def test_those_of_9_stand_in_their_headers_and_no_others_do(self):
        want = {(r["kind"], r["name"], r["header"], r["deprecated"]) for r in rows("names_9")}
        self.assertGreater(len(want), 1350)
        self.assertEqual(sorted(want - names(9)), [])
        self.assertEqual(sorted(names(9) - want), [])

    def test_those_of_8_are_there_and_no_others_are(self):
        version = VERSION[8]
        want = {("macro", n) for n in MACROS_8}
        want |= {("macro", r["define"]) for r in rows("defines") if r[f"value_{version}"]}
        want |= {("enumerator", r["constant"]) for r in rows("enums") if r[f"value_{version}"]}
        want |= {("type", r["enum"]) for r in rows("enums") if r[f"value_{version}"]}
        want |= {("type", r["name"]) for r in rows("structs") if r["kind"] == "typedef" and version in r["versions"]}
        want |= {("function", r["function"]) for r in rows("functions") if r[f"in_{version}"]}
        found = {name[:2] for name in names(8)}
        self.assertGreater(len(want), 900)
        self.assertEqual(sorted(want - found), [])
        self.assertEqual(sorted(found - want), [])

    def test_functions_stand_in_the_headers_of_8_and_9(self):
        for generation in (8, 9):
            homes = {name: header for kind, name, header, _ in names(generation) if kind == "function"}
            for row in rows("functions"):
                if row[f"in_{VERSION[generation]}"] and row[f"header_{generation}"]:
                    self.assertEqual(homes[row["function"]], row[f"header_{generation}"], row["function"])


def said(generation):
    """The release that the headers say they are of."""
    found = {m.group(1): m.group(2) for line in preprocessed(generation, "cudnn_version.h", "-dD")["cudnn_version.h"]
             for m in [re.match(r"#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) (\d+)$", line)] if m}
    return ".".join(found[part] for part in ("MAJOR", "MINOR", "PATCHLEVEL"))


class Meanings(unittest.TestCase):
    def test_values(self):
        for generation, version in VERSION.items():
            lines = [f"static_assert(({r['constant']}) == ({r[f'value_{version}']}), \"\");"
                     for r in rows("enums") if r[f"value_{version}"]]
            for r in rows("defines"):
                column = f"value_{said(generation) if SAID.match(r['define']) else version}"
                if r[column]:
                    lines.append(f"static_assert(({r['define']}) == ({r[column]}), \"\");")
            self.assertGreater(len(lines), 500)
            self.assertEqual(compiled("#include <cudnn.h>\n" + "\n".join(lines), generation, "c++", ["-std=c++17"]), "")

    def test_prototypes(self):
        for generation, version in VERSION.items():
            lines = []
            for row in rows("functions"):
                if row[f"in_{version}"]:
                    other = row["signature_9.19.0_if_different"] if generation == 9 else ""
                    lines.append(f"static_assert(std::is_same<decltype({row['function']}), "
                                 f"{other or row['signature']}>::value, \"\");")
            self.assertGreater(len(lines), 200)
            source = "#include <type_traits>\n#include <cudnn.h>\n" + "\n".join(lines)
            self.assertEqual(compiled(source, generation, "c++", ["-std=c++17"]), "")

    def test_parts_of_an_error_code_of_9(self):
        source = """#include <cudnn.h>
            #include <type_traits>
            static_assert(CUDNN_STATUS_CATEGORY(CUDNN_STATUS_BAD_PARAM_NULL_POINTER) == CUDNN_STATUS_BAD_PARAM, "");
            static_assert(CUDNN_STATUS_SPECIFIC_ERROR(CUDNN_STATUS_BAD_PARAM_NULL_POINTER) == 2, "");
            static_assert(CUDNN_STATUS_FULL_ERROR_CODE(2000, 2) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "");
            static_assert(std::is_same<decltype(CUDNN_STATUS_FULL_ERROR_CODE(1 + 1999, 2)), cudnnStatus_t>::value, "");
            static_assert(CUDNN_STATUS_CATEGORY(1000 + 1007) == 2000, "");
            """
        self.assertEqual(compiled(source, 9, "c++", ["-std=c++17", *WARNINGS]), "")

    def test_deprecation_is_told_to_those_who_ask(self):
        programs = {
            "function": "int f(cudnnTensorDescriptor_t t) { return (int)cudnnDestroyFilterDescriptor(0) + (t != 0); }",
            "type": "cudnnPoolingDescriptor_t p;",
            "enumerator": "int f(void) { return CUDNN_DATA_INT8x32; }",
        }
        for what, program in programs.items():
            for language in ("c", "c++"):
                source = f"#include <cudnn.h>\n{program}\n"
                self.assertEqual(compiled(source, 9, language, WARNINGS), "", what)
                told = compiled(source, 9, language, [*WARNINGS, "-DCUDNN_WARN_DEPRECATED"])
                self.assertIn("deprecated", told, what)
        # GCC's C front end tells a prototype that names a deprecated type as well: of NVIDIA's headers, too.
        self.assertEqual(compiled("#include <cudnn.h>\n", 9, "c++", [*WARNINGS, "-DCUDNN_WARN_DEPRECATED"]), "")

    def test_a_header_of_another_version_is_an_error(self):
        source = "#include <cudnn_version.h>\n#undef CUDNN_MINOR\n#define CUDNN_MINOR 1\n#include <cudnn.h>\n"
        for generation in (8, 9):
            self.assertIn("different versions", compiled(source, generation))


@unittest.skipUnless(HAS_CUDA, f"no CUDA headers in {CUDA}")
class WithCuda(unittest.TestCase):
    def test_8_brings_the_runtimes_overloads_for_cxx(self):
        source = """#include <cudnn.h>
            template <class T> __global__ void kernel(T*);
            cudaError_t f(float** p) { return cudaMalloc(p, 4); }
            cudaError_t g(int* blocks, void (*k)(float*)) {
              return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, k, 128, 0);
            }
            float4 h() { return make_float4(1, 2, 3, 4); }
            """
        for standard in ("c++11", "c++17", "c++20"):
            self.assertEqual(compiled(source, 8, "c++", [f"-std={standard}"], cuda=True), "")

    def test_9_brings_the_runtimes_interface(self):
        source = """#include <cudnn.h>
            cudaError_t f(void** p) { return cudaMalloc(p, 4); }
            cudaDataType type(void) { return CUDA_R_16F; }
            """
        for language in ("c", "c++"):
            self.assertEqual(compiled(source, 9, language, cuda=True), "")


if __name__ == "__main__":
    unittest.main()
