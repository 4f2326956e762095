"""What the tests of the tool share: where it is, graphs, and a test case with a folder and a cache of its own."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

KILN = pathlib.Path("cli/kiln").resolve()
GRAPHS = sorted(pathlib.Path("examples/graphs").glob("*.kiln")) + [
    pathlib.Path("examples/graphs/conv_scale_bias_relu.json")]
COMMANDS = ("run", "dump", "explain", "tune", "records", "pack", "cache", "doctor")
RUN_CASE = pathlib.Path("tests/cli/run_case").resolve()
LIBRARY = pathlib.Path("api/libcudnn.so.9").resolve()
ARCHS = ("sm_80", "sm_90a", "sm_100a")

SMALL = """graph small {
  tensor %x uid=1 f32 [4,8]
  tensor %y uid=2 f32 [4,8]
  %y = pointwise(%x) compute=f32 mode=relu_fwd
}
"""

# The first product is an operand of the second.
TWO_GROUPS = """graph two {
  tensor %a uid=1 f16 [1,64,64]
  tensor %b uid=2 f16 [1,64,64]
  tensor %t f16 [1,64,64] virtual
  tensor %c uid=3 f16 [1,64,64]
  %t = matmul(%a, %b) compute=f32
  %c = matmul(%t, %b) compute=f32
}
"""

# Few outputs, and much to sum for each.
LONG_SUM = """graph long_sum {
  tensor %a uid=1 f16 [1,64,65536]
  tensor %b uid=2 f16 [1,65536,64]
  tensor %c uid=3 f16 [1,64,64]
  %c = matmul(%a, %b) compute=f32
}
"""


class CliTest(unittest.TestCase):
    """A scratch folder, an own cache, and the tool."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def kiln(self, *arguments, status=0, stdin="", **variables):
        """Runs the tool; returns what it printed on (stdout, stderr)."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KILN_") or k == "KILN_NVRTC"}
        environment = {**kept, "KILN_CACHE_DIR": str(self.folder / "cache"), **variables}
        done = subprocess.run([KILN, *map(str, arguments)], input=stdin, text=True, env=environment,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path
