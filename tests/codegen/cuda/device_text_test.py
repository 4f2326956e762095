"""codegen/cuda/device_text.py on made-up device files: their order, what rows become, and what it refuses."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path("codegen/cuda/device_text.py").resolve()
FOLDER = "codegen/cuda/device/"

ROWS = """// Rows.
#ifndef INT
#define INT(name, value)
#endif

// ---- tiles
// Counted in clusters.
INT(tiles, 0)  // of one batch
PAIR(step, 1, w)
"""
SHAPE = f"""#pragma once
// A shape.
struct shape {{
#define INT(name, value) int name = value;
#define PAIR(name, w, h) \\
  int name##_w = w, name##_h = h;
#include "{FOLDER}conv/rows.def"
}};
"""


class DeviceTextTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_script(self):
        files = sorted(str(p.relative_to(self.root)) for p in (self.root / FOLDER).rglob("*.*"))
        return subprocess.run([sys.executable, SCRIPT, *files], cwd=self.root, capture_output=True, text=True)

    def assertRefused(self, sentence):
        done = self.run_script()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(sentence, done.stderr)

    def test_a_file_stands_behind_what_it_includes(self):
        self.write("conv/a.cuh", f'#pragma once\n// A.\n\n#include "{FOLDER}ptx/z.cuh"\n\nint a;\n')
        self.write("ptx/z.cuh", f'#pragma once\n// Z.\n\n#include "{FOLDER}numbers/n.cuh"\n\nint z;\n')
        self.write("numbers/n.cuh", "#pragma once\n// N.\nint n;\n")
        text = self.run_script().stdout
        places = [text.index(f'{{"{name}"') for name in ("numbers/n.cuh", "ptx/z.cuh", "conv/a.cuh")]
        self.assertEqual(places, sorted(places))
        self.assertIn("kNeeds2[] = {0, 1, 2};", text)
        self.assertNotIn("#", text)

    def test_rows_become_what_the_macros_say(self):
        self.write("conv/rows.def", ROWS)
        self.write("conv/shape.cuh", SHAPE)
        # `w` is a parameter and a value: the value stays what it is.
        self.assertIn("struct shape {\n  // Counted in clusters.\n  int tiles = 0;  // of one batch\n"
                      "  int step_w = 1, step_h = w;\n};\n", self.run_script().stdout)

    def test_what_is_no_row_is_refused(self):
        self.write("conv/rows.def", ROWS + "INT(size, (2))\n")
        self.write("conv/shape.cuh", SHAPE)
        self.assertRefused("'INT(size, (2))' is no row")

    def test_includes_that_lead_nowhere_are_refused(self):
        self.write("conv/a.cuh", f'#include "{FOLDER}ptx/z.cuh"\n')
        self.assertRefused("conv/a.cuh includes ptx/z.cuh, which is not there")
        self.write("conv/a.cuh", '#include "ir/scalar.h"\n')
        self.assertRefused("which is no device file")

    def test_a_circle_is_refused(self):
        self.write("conv/a.cuh", f'#include "{FOLDER}conv/b.cuh"\n')
        self.write("conv/b.cuh", f'#include "{FOLDER}conv/a.cuh"\n')
        self.assertRefused("conv/a.cuh → conv/b.cuh → conv/a.cuh")


if __name__ == "__main__":
    unittest.main()
