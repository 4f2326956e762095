"""The version number stands in the file VERSION; what cannot read it repeats it. MODULE.bazel has the repositories of
WORKSPACE.

    bazel test //tests/install:version_test
"""

import pathlib
import re
import unittest

# Rule sets and tools of which a registry has better ones than our stand-ins for Bazel 4.
FROM_THE_REGISTRY = {"platforms", "remote_coverage_tools", "rules_cc", "rules_java", "rules_proto"}


def read(name):
    return pathlib.Path(name).read_text()


class Version(unittest.TestCase):
    def test_it_is_a_version(self):
        self.assertRegex(read("VERSION"), r"^\d+\.\d+\.\d+\n$")

    def test_module(self):
        self.assertEqual(re.search(r'module\(\n.*\n    version = "(.*)"', read("MODULE.bazel")).group(1), read("VERSION").strip())

    def test_changes_begin_with_it(self):
        self.assertEqual(re.search(r"^## (\S+?),? ", read("CHANGELOG.md"), re.M).group(1), read("VERSION").strip())

    def test_repositories_are_those_of_the_workspace(self):
        workspace, module = read("WORKSPACE"), read("MODULE.bazel")
        local = set(re.findall(r'^    "(\w+)",$', workspace, re.M))
        names = local | set(re.findall(r'name = "(\w+)"', workspace))
        self.assertIn("fmt", names)
        self.assertIn("llvm", names)
        in_module = set(re.findall(r'name = "(\w+)"', module)) - {"kiln"}
        self.assertEqual(in_module - FROM_THE_REGISTRY, names - FROM_THE_REGISTRY - {"kiln"})
        for name, path in re.findall(r'name = "(\w+)",\n    path = "(.*)"', module):
            self.assertEqual(path, f"third_party/{name}")
            self.assertIn(name, local)


if __name__ == "__main__":
    unittest.main()
