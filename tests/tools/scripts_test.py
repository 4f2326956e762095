"""tools/test.sh, fuzz.sh and run_gpu_tests.sh count what passed, failed and was skipped. Bazel is a stand-in that
prints what a case wants and leaves the logs that the real one would.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path("tools").resolve()

STAND_IN = """#!/usr/bin/env bash
case $1 in
  query) cat "$STAND_IN/query"; exit "$(cat "$STAND_IN/query_status")" ;;
  info) [ "${!#}" = bazel-testlogs ] && echo "$STAND_IN/testlogs" || echo "$STAND_IN/bin" ;;
  test)
    for argument; do
      case $argument in --profile=*) cp "$STAND_IN/profile" "${argument#*=}" 2>/dev/null ;; esac
    done
    cat "$STAND_IN/summary"; exit "$(cat "$STAND_IN/test_status")" ;;
  build) ;;
esac
"""

SKIPPED_CASE = """[ RUN      ] Nvcc.Compiles
tests/nvcc_test.cc:23: Skipped
no /usr/local/cuda/bin/nvcc

[  SKIPPED ] Nvcc.Compiles (0 ms)
[  PASSED  ] 3 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Nvcc.Compiles
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.tree)
        shutil.copytree(TOOLS, self.tree / "tools")
        for name, content in {"query": "//tests/fuzz:bytes\n", "query_status": "0", "test_status": "0"}.items():
            self.write(f"stand_in/{name}", content)
        self.program("path/bazel", STAND_IN)
        self.program("path/dpkg-query", "#!/usr/bin/env bash\necho install ok installed\n")
        self.program("stand_in/bin/tests/fuzz/bytes", "#!/usr/bin/env bash\necho stat::number_of_executed_units: 7\n")
        self.write("nvrtc", "")

    def write(self, path, content):
        path = self.tree / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def program(self, path, content):
        self.write(path, content).chmod(0o755)

    def tests(self, **logs):
        """A run of bazel in which the targets //tests:NAME passed with these logs."""
        self.write("stand_in/summary", "".join(f"//tests:{name}   (cached) PASSED in 0.1s\n" for name in logs))
        for name, log in logs.items():
            self.write(f"stand_in/testlogs/tests/{name}/test.log", log)

    def run_script(self, name, *arguments, **variables):
        environment = {
            "PATH": f"{self.tree}/path:/usr/bin:/bin", "HOME": str(self.tree), "STAND_IN": f"{self.tree}/stand_in",
            "KILN_NVRTC": f"{self.tree}/nvrtc", **variables}
        done = subprocess.run([f"{self.tree}/tools/{name}", *arguments], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return done.returncode, done.stdout.splitlines()

    def test_all_pass(self):
        self.tests(a="[  PASSED  ] 2 tests.\n", b="fine\n")
        status, lines = self.run_script("test.sh")
        self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed, 0 skipped"))

    def test_where_the_time_went_is_said_before_the_last_line(self):
        self.tests(a="fine\n")
        self.write("stand_in/profile", """{"traceEvents": [
            {"cat": "action processing", "name": "Compiling a.cc", "dur": 1500000},
            {"cat": "action processing", "name": "Compiling b.cc", "dur": 1000000},
            {"cat": "local action execution", "name": "Compiling b.cc", "dur": 900000},
            {"cat": "action processing", "name": "Testing //tests:a (shard 1 of 2)", "dur": 3000000},
            {"cat": "action processing", "name": "Testing //tests:a (shard 2 of 2)", "dur": 4000000},
            {"cat": "action processing", "name": "Testing //tests:b", "dur": 5000000}]}""")
        status, lines = self.run_script("test.sh")
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertEqual([line.split() for line in lines[-6:-1]], [
            ["Testing", "12.0", "s", "3", "actions"], ["Compiling", "2.5", "s", "2", "actions"],
            ["slowest", "tests:"], ["7.0", "s", "//tests:a"], ["5.0", "s", "//tests:b"]])

    def test_a_profile_that_nobody_can_read_fails_nothing(self):
        self.tests(a="fine\n")
        self.write("stand_in/profile", "{")
        status, lines = self.run_script("test.sh")
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 0 skipped"))

    def test_what_was_skipped_is_named_and_is_not_passed(self):
        self.tests(a=SKIPPED_CASE, b="SKIPPED: no CUDA headers\n", c="OK (skipped=2)\n", d="fine\n")
        status, lines = self.run_script("test.sh")
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 3 skipped"))
        for line in ("   //tests:a: Nvcc.Compiles: no /usr/local/cuda/bin/nvcc", "   //tests:b: no CUDA headers",
                     "   //tests:c: OK (skipped=2)"):
            self.assertIn(line, lines)

    def test_a_shard_that_skipped_is_seen(self):
        self.tests(a="fine\n")
        self.write("stand_in/testlogs/tests/a/shard_2_of_2/test.log", SKIPPED_CASE)
        self.assertEqual(self.run_script("test.sh")[1][-1], "1 passed, 0 failed, 1 skipped")

    def test_a_test_without_a_log_is_not_known_to_have_checked(self):
        self.tests(a="fine\n")
        shutil.rmtree(self.tree / "stand_in/testlogs/tests/a")
        self.assertEqual(self.run_script("test.sh")[1][-1], "1 passed, 0 failed, 1 skipped")

    def test_a_machine_that_is_to_have_everything_fails_for_a_skip(self):
        self.tests(a=SKIPPED_CASE, b="fine\n")
        status, lines = self.run_script("test.sh", REQUIRE_ALL_TESTS="1")
        self.assertEqual((status, lines[-1]), (1, "2 passed, 1 failed, 0 skipped"))

    def test_a_target_that_cannot_be_built_here_is_skipped(self):
        self.tests(a="fine\n")
        with open(self.tree / "stand_in/summary", "a") as summary:
            summary.write("//tests:headers     SKIPPED\n")
        self.assertEqual(self.run_script("test.sh")[1][-1], "2 passed, 0 failed, 1 skipped")

    def test_failures_count(self):
        self.tests(a="fine\n")
        with open(self.tree / "stand_in/summary", "a") as summary:
            summary.write("//tests:x   FAILED in 1.0s\n//tests:y   FAILED TO BUILD\n//tests:z   TIMEOUT in 60.0s\n"
                          "//tests:w   NO STATUS\n")
        self.write("stand_in/test_status", "3")
        status, lines = self.run_script("test.sh")
        self.assertEqual((status, lines[-1]), (1, "2 passed, 4 failed, 0 skipped"))

    def test_fuzzers_that_cannot_be_listed_fail(self):
        self.tests(a="fine\n")
        self.write("stand_in/query", "")
        self.write("stand_in/query_status", "7")
        self.assertEqual(self.run_script("fuzz.sh")[0], 1)
        status, lines = self.run_script("test.sh")
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_no_fuzzer_at_all_fails(self):
        self.write("stand_in/query", "")
        self.assertEqual(self.run_script("fuzz.sh")[0], 1)

    def test_a_fuzzer_that_finds_something_fails(self):
        self.program("stand_in/bin/tests/fuzz/bytes", "#!/usr/bin/env bash\nexit 77\n")
        self.assertEqual(self.run_script("fuzz.sh", "1")[0], 1)
        self.program("stand_in/bin/tests/fuzz/bytes", "#!/usr/bin/env bash\n")
        self.assertEqual(self.run_script("fuzz.sh", "1")[0], 0)

    def gpu(self, **logs):
        self.write("tools/tests.txt", "".join(f"{name}\n" for name in logs))
        (self.tree / "tools/data").mkdir()
        for name, log in logs.items():
            self.write(f"tools/{name}.txt", log)
            self.program(f"tools/bin/{name}", f"#!/usr/bin/env bash\ncat {self.tree}/tools/{name}.txt\n")

    def test_the_bundles_tests_name_what_they_skipped(self):
        self.gpu(a=SKIPPED_CASE, b="fine\n")
        status, lines = self.run_script("run_gpu_tests.sh")
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("   not checked: Nvcc.Compiles: no /usr/local/cuda/bin/nvcc", lines)
        status, lines = self.run_script("run_gpu_tests.sh", REQUIRE_ALL_TESTS="1")
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_the_bundles_tests_fail_where_none_ran(self):
        self.gpu(a="fine\n")
        self.assertEqual(self.run_script("run_gpu_tests.sh", "nothing_of_this_name")[0], 1)
        self.assertEqual(self.run_script("run_gpu_tests.sh")[0], 0)


if __name__ == "__main__":
    unittest.main()
