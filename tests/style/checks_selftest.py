"""Breaks every rule of checks.py once, in a small made-up tree, and expects it to be found."""

import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import checks  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ChecksTest(unittest.TestCase):

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("ir/base/env.def", (ROOT / "ir/base/env.def").read_text())
        for path, text in checks._tool("gen_env_doc").expected_files(self.root).items():
            self.write(path.relative_to(self.root), text)
        self.write("ir/graph/graph_ops.def", 'GRAPH_OP(Map, "map", MapAttrs, 1, 3, 1, 1, kElementwise)\n')
        self.write("tests/cases/basic.txt", "y = map.add(a, b)\nz = map(a)\n")
        self.write("bench/results/tested.json", "{}")
        self.write("docs/support.md", checks._tool("gen_support").page(self.root))
        self.write("docs/README.md", "[a](environment.md) [b](support.md) [c](functions.md)\n")
        for table in ("functions", "legacy", "roles"):
            text = (ROOT / f"api/spec/{table}.tsv").read_text().splitlines(True)
            self.write(f"api/spec/{table}.tsv", "".join(text[:1] + [t for t in text if t.startswith("cudnnScaleTensor")]))
        self.write_functions()
        for page in list((self.root / "docs").glob("*.md")):
            for name in checks._FILE.findall(page.read_text()):  # pages name files of the real tree
                if not (self.root / name).exists():
                    self.write(name, "// A stand-in.\n")

    def write_functions(self):
        for path, text in checks._tool("gen_functions").expected(self.root).items():
            self.write(path, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def findings(self, check):
        return checks.CHECKS[check](self.root)

    def test_the_made_up_tree_is_clean(self):
        for check in checks.CHECKS:
            self.assertEqual(self.findings(check), [], check)

    def test_mirror(self):
        text = '// Tests sums.\n#include "runtime/cache/sum.h"\n\n#include <string>\n'
        self.write("tests/runtime/cache/sum_test.cc", text)
        self.write("tests/numerics/sum_test.cc", text)  # has no counterpart
        self.assertEqual(self.findings("mirror"), [])
        self.write("tests/runtime/sum_test.cc", text)
        self.assertEqual(self.findings("mirror"), ["tests/runtime/sum_test.cc: tests runtime/cache/sum.h, whose tests "
                                                   "stand in tests/runtime/cache"])

    def test_console(self):
        self.write("cli/console.cc", "bool W() { return std::fwrite(a, 1, 2, b) == 2; }\n")
        self.assertEqual(self.findings("console"), [])
        self.write("cli/run.cc", 'PrintOut("{}", name);\nfmt::print("{}", name);\nstd::cerr << name;\n')
        self.assertEqual(self.findings("console"), ["cli/run.cc:2: prints past cli/console.h",
                                                    "cli/run.cc:3: prints past cli/console.h"])

    def test_support_names_what_ran(self):
        self.write("tests/cases/more.txt", "[smoke]\nadd: add(x:f16[2,8]@nhwc, b:f16[2,8]) -> y:f16\n")
        self.write("bench/results/tested.json",
                   '{"cpu": {"date": "today", "right": ["more_smoke.add", "more_smoke.gone"]}}')
        self.assertEqual(len(self.findings("support")), 1)
        page = checks._tool("gen_support").page(self.root)
        self.assertIn("| `add` | n |", page)
        self.write("docs/support.md", page)
        self.assertEqual(self.findings("support"), [])

    def test_functions_are_tested_where_a_call_succeeded(self):
        tool = checks._tool("gen_functions")
        log = "".join(f"I! CuDNN (v91900) function {name}() {what}:\n" for name, what in (
            ("cudnnScaleTensor", "called"), ("cudnnSetTensor", "called"), ("cudnnSetTensor", "returned BAD_PARAM"),
            ("cudnnAddTensor", "called"))) + "I! CuDNN (v91900 56) function cudnnOpTensor() called:\n"
        self.assertEqual(tool.succeeded(log), {"cudnnScaleTensor", "cudnnAddTensor"})
        self.write("bench/results/tested_functions.json",
                   '{"cpu": {"date": "today", "functions": ["cudnnScaleTensor"]}}')
        self.assertEqual(len(self.findings("functions")), 1)
        self.write_functions()
        self.assertEqual(self.findings("functions"), [])
        page = (self.root / tool.PAGE).read_text()
        self.assertIn("<td>1800</td>\n<td>✓</td>\n<td>✓</td>\n<td>✓</td>\n<td>✓</td>\n"
                      "<td>not yet seen on a GPU</td>", page)

    def test_layering(self):
        cases = [
            ("ir/shape.cc", '#include "ir/graph/graph.h"'),
            ("ir/tile/tile.h", '#include "ir/graph/graph.h"'),
            ("compiler/compile.cc", '#include "runtime/device.h"'),
            ("runtime/cuda/launch.cc", '#include "compiler/compile.h"'),
            ("compiler/compile.cc", '#include "codegen/llvm/emit.h"'),
            ("compiler/passes/fuse.cc", '#  include "api/session/session.h"'),
            ("compiler/kernel/vectors.h", '#include "compiler/passes/partition.h"'),
            ("compiler/engines/rows/engine.cc", '#include "compiler/engines/columns/engine.h"'),
            ("compiler/engines/contraction/tiles.h", '#include "compiler/engines/contract_mma/plan.h"'),
            ("compiler/engines/engine.h", '#include "compiler/engines/registry.h"'),
            ("compiler/patterns/row_chain.h", '#include "compiler/kernel/vectors.h"'),
            ("compiler/module.h", '#include "compiler/compile.h"'),
            ("api/session/device_session.cc", "#include <llvm/IR/Module.h>"),
            ("api/session/device_session.cc", "#include <cuda.h>"),
            ("codegen/cuda/emit.cc", "#include <cuda_runtime.h>"),
            ("codegen/cuda/device/ptx/reduce.cuh", '#include "ir/dtype.h"'),
            ("codegen/cuda/device/ptx/reduce.cuh", '#include "codegen/cuda/device/conv/conv_halo_sm90.cuh"'),
            ("ir/shape.cc", '#include "shape.h"'),
            ("elsewhere/file.cc", ""),
        ]
        for name, include in cases:
            with self.subTest(name=name, include=include):
                self.write(name, include + "\n")
                self.assertEqual(len(self.findings("layering")), 1)
                (self.root / name).unlink()

    def test_layering_allows_what_the_table_allows(self):
        self.write("compiler/passes/fuse.cc", '#include "compiler/module.h"\n#include "ir/graph/graph.h"\n')
        self.write("compiler/engines/rows/engine.cc", '#include "compiler/engines/reduction/rows_plan.h"\n')
        self.write("codegen/llvm/emit.cc", "#include <llvm/IR/Module.h>\n")
        self.write("codegen/cuda/device/conv/gemm.cuh", '#include "codegen/cuda/device/ptx/mma.cuh"\n')
        self.write("tests/api/capi_test.cc", '#include <cuda.h>\n#include "runtime/cuda/driver.h"\n')
        self.assertEqual(self.findings("layering"), [])

    def test_file_length(self):
        self.write("ir/long.cc", "\n" * 801)
        self.write("include/v9/cudnn.h", "\n" * 5000)
        self.assertEqual(len(self.findings("file_length")), 1)

    def test_extents(self):
        body = "  Go();\n" * 58
        self.write("ir/a.cc", f"// A.\nint F(int n) {{\n{body}}}\nnamespace n {{\nvoid C::G() {{\n{body}  // }}\n}}\n}}\n")
        self.write("ir/b.h", "// B.\n#pragma once\ntemplate <class T, int n = 3>\nstruct B {\n" + "  int x;\n" * 248 + "};\n")
        findings = self.findings("extents")
        self.assertEqual(len(findings), 2, findings)
        self.assertIn("function C::G has 61 lines", findings[0])
        self.assertIn("class B has 251 lines", findings[1])
        self.write("tests/style/long_code.tsv", "file\tname\tlines\treason\n"
                   "ir/a.cc\tC::G\t61\tA table of what it goes through.\nir/b.h\tB\t251\tOne member for each of them.\n")
        self.assertEqual(self.findings("extents"), [])
        # The list only shrinks.
        self.write("ir/a.cc", "// A.\nint F(int n) { return n; }\n")
        self.write("ir/b.h", "// B.\n#pragma once\nstruct B {\n" + "  int x;\n" * 260 + "};\n")
        findings = self.findings("extents")
        self.assertEqual(len(findings), 2, findings)
        self.assertIn("251 are the limit", findings[0])
        self.assertIn("strike it", findings[1])
        self.write("tests/style/long_code.tsv", "file\tname\tlines\treason\nir/b.h\tB\t262\t\n")
        self.assertIn("has no reason", self.findings("extents")[0])

    def test_extents_are_of_code_alone(self):
        text = """// A.
const char* kText = R"(struct S {
)";
#define OPEN struct S {
enum class E { kA, kB };
Row Rows[] = {{1, "}"}, {2, "{"}};
bool operator==(const A& a, const A& b) {
  const auto f = [&](int n) { return n == '{'; };
  return f(1'000);
}
"""
        self.write("ir/a.cc", text)
        extents = checks.cxx_rules.cxx.extents(text)
        self.assertEqual([(e.kind, e.name, e.line, e.lines) for e in extents],
                         [("class", "E", 5, 1), ("function", "operator==", 7, 4)])

    def test_comments(self):
        self.write("ir/a.cc", "// Of what is there.\n\n// ------\n\n// ---- name\nint x;  // Of x.\n// A text\n// Of two lines.\n")
        self.write("tools/a.py", "# What it is.\n")
        self.assertEqual(len(self.findings("comments")), 3)
        self.write("tests/style/comment_openers.tsv", "file\tcomments\nir/a.cc\t1\ntools/a.py\t2\n")
        findings = self.findings("comments")
        self.assertEqual(len(findings), 2, findings)  # the rule, and a list that is too long
        self.assertIn("has 1 now", findings[1])

    def test_rates(self):
        self.write("compiler/engines/rows/engine.cc", "// At 2e9.\nconstexpr double kClock = 1.7e9;\ndouble k = 2e-9, n = 1e6;\n")
        self.write("compiler/machine/machine.cc", "constexpr double kClock = 1.7e9;\n")
        self.assertEqual(len(self.findings("rates")), 1)

    def test_rows(self):
        self.write("codegen/cuda/device/rows/rows.def", "INT(left_tiles, 0)  // of one batch\nCONFIG(kTileRows)\n")
        self.write("compiler/engines/rows/engine.cc", """// "kTileRows" in a comment
void Add(Call& call) {
  call.config.push_back({rows::kTileRows, 1});
  AddShapeMember(b, call, rows::left_tiles, 1);
  add(rows::left_tiles, b.Arg("left_tiles", 1));
  number("other", 1);
}
""")
        self.assertEqual(self.findings("rows"), [])
        self.write("compiler/engines/rows/plan.cc", """void Add(Call& call) {
  call.config.push_back({"kTileRows", 1});
  call.shape.push_back({fmt::format("rows[{}]", 1), b.Arg("rows", 1)});
  call.shape.push_back(
      {"left_tiles", 1});
  add("left_tiles", 1);
  constexpr ShapeMember member{"left_tiles"};
}
""")
        findings = self.findings("rows")
        self.assertEqual([f.split(":")[1] for f in findings], ["2", "3", "5", "6", "7"], findings)
        self.write("compiler/kernel/rows.cc", 'call.config.push_back({"kTileRows", 1});\n')
        self.assertEqual(len(self.findings("rows")), 5)

    def test_headers(self):
        self.write("ir/a.h", "// a\n")
        self.write("ir/b.h", "#pragma once\n")
        self.write("ir/c.h", "// c\n#pragma once\n")
        self.write("ir/c.cc", '#include <vector>\n#include "ir/c.h"\n')
        self.write("ir/d.cc", "#include <vector>\n")
        self.assertEqual(len(self.findings("headers")), 4)

    def test_env_finds_a_name_outside_the_table(self):
        self.write("ir/x.cc", 'getenv("KILN_NOT_THERE");\n')
        self.write("tools/x.sh", "echo $KILN_NEITHER\n")
        self.write("tests/clients/x.py", "os.environ['KILN_NOR_THIS']\n")
        self.assertEqual(len(self.findings("env")), 3)

    def test_env_leaves_the_names_of_test_settings_to_tests(self):
        self.write("tests/support/x.cc", 'getenv("KILN_TEST_SEED");\n')
        self.assertEqual(self.findings("env"), [])
        self.write("ir/x.cc", 'getenv("KILN_TEST_SEED");\n')
        self.assertEqual(len(self.findings("env")), 1)

    def test_env_finds_a_stale_page(self):
        self.write("docs/environment.md", "nothing\n")
        self.assertEqual(len(self.findings("env")), 1)

    def test_env_finds_a_row_that_cannot_be_read(self):
        path = self.root / "ir/base/env.def"
        path.write_text(path.read_text() + 'KILN_ENV(X, "KILN_X", kDefault, "", "")\n')
        self.assertEqual(len(self.findings("env")), 1)

    def test_a_pass_needs_a_text_test(self):
        self.write("compiler/passes/fold_views.h", "")
        self.write("compiler/passes/fold_views.cc", "Result<bool> Run(Module&, const PassContext&)\n")
        self.assertEqual(len(self.findings("passes")), 1)
        self.write("tests/text/fold-views/transpose.txt", "x\n")
        self.assertEqual(self.findings("passes"), [])

    def test_an_op_needs_a_case(self):
        self.write("tests/cases/basic.txt", "mapping\n")
        self.assertEqual(len(self.findings("ops")), 1)

    def test_a_line_of_a_page_has_120_columns(self):
        long = "word " * 24
        self.write("README.md", f"# {long}x\n\n{long}\n{long}x y\n* {long}x\n")
        self.assertEqual(self.findings("markdown"), [
            f"README.md:{number}: {columns} columns, 120 are the limit; run tools/wrap_markdown.py README.md"
            for number, columns in ((4, 123), (5, 123))])

    def test_rows_links_and_the_text_of_programs_may_be_longer(self):
        long = "word " * 24
        self.write("examples/README.md", f"| {long}x |\n\n```\n{long}x\n```\n\n    {long}x\n\n[x](../docs/{'../docs/' * 20}support.md) text\n"
                                         f"{'x' * 130}\n")
        self.assertEqual(self.findings("markdown"), [])

    def test_wrapped_pages_say_the_same(self):
        tool = checks._tool("wrap_markdown")
        page = ("* an item of " + "many words " * 14 + "2 * 3 and 4. and\n  more of it\n\n```\n" + "code " * 40 + "\n```\n" + "short\nlines\n")
        wrapped = tool.wrapped(page)
        self.assertEqual(tool.too_long(wrapped), [])
        self.assertEqual(wrapped.split(), page.split())
        self.assertIn("code " * 40, wrapped)
        self.assertTrue(wrapped.endswith("short\nlines\n"))
        self.assertNotRegex(wrapped, r"(?m)^  (\*|4\.) ")
        self.assertEqual(tool.wrapped("x " * 70 + "\n256. And\n"), ("x " * 60).strip() + "\n" + "x " * 10 + "256. And\n")
        self.assertEqual(tool.wrapped("1. " + "x " * 70 + "\n2. y\n").count("\n2. y\n"), 1)

    def test_heads_of_engines_say_what_is_asked(self):
        tool = checks._tool("gen_engines")
        text = "// a, b: does.\n//\n// Takes: x.\n//\n//   a picture  of it\n//\n// How: y\n//   z.\n// \n// Wins: w.\n//\n// Declines: v.\n#include <a>\n// more\n"
        paragraphs = tool.head(text)
        self.assertEqual(paragraphs[2:4], ["  a picture  of it", "How: y z."])
        self.assertEqual(tool.faults("f.cc", paragraphs, ["a", "b"]), [])
        self.assertEqual(tool.faults("f.cc", paragraphs, ["a"]),
                         ["f.cc: its head begins with a, b, the file has the rows of a"])
        self.assertEqual(tool.faults("f.cc", paragraphs[:-1], ["a", "b"]),
                         ["f.cc: its head has no paragraph that begins with 'Declines:'"])
        self.assertEqual(len(tool.faults("f.cc", tool.head("#include <a>\n"), ["a"])), 1)
        self.assertIn("```\na picture  of it\n```", tool.section("f.cc", paragraphs, ["a", "b"], "none"))

    def test_front_pages_are_short(self):
        self.write("README.md", "x\n" * 151)
        self.write("docs/environment.md", "x\n" * 500)
        self.assertEqual(self.findings("markdown"), ["README.md: 151 lines, 150 are the limit"])

    def test_links_lead_to_files(self):
        self.write("README.md", "[a](docs/support.md#x) [b](https://example.org/x) `[c](nowhere)`\n| [d](docs/nothing.md) |\n")
        self.assertEqual(self.findings("markdown"), ["README.md:2: links to docs/nothing.md, which does not exist"])

    def test_files_that_pages_name_are_there(self):
        self.write("README.md", "`docs/support.md`, `ir/base/env.def`, `kiln/x.h`, `x/*.h`, and x/y.h\n| `gone/x.cc` |\n")
        self.write("include/kiln/x.h", "")
        self.write("docs/log/2026-11.md", "`gone/x.cc` was there\n")
        self.assertEqual(self.findings("markdown"), ["README.md:2: names gone/x.cc, which does not exist"])

    def test_the_index_lists_every_page(self):
        self.write("docs/new.md", "x\n")
        self.write("docs/log/2026-11.md", "x\n")
        self.assertEqual(self.findings("index"), ["docs/README.md: does not list log/2026-11.md",
                                                  "docs/README.md: does not list new.md"])
        self.write("docs/log/README.md", "x\n")
        self.write("docs/README.md", "[a](environment.md) [b](support.md) [c](functions.md) [d](log/README.md) [e](new.md)\n")
        self.assertEqual(self.findings("index"), [])
        (self.root / "docs/README.md").unlink()
        self.assertEqual(len(self.findings("index")), 1)


if __name__ == "__main__":
    unittest.main()
