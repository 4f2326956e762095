"""What is shipped beside the tool and the library is found however they were started.

    bazel test //tests/cli:start_test
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

RUNFILES = pathlib.Path.cwd()
RECORDS = "3 of NVIDIA H100 80GB HBM3"
# A client of the library, as a program of its own: the library is named by its first argument.
CLIENT = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
{then}
handle = ctypes.c_void_p()
sys.exit(library.cudnnCreate(ctypes.byref(handle)))
"""


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
    return {**kept, "KILN_DEVICE": "cpu", **variables}


class StartTest(unittest.TestCase):
    """An installation: bin/kiln, lib/libcudnn.so.9, lib/libkiln_cpu.so, share/kiln/records."""

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))).resolve()
        cls.prefix = cls.root / "opt"
        for folder in ("bin", "lib", "share/kiln/records"):
            (cls.prefix / folder).mkdir(parents=True)
        for source, folder in (("cli/kiln", "bin"), ("api/libcudnn.so.9", "lib"),
                               ("runtime/cpu/libkiln_cpu.so", "lib"),
                               ("tests/runtime/cache/own_folder_static", "bin")):
            shutil.copy(RUNFILES / source, cls.prefix / folder)
        lines = (RUNFILES / "share/kiln/records/h100.txt").read_text().splitlines(keepends=True)
        (cls.prefix / "share/kiln/records/some.txt").write_text("".join(lines[:4]))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def setUp(self):
        self.kiln = self.prefix / "bin/kiln"
        self.cwd = pathlib.Path(tempfile.mkdtemp(dir=self.root))

    def doctor(self, *command, cwd=None, **variables):
        """Every part of the installation must be found."""
        scratch = dict(KILN_CACHE_DIR=str(self.root / "cache"))
        done = subprocess.run([*map(str, command), "doctor"], text=True, capture_output=True,
                              check=False, cwd=cwd, env=environment(**scratch, **variables))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"(?m)^ok +tuning records +{RECORDS}$")
        self.assertRegex(done.stdout, rf"(?m)^ok +CPU plug-in +{self.prefix}/\S*libkiln_cpu\.so")

    def test_absolute_path(self):
        self.doctor(self.kiln)

    def test_found_by_path(self):
        self.doctor("/bin/sh", "-c", 'exec kiln "$@"', "sh", cwd=self.cwd,
                    PATH=f"{self.prefix}/bin:{os.environ['PATH']}")

    def test_found_by_a_relative_path(self):
        self.doctor("/bin/sh", "-c", 'exec kiln "$@"', "sh", cwd=self.prefix / "lib",
                    PATH=f"../bin:{os.environ['PATH']}")

    def test_relative_name(self):
        self.doctor("/bin/sh", "-c", 'exec ../bin/kiln "$@"', "sh", cwd=self.prefix / "lib")

    def test_links(self):
        (self.cwd / "kiln").symlink_to(self.kiln)
        (self.cwd / "other").symlink_to("kiln")
        self.doctor(self.cwd / "other")
        self.doctor("/bin/sh", "-c", 'exec other "$@"', "sh", PATH=f"{self.cwd}:{os.environ['PATH']}")

    def test_another_name_in_argv(self):
        self.doctor("/bin/bash", "-c", f'exec -a ls {self.kiln} "$@"', "bash", cwd=self.cwd)
        self.doctor("/bin/bash", "-c", f'exec -a "" {self.kiln} "$@"', "bash", cwd=self.cwd)

    def test_deleted_working_folder(self):
        folder = self.cwd / "gone"
        folder.mkdir()
        self.doctor("/bin/sh", "-c", f'cd {folder} && rmdir {folder} && exec kiln "$@"', "sh",
                    PATH=f"{self.prefix}/bin:{os.environ['PATH']}")

    def test_by_the_loader(self):
        loader = next(pathlib.Path("/lib64").glob("ld-linux-*.so.*"))
        self.doctor(loader, self.kiln, cwd=self.cwd)

    def test_a_name_with_blanks(self):
        moved = self.root / "a folder (deleted)"
        moved.mkdir()
        shutil.copytree(self.prefix, moved / "opt")
        done = subprocess.run([moved / "opt/bin/kiln", "doctor"], text=True, capture_output=True,
                              check=True, env=environment(KILN_CACHE_DIR=str(self.root / "cache")))
        self.assertIn(RECORDS, done.stdout)

    def test_static_program(self):
        done = subprocess.run(["/bin/sh", "-c", "exec own_folder_static"], text=True,
                              capture_output=True, check=True, cwd=self.cwd,
                              env={"PATH": f"{self.prefix}/bin"})
        self.assertEqual(done.stdout, f"{self.prefix}/bin\n")

    def client(self, library, then="", cwd=None, **variables):
        """The library finds its plug-in, and makes a handle for the CPU."""
        done = subprocess.run([sys.executable, "-c", CLIENT.format(then=then), str(library)],
                              text=True, capture_output=True, check=False, cwd=cwd,
                              env=environment(**variables))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stderr

    def test_library_by_an_absolute_path(self):
        self.client(self.prefix / "lib/libcudnn.so.9")

    def test_library_by_a_relative_path_and_another_working_folder(self):
        self.client("./libcudnn.so.9", "os.chdir('/')", cwd=self.prefix / "lib")

    def test_library_by_name_in_a_relative_folder(self):
        self.client("libcudnn.so.9", "os.chdir('/')", cwd=self.prefix, LD_LIBRARY_PATH="lib")

    def test_says_once_that_kiln_is_called(self):
        """With the file, the version and the device, however many threads call first; nothing by default."""
        threads = """
import threading
together = threading.Barrier(16)
def call():
    together.wait()
    library.cudnnGetVersion()
    library.cudnnCreate(ctypes.byref(ctypes.c_void_p()))
every = [threading.Thread(target=call) for _ in range(16)]
[each.start() for each in every]
[each.join() for each in every]
if os.fork() == 0: os._exit(library.cudnnGetVersion() == 0)
os.wait()
"""
        called = re.compile(rf"(?m)^\[kiln \S+ info\] Kiln is called: {self.prefix}/lib/libcudnn\.so\.9 as cuDNN (\S+), "
                            r"for the device of KILN_DEVICE=cpu$")
        for then in ("", threads, "library.cudnnGetVersion()"):
            text = self.client("./libcudnn.so.9", "os.chdir('/')\n" + then, cwd=self.prefix / "lib", KILN_LOG="info",
                               KILN_CUDNN_VERSION="9.12")
            self.assertEqual(called.findall(text), ["9.12.0"], text)
            self.assertEqual(len(re.findall(r"info\] running on \S.* \(native\)$", text, re.M)), 1, text)
            self.assertEqual(self.client(self.prefix / "lib/libcudnn.so.9", then), "")
        # The question for the version makes no device.
        text = self.client(self.prefix / "lib/libcudnn.so.9", "sys.exit(library.cudnnGetVersion() == 0)", KILN_LOG="info")
        self.assertEqual(len(called.findall(text)), 1, text)
        self.assertNotIn("running on", text)

    def test_library_by_a_link_that_is_gone(self):
        (self.cwd / "libcudnn.so").symlink_to(self.prefix / "lib/libcudnn.so.9")
        self.client(self.cwd / "libcudnn.so", "os.remove(sys.argv[1])")


if __name__ == "__main__":
    unittest.main()
