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
        for table in ("functions", "legacy", "roles"):
            text = (ROOT / f"api/spec/{table}.tsv").read_text().splitlines(True)
            self.write(f"api/spec/{table}.tsv", "".join(text[:1] + [t for t in text if t.startswith("cudnnScaleTensor")]))
        self.write_functions()

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
            ("codegen/cuda/device/reduce.cuh", '#include "ir/dtype.h"'),
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
        self.write("codegen/cuda/device/gemm.cuh", '#include "mma.cuh"\n')
        self.write("tests/api/capi_test.cc", '#include <cuda.h>\n#include "runtime/cuda/driver.h"\n')
        self.assertEqual(self.findings("layering"), [])

    def test_file_length(self):
        self.write("ir/long.cc", "\n" * 801)
        self.write("include/v9/cudnn.h", "\n" * 5000)
        self.assertEqual(len(self.findings("file_length")), 1)

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

    def test_env_finds_a_stale_readme(self):
        self.write("README.md", "x\n<!-- env:begin -->\n<!-- env:end -->\n")
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


if __name__ == "__main__":
    unittest.main()
