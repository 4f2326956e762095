"""Packs from outside: built for two architectures, stopped and resumed, the same bytes in any order, merged, damaged,
and a program without NVRTC that runs from one on the emulated GPU.

    bazel test //tests/cli:pack_test
"""

import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from cli_case import CliTest, KILN, LONG_SUM, SMALL, TWO_GROUPS

EMULATED = pathlib.Path("tests/support/emulated_gpu").resolve()
NOWHERE = "/nowhere/libnvrtc.so"
# Both architectures' usual boards: a board more would cost time, and say nothing.
BOARDS = ("--board", "NVIDIA H200", "--board", "NVIDIA A100-SXM4-80GB")
H200 = ("--board", "NVIDIA H200")


class PackTest(CliTest):
    def setUp(self):
        super().setUp()
        self.small = self.file("small.kiln", SMALL)
        self.two = self.file("two.kiln", TWO_GROUPS)

    def build(self, name, *arguments, status=0, **variables):
        """Builds a pack; its path."""
        path = self.folder / name
        self.kiln("pack", "build", "-o", path, *arguments, status=status, **variables)
        return path

    def test_two_graphs_for_two_architectures(self):
        pack = self.folder / "a.pack"
        text, errors = self.kiln("pack", "build", self.small, self.two, "-o", pack, *BOARDS, "--jobs", 2)
        self.assertRegex(text, r"^2 graphs, 0 left out; \d+ kernels, of which 0 were there")
        self.assertIn("planned 2/2", errors)
        self.assertRegex(errors, r"compiled (\d+)/\1")
        self.assertFalse((self.folder / "a.pack.partial").exists())
        self.assertEqual(pack.stat().st_mode & 0o777, 0o644)
        listed = self.kiln("pack", "list", pack)[0]
        for arch in ("sm_80", "sm_90a"):
            self.assertRegex(listed, rf"(?m)^{arch} +.* compressed  kiln_")
        self.assertRegex(listed, r"\d+ kernels by nvrtc \d+\.\d+ \(\d+ bytes\)")
        self.assertRegex(self.kiln("pack", "verify", pack)[0], r": \d+ kernels are sound, 0 are not\n$")
        about = self.kiln("pack", "explain", pack)[0]
        self.assertRegex(about, r"a\.pack: \d+ kernels for sm_80, ")

    def test_the_same_bytes_in_any_order_and_by_parts(self):
        whole = self.build("whole.pack", self.small, self.two, *BOARDS, "--jobs", 1).read_bytes()
        listed = self.file("list.txt", "two.kiln\n# a comment\nsmall.kiln\nsmall.kiln\n")
        again = self.build("again.pack", listed, *reversed(BOARDS[2:]), "--jobs", 3, status=2)  # --board behind its name
        self.assertFalse(again.exists())
        again = self.build("again.pack", listed, *BOARDS[2:], *BOARDS[:2], "--jobs", 3)
        self.assertEqual(again.read_bytes(), whole)
        parts = [self.build(f"{name}.pack", graph, *BOARDS) for name, graph in (("p", self.small), ("q", self.two))]
        for order in (parts, parts[::-1], [*parts, again]):
            text, _ = self.kiln("pack", "merge", "-o", self.folder / "merged.pack", *order)
            self.assertRegex(text, r"^\d+ kernels, ")
            self.assertEqual((self.folder / "merged.pack").read_bytes(), whole)

    def test_a_build_that_was_killed_goes_on(self):
        whole = self.build("whole.pack", self.two, *BOARDS).read_bytes()
        pack, partial = self.folder / "killed.pack", self.folder / "killed.pack.partial"
        with subprocess.Popen([KILN, "pack", "build", self.two, "-o", pack, *BOARDS, "--jobs", "1"],
                              env=os.environ | {"KILN_CACHE_DIR": str(self.folder / "cache")},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            while not list(partial.glob("v1/*/*/kernel.cubin")) and running.poll() is None:
                time.sleep(0.005)
            running.send_signal(signal.SIGKILL)
        if pack.exists():
            self.skipTest("the build was done before it could be killed")
        text, _ = self.kiln("pack", "build", self.two, "-o", pack, *BOARDS)
        self.assertGreater(int(re.search(r"of which (\d+) were there", text).group(1)), 0)
        self.assertEqual(pack.read_bytes(), whole)
        self.assertFalse(partial.exists())

    def test_damage_is_words_and_status_1(self):
        pack = self.build("a.pack", self.small, *H200)
        sound = pack.read_bytes()
        for at, words in ((0, "does not begin as a pack does"), (20, "its header is damaged"),
                          (70, "its index is damaged"), (len(sound) - 20, "is damaged")):
            pack.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1:])
            text, errors = self.kiln("pack", "verify", pack, status=1)
            self.assertIn(words, text)
            self.assertEqual(errors, "")
        pack.write_bytes(sound[:-1])
        self.assertIn(f"it has {len(sound) - 1} bytes, and {len(sound)} by its header",
                      self.kiln("pack", "list", pack, status=2)[1])
        _, errors = self.kiln("pack", "merge", "-o", self.folder / "b.pack", pack, status=2)
        self.assertIn("is no sound pack", errors)
        self.assertFalse((self.folder / "b.pack").exists())

    def test_explain_says_what_is_missing_and_why(self):
        pack = self.build("a.pack", self.small, *H200)
        text, _ = self.kiln("pack", "explain", pack, self.small, *H200)
        self.assertRegex(text, r"(?m)^sm_90a +kiln_\w+  there, by nvrtc ")
        self.assertRegex(text, r"\d+ kernels of 1 graphs are there, 0 are missing\n$")
        text, _ = self.kiln("pack", "explain", pack, self.two, *H200, status=1)
        self.assertIn("missing: its text is no kernel's of the pack", text)
        text, _ = self.kiln("pack", "explain", pack, self.two, "--arch", "sm_80", status=1)
        self.assertIn("missing: the pack has nothing for sm_80", text)

    def test_batches_share_kernels(self):
        two = self.file("several.kiln", TWO_GROUPS.replace("[1,", "[2,"))
        text, _ = self.kiln("pack", "build", two, self.two, "-o", self.folder / "a.pack", *H200, "--batch", "2,4",
                            "--batch", "8", "--first")
        self.assertTrue(text.startswith("4 graphs, 0 left out"), text)  # the other one has one product, and stays
        self.kiln("pack", "explain", self.folder / "a.pack", two, *H200, "--batch", "4", "--first")

    def test_networks_are_lists(self):
        network = self.file("network.kiln", SMALL + TWO_GROUPS)
        text, _ = self.kiln("pack", "build", network, "-o", self.folder / "a.pack", *H200)
        self.assertTrue(text.startswith("2 graphs, 0 left out"), text)

    def test_usage(self):
        out = self.folder / "a.pack"
        for arguments, words in (
                ((self.small, "-o", out), "name an architecture by --arch"),
                ((self.small, "-o", out, "--arch", "sm_42"), "architecture 'sm_42' is not known"),
                ((self.small, "-o", out, "--arch", "cpu"), "packs hold kernels of GPUs"),
                ((self.small, "-o", out, "--arch", "sm_90"), "the library asks for kernels of sm_90a"),
                ((self.small, "-o", out, "--board", "Voodoo"), "board 'Voodoo' is not known"),
                ((self.small, "-o", out, "--arch", "sm_80", *H200), "it has sm_90a, and --arch names sm_80"),
                ((self.small, "-o", self.folder, *H200), "it is a folder; name a file"),
                ((self.folder / "none.kiln", "-o", out, *H200), "none.kiln"),
                ((self.small, "--arch", "sm_80"), "--output is required"),
                ((self.small, "-o", out, *H200, "--batch", "0"), "--batch")):
            self.assertIn(words, self.kiln("pack", "build", *arguments, status=2)[1], arguments)
        _, errors = self.kiln("pack", "build", self.small, "-o", out, *H200, status=1, KILN_NVRTC=NOWHERE)
        self.assertIn(NOWHERE, errors)
        self.assertFalse(out.exists())
        self.assertIn("there are build, list, verify, merge, explain", self.kiln("pack", "make", status=2)[1])
        self.assertIn("there is no file", self.kiln("pack", "list", self.folder / "no.pack", status=2)[1])


class PackRunTest(CliTest):
    """Without NVRTC, on the emulated GPU, whose NVRTC makes PTX where a cubin is asked for."""

    def emulated(self, *arguments, status=0, **variables):
        return self.kiln(*arguments, status=status, **{
            "KILN_DEVICE": "cuda", "KILN_LIBCUDA": str(EMULATED / "libcuda.so.1"), "EMULATED_GPU_ARCH": "sm_90",
            "KILN_LOG": "info", **variables})

    def test_a_program_without_nvrtc_runs_from_a_pack_alone(self):
        graphs = [self.file("small.kiln", SMALL), self.file("two.kiln", TWO_GROUPS)]
        pack = self.folder / "a.pack"
        self.emulated("pack", "build", *graphs, "-o", pack, *H200,
                      KILN_NVRTC=str(EMULATED / "libnvrtc_emulated.so"))
        for graph in graphs:
            run = ("run", graph, "--device", "cuda", "--repeats", 1)
            _, errors = self.emulated(*run, status=1, KILN_NVRTC=NOWHERE)
            self.assertIn(NOWHERE, errors)
            text, errors = self.emulated(*run, KILN_NVRTC=NOWHERE, KILN_PACKS=str(pack))
            self.assertIn("right", text)
            self.assertRegex(errors, r"pack .*a\.pack: \d+ kernels for sm_90a by nvrtc")
            self.assertEqual(list((self.folder / "cache").glob("v1/*/*/kernel.cubin")), [])

    def test_a_damaged_pack_is_a_line_and_compiled_anew(self):
        graph = self.file("small.kiln", SMALL)
        pack = self.folder / "a.pack"
        nvrtc = str(EMULATED / "libnvrtc_emulated.so")
        self.emulated("pack", "build", graph, "-o", pack, *H200, KILN_NVRTC=nvrtc)
        sound = pack.read_bytes()
        for at in (9, 80, len(sound) - 9):
            pack.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1:])
            text, errors = self.emulated("run", graph, "--device", "cuda", "--repeats", 1, KILN_NVRTC=nvrtc,
                                         KILN_PACKS=str(pack), KILN_CACHE_DIR=str(self.folder / f"cache{at}"))
            self.assertIn("right", text)
            self.assertIn("is no sound pack", errors)


if __name__ == "__main__":
    unittest.main()
