"""tools/needed_versions.py on what readelf prints, and on tables that are too strict.

    bazel test //tests/install:needed_versions_test
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path("tools/needed_versions.py")
SPEC = importlib.util.spec_from_file_location("needed_versions", SCRIPT)
needed = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(needed)

# A library that defines versions and needs some of two libraries, and a third one without a version.
READELF = """
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libother.so.1]
Version symbols section '.gnu.version' contains 2 entries:
  000:   0 (*local*)       2 (libmine.so.9)

Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: BASE  Index: 1  Cnt: 1  Name: libmine.so.9

Version needs section '.gnu.version_r' contains 2 entries:
 Addr: 0x0000000000000c70  Offset: 0x000c70  Link: 6 (.dynstr)
  000000: Version: 1  File: libc.so.6  Cnt: 3
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.14  Flags: none  Version: 3
  0x0030:   Name: GLIBC_2.9  Flags: none  Version: 5
  0x0040: Version: 1  File: libm.so.6  Cnt: 1
  0x0050:   Name: GLIBC_2.29  Flags: none  Version: 2
"""


class NeededVersions(unittest.TestCase):
    def folder(self):
        path = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, path)
        return path

    def row(self, library="libc.so.6", newest="GLIBC_2.14", file="lib/*.so.9", package="libc6 (>= {glibc})"):
        return {"file": file, "library": library, "newest": newest, "package": package}

    def test_readelf(self):
        self.assertEqual(needed.parse_needs(READELF), {
            "libc.so.6": {"GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.9"}, "libm.so.6": {"GLIBC_2.29"}, "libother.so.1": set()})

    def test_numbers_are_no_text(self):
        self.assertEqual(needed.newest({"GLIBC_2.9", "GLIBC_2.14", "GLIBC_2.2.5", "LLVM_19.1", "libx.so"}),
                         ["GLIBC_2.14", "LLVM_19.1", "libx.so"])

    def findings(self, versions, *rows, library="libc.so.6"):
        return needed.findings_of(rows, "lib/libmine.so.9", library, versions)

    def test_within_bounds(self):
        self.assertEqual(self.findings({"GLIBC_2.14", "GLIBC_2.9"}, self.row()), [])
        self.assertEqual(self.findings(set(), self.row(newest="")), [])

    def test_out_of_bounds(self):
        self.assertEqual(self.findings({"GLIBC_2.34"}, self.row()),
                         ["lib/libmine.so.9 needs GLIBC_2.34 of libc.so.6; 2.14 is the bound"])
        self.assertEqual(self.findings({"CXXABI_1.3"}, self.row()),
                         ["lib/libmine.so.9 needs CXXABI_1.3 of libc.so.6; needed_versions.tsv has no bound for CXXABI"])

    def test_a_library_that_is_not_listed(self):
        for rows in ([], [self.row(file="bin/*")], [self.row(library="libm.so.6")]):
            self.assertEqual(self.findings({"GLIBC_2.2.5"}, *rows),
                             ["lib/libmine.so.9 needs libc.so.6, which needed_versions.tsv does not list for it"])

    def test_an_empty_folder_is_a_finding(self):
        prefix = self.folder()
        (prefix / "lib").mkdir()
        self.assertEqual(len(needed.check(prefix, [])), 1)

    def test_bounds_are_kept_by_this_build(self):
        """The table that is in the tree, and the script as release.sh calls it, on the files of this build."""
        prefix = self.folder() / "kiln"
        subprocess.run(["tools/install.sh", prefix, "--built", "."], check=True)
        done = subprocess.run([SCRIPT, prefix], text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in ("bin/kiln\tlibc.so.6\tGLIBC_", "lib/libcudnn.so.9\tlibc.so.6\tGLIBC_", "lib/libkiln_cpu.so\tlibLLVM"):
            self.assertIn(line, done.stdout)


if __name__ == "__main__":
    unittest.main()
