"""The tool from outside: every command on the examples, what it prints, its exit status.

    bazel test //tests/cli:all                               each class is a target
    python3 tests/cli/cli_test.py [CLASS]                    from a folder with cli/kiln and examples/
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from cli_case import ARCHS, COMMANDS, CliTest, GRAPHS, KILN, LIBRARY, LONG_SUM, RUN_CASE, SMALL, TWO_GROUPS


class HelpTest(CliTest):
    def test_help_names_every_command_and_form_of_graph(self):
        text, _ = self.kiln("--help")
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")
        for form in ("graph.kiln", "graph.json", "graphs.jsonl:7", "Exit status"):
            self.assertIn(form, text)

    def test_help_of_each_command_has_examples(self):
        for command in COMMANDS:
            text, _ = self.kiln(command, "--help")
            self.assertRegex(text, rf"Examples:\n  .*kiln {command}")

    def test_examples_in_the_help_exist(self):
        for arguments in [[], *[[c] for c in COMMANDS]]:
            text, _ = self.kiln(*arguments, "--help")
            for path in re.findall(r"examples/\S+?\.(?:kiln|json)\b", text):
                self.assertTrue(pathlib.Path(path).exists(), path)

    def test_version(self):
        version = re.escape(pathlib.Path("VERSION").read_text().strip())
        self.assertRegex(self.kiln("--version")[0], rf"^kiln {version}, build ([0-9a-f]+|none)\n")

    def test_no_command_prints_the_help(self):
        _, errors = self.kiln(status=2)
        self.assertIn("kiln doctor", errors)

    def test_unknown_command(self):
        _, errors = self.kiln("frobnicate", status=2)
        self.assertIn("there is no command frobnicate; there are run, dump,", errors)
        self.assertIn("there is no command explian, perhaps explain;", self.kiln("explian", status=2)[1])

    def test_commands_of_commands(self):
        for command, names in (("cache", "list, verify, prune"), ("records", "list, merge, export, verify")):
            _, errors = self.kiln(command, "purge", status=2)
            self.assertEqual(errors, f"kiln {command}: there is no command purge; there are {names}\n")
            self.assertIn(names.split(", ")[-1], self.kiln(command, status=2)[1])
        self.assertIn("no command prun, perhaps prune;", self.kiln("cache", "prun", status=2)[1])

    def test_unknown_options(self):
        for command in COMMANDS:
            _, errors = self.kiln(command, "--hepl", status=2)
            self.assertRegex(errors, rf"^kiln {command}: ")
        _, errors = self.kiln("run", "graph.kiln", "--devise", "cpu", status=2)
        self.assertEqual(errors, "kiln run: there is no option --devise; the nearest is --device\n")
        _, errors = self.kiln("cache", "list", "too", status=2)
        self.assertIn("kiln cache list: too is one argument too many", errors)

    def test_a_question_mark_asks_what_is_possible(self):
        """Of every option that takes one of some names, without a graph."""
        for arguments, answer in (
                (("dump", "--what", "?"), "the stages are graph, after:PASS, tile"),
                (("dump", "--what", "after:?"), "the passes are canonicalise, decompose"),
                (("dump", "--arch", "?"), "sm_90a"), (("explain", "--arch", "?"), "sm_90a"),
                (("run", "--device", "?"), "the devices are auto, cuda, cpu"),
                (("tune", "--device", "?"), "the devices are auto, cuda, cpu"),
                (("run", "--engine", "?"), "the engines are pointwise, reduce"),
                (("dump", "--knob", "?"), "\n  pointwise: threads=")):
            text, errors = self.kiln(*arguments)
            self.assertIn(answer, text)
            self.assertEqual(errors, "")


class DumpTest(CliTest):
    def test_cuda_of_every_example_and_architecture(self):
        for graph in GRAPHS:
            for arch in ARCHS:
                text, _ = self.kiln("dump", graph, "--arch", arch)
                self.assertTrue(text.startswith("//"), graph)
                self.assertIn('extern "C" __global__', text)
                self.assertNotIn("#include", text)

    def test_graph_is_read_back_as_itself(self):
        for graph in GRAPHS:
            text, _ = self.kiln("dump", graph, "--what", "graph")
            again, _ = self.kiln("dump", "-", "--what", "graph", stdin=text)
            self.assertEqual(text, again)

    def test_every_pass(self):
        _, errors = self.kiln("dump", GRAPHS[0], "--what", "after:nothing", status=2)
        passes = re.search(r"the passes are (.*)", errors).group(1).split(", ")
        self.assertIn("partition", passes)
        for name in passes:
            text, _ = self.kiln("dump", GRAPHS[0], "--what", f"after:{name}")
            self.assertIn("graph ", text)

    def test_tile_of_cpu_and_gpu_differ(self):
        gpu, _ = self.kiln("dump", "examples/graphs/reduction.kiln", "--what", "tile")
        cpu, _ = self.kiln("dump", "examples/graphs/reduction.kiln", "--what", "tile", "--arch", "cpu")
        self.assertIn("thread_x", gpu)
        self.assertNotIn("thread_x", cpu)

    def test_plan_names_every_argument_of_the_kernel(self):
        plan, _ = self.kiln("dump", "examples/graphs/pointwise_dag.kiln", "--what", "plan")
        cuda, _ = self.kiln("dump", "examples/graphs/pointwise_dag.kiln")
        signature = re.search(r"__global__[^(]*(?:\(\d+(?:, \d+)?\))?[^(]*\(([^)]*)\)", cuda).group(1)
        names = [part.split()[-1].lstrip("*") for part in signature.split(",")]
        self.assertEqual(re.findall(r"(?m)^    (\w+): ", plan), names)
        self.assertIn("pointer of uid 1\n", plan)
        self.assertIn("uid 4: bf16, written\n", plan)

    def test_folder_gets_a_file_a_kernel(self):
        self.kiln("dump", "examples/graphs/batch_norm_stats.kiln", "-o", f"{self.folder}/out/")
        text, _ = self.kiln("dump", "examples/graphs/batch_norm_stats.kiln")
        written = sorted((self.folder / "out").glob("*.cu"))
        self.assertEqual(len(written), text.count('extern "C" __global__'))
        for path in written:
            self.assertIn(path.stem, path.read_text())
            self.assertIn(path.read_text().rstrip("\n"), text)

    def test_one_kernel_to_a_file(self):
        path = self.folder / "kernel.cu"
        self.kiln("dump", "examples/graphs/batch_norm_stats.kiln", "--kernel", 1, "-o", path)
        self.assertEqual(path.read_text().count('extern "C" __global__'), 1)
        self.kiln("dump", "examples/graphs/batch_norm_stats.kiln", "--kernel", 99, status=2)

    def test_knobs_change_the_kernel(self):
        graph = "examples/graphs/pointwise_dag.kiln"
        self.assertIn("__launch_bounds__(128", self.kiln("dump", graph, "--knob", "threads=128")[0])
        _, errors = self.kiln("dump", graph, "--knob", "threads=7", status=2)
        self.assertIn("knob threads has value 7; legal are", errors)
        _, errors = self.kiln("dump", graph, "--engine", "magic", status=2)
        self.assertIn("there is no engine magic; there are pointwise", errors)

    def test_line_of_a_file_of_graphs(self):
        line = json.dumps(json.loads(GRAPHS[-1].read_text()))
        path = self.file("graphs.jsonl", f"\n{line}\n")
        text, _ = self.kiln("dump", f"{path}:2", "--what", "graph")
        self.assertEqual(text, self.kiln("dump", GRAPHS[-1], "--what", "graph")[0])
        _, errors = self.kiln("dump", path, status=2)
        self.assertIn("holds 1 graphs, one a line", errors)
        _, errors = self.kiln("dump", f"{path}:9", status=2)
        self.assertIn(":9: no graph stands there", errors)

    def test_unknown_architecture_lists_the_known(self):
        _, errors = self.kiln("dump", GRAPHS[0], "--arch", "sm_77", status=2)
        self.assertRegex(errors, r"'sm_77' is not known; known are .*sm_90a")
        self.kiln("dump", GRAPHS[0], "--what", "cuda", "--arch", "cpu", status=2)
        self.kiln("dump", GRAPHS[0], "--what", "asm", status=2)


class ErrorsTest(CliTest):
    """Malformed input: file:line:column, a sentence, exit status 2."""

    def expect(self, name, text, place, sentence):
        path = self.file(name, text)
        for arguments in (["explain"], ["dump", "--what", "graph"], ["run", "--device", "cpu"]):
            out, errors = self.kiln(arguments[0], path, *arguments[1:], status=2)
            self.assertEqual(out, "")
            self.assertTrue(errors.startswith(f"kiln: {path}{place}: "), errors)
            self.assertIn(sentence, errors)

    def test_syntax_of_text(self):
        self.expect("a.kiln", "graph g {\n  tensor %x uid=1 f32 [4,8\n}\n", ":3:1", "expected ','")
        self.expect("b.kiln", SMALL.replace("relu_fwd", "relu"), ":4:39", "found 'relu'")
        self.expect("c.kiln", SMALL.replace("(%x)", "(%z)"), ":4:18", "no tensor %z above")
        self.expect("empty.kiln", "", ":1:1", "empty")

    def test_meaning_of_text(self):
        self.expect("d.kiln", SMALL.replace("uid=2 f32 [4,8]", "uid=2 f32 [4,9]"), ":4:3", "%y is 4x9")
        self.expect("e.kiln", SMALL.replace("uid=1 f32 [4,8]", "uid=1 f32 [4,8] align=3"), ":2:10",
                    "alignment 3 is no power of two")

    def test_syntax_of_json(self):
        self.expect("a.json", '{"context": {},\n "nodes": [}', ":2:12", "'}'")
        self.expect("deep.json", '{"nodes":\n' + "[" * 100, ":2:64", "nested deeper")

    def expect_in_frontend_json(self, old, new, sentence):
        """The mistake's line and column are those of the text that was put in."""
        text = GRAPHS[-1].read_text()
        self.assertIn(old, text)
        text = text.replace(old, new, 1)
        before = text[:text.index(new)].split("\n")
        self.expect("m.json", text, f":{len(before)}:{len(before[-1]) + 1}", sentence)

    def test_meaning_of_json(self):
        self.expect_in_frontend_json('"RELU_FWD"', '"RELU_FORWARD"', '"RELU_FORWARD", not a known mode')
        self.expect_in_frontend_json('"CROSS_CORRELATION"', '"CORRELATION"', '"CORRELATION", not')

    def test_line_of_a_file(self):
        path = self.file("g.jsonl", '{}\n{"ops": [}\n')
        _, errors = self.kiln("explain", f"{path}:2", status=2)
        self.assertTrue(errors.startswith(f"kiln: {path}:2:10: "), errors)

    def test_line_of_a_graph_without_a_better_place(self):
        def tensor(*dims):
            return {"BYTE_ALIGNMENT": 16, "DATA_TYPE": "DATA_FLOAT", "DIMENSIONS": dims, "STRIDES": [8, 1]}
        relu = {"POINTWISE_MODE": "POINTWISE_RELU_FWD", "POINTWISE_MATH_PREC": "DATA_FLOAT"}
        operation = {"_": "OPERATION_POINTWISE_DESCRIPTOR", "OPERATION_POINTWISE_PW_DESCRIPTOR": relu,
                     "OPERATION_POINTWISE_XDESC": 1, "OPERATION_POINTWISE_YDESC": 2}
        lines = [json.dumps({"ops": [operation], "tensors": {"1": tensor(4, 8), "2": tensor(4, width)}})
                 for width in (8, 7)]
        path = self.file("n.jsonl", "\n".join(lines))
        self.kiln("explain", f"{path}:1")
        _, errors = self.kiln("explain", f"{path}:2", status=2)
        self.assertRegex(errors, rf"^kiln: {re.escape(str(path))}:2:1: .* is 4x7, but relu_fwd makes it 4x8")

    def test_extents_that_are_none(self):
        self.expect("n.kiln", SMALL.replace("uid=1 f32 [4,8]", "uid=1 f32 [4,-8]"), ":2:10",
                    "extent -8 of [4,-8] is negative")
        self.expect("s.kiln", SMALL.replace("uid=1 f32 [4,8]", "uid=1 f32 [4,8] strides=[-8,1]"), ":2:10",
                    "stride -8 of [-8,1] is negative")

    def test_names_that_are_none(self):
        for old, new, sentence in (
                ("pointwise", "conv", "expected an operation, found 'conv'; the nearest are conv_fprop, conv_dgrad, "
                                      "conv_wgrad"),
                ("pointwise", "matmull", "found 'matmull'; the nearest is matmul"),
                ("pointwise", "frobnicate", "found 'frobnicate'; docs/text_language.md lists them"),
                ("pointwise", "exp", "'exp', which is a mode of pointwise: %y = pointwise(%x) mode=exp"),
                ("relu_fwd", "relu", "found 'relu'; the nearest are relu_fwd, relu_bwd"),
                ("compute=f32", "compute=fp32", "expected a data type, found 'fp32'; the nearest is f32"),
                ("uid=1 f32", "uid=1 bf32", "'bf32' is no property of a tensor: a data type, [extents], uid,"),
                ("uid=1", "stride=1", "; the nearest is strides"),
                ("mode=", "mod=", "'mod' is no attribute of pointwise: compute, name, mode,")):
            _, errors = self.kiln("explain", self.file("n.kiln", SMALL.replace(old, new)), status=2)
            self.assertIn(sentence, errors)
        words = SMALL.replace("%x", "%image")
        _, errors = self.kiln("explain", self.file("w.kiln", words.replace("(%image)", "(%imag)")), status=2)
        self.assertIn("no tensor %imag above; the nearest: %image", errors)

    def test_control_bytes_do_not_reach_the_terminal(self):
        """Of names, of words that stand in the wrong place, of paths and of the command line."""
        evil = "\x1b[2J\x07\x9b1m\x7f"
        quoted = SMALL.replace("graph small", f'graph "{evil}"').replace("relu_fwd", f'relu_fwd name="{evil}"')
        document = json.loads(GRAPHS[-1].read_text())
        document["context"]["name"] = evil
        document["nodes"][0]["name"] = evil + "\nkiln: all is right"
        wrong = json.loads(json.dumps(document))
        wrong["nodes"][0]["math_mode"] = evil
        unknown = json.loads(json.dumps(document))
        unknown["nodes"][0]["tag"] = evil
        cases = [(self.file("q.kiln", quoted), 0), (self.file("x.kiln", SMALL.replace("%x)", f"%x{evil})")), 2),
                 (self.file("m.kiln", quoted.replace("(%x)", "(%x, %x)")), 2),
                 (self.file("j.json", json.dumps(document)), 0), (self.file("w.json", json.dumps(wrong)), 2),
                 (self.file("t.json", json.dumps(unknown)), 1), (self.folder / evil, 2)]
        for graph, status in cases:
            for command in (["explain"], ["dump", "--what", "plan"], ["dump", "--what", "graph"]):
                out, errors = self.kiln(command[0], graph, *command[1:], status=status, KILN_WHY="1")
                for text in (out, errors):
                    self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f-\x9f]", (graph, command))
                if status == 2:
                    self.assertEqual(errors.count("\n"), 1, errors)
        for arguments in ([evil], ["explain", evil], ["explain", "--" + evil], ["run", GRAPHS[0], "--device", evil]):
            _, errors = self.kiln(*arguments, status=2)
            self.assertNotRegex(errors, "[\x00-\x08\x0b-\x1f\x7f-\x9f]")

    def test_files_without_an_end(self):
        _, errors = self.kiln("explain", "/dev/zero", status=2)
        self.assertIn("/dev/zero: has more than 268435456 bytes", errors)
        sparse = self.folder / "sparse.kiln"
        with open(sparse, "wb") as file:
            file.truncate(1 << 42)
        self.assertIn("has more than", self.kiln("dump", sparse, status=2)[1])

    def test_an_allocation_that_fails_says_how_much_it_wanted(self):
        graph = self.file("l.kiln", SMALL + "#" * (64 << 20))
        done = subprocess.run(["bash", "-c", 'ulimit -v 120000; exec "$0" explain "$1"', KILN, graph], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"^kiln: out of memory: [0-9.]+ MiB were wanted at once, and [0-9.]+ \w+ are free\n$")

    def test_standard_input(self):
        _, errors = self.kiln("explain", "-", stdin="graph g [", status=2)
        self.assertTrue(errors.startswith("kiln: <stdin>:1:9: "), errors)

    def test_files_that_are_none(self):
        self.assertIn("cannot be read", self.kiln("explain", self.folder / "none", status=2)[1])
        self.assertIn("cannot be read", self.kiln("explain", self.folder, status=2)[1])

    def test_usage(self):
        self.kiln("run", status=2)
        self.kiln("explain", GRAPHS[0], "another", status=2)
        self.kiln("run", GRAPHS[0], "--repeats", "none", status=2)
        for text, sentence in (("5,1", "--range 5,1 is reversed: 5 is above 1; --range 1,5 is the same range"),
                               ("1", "--range 1 is not of the form LOW,HIGH"),
                               ("1,2,3", "is not of the form LOW,HIGH"),
                               ("nan,1", "must be finite"), ("-inf,inf", "must be finite")):
            self.assertIn(sentence, self.kiln("run", GRAPHS[0], f"--range={text}", status=2)[1])

    def test_environment(self):
        right, _ = self.kiln("explain", GRAPHS[0])
        for name, value, sentence in (
                ("KILN_LOG", "warning", "KILN_LOG='warning' is ignored: legal are off|error|warn|info|debug|trace, "
                                        "the nearest is warn; the default 'warn' counts"),
                ("KILN_CACHE_SIZE_MB", "1e3", "KILN_CACHE_SIZE_MB='1e3' is ignored: legal are sizes in MB"),
                ("KILN_TEST_CPU_THREADS", "1", "KILN_TEST_CPU_THREADS is no variable of Kiln and has no effect; the nearest is "
                                         "KILN_CPU_THREADS"),
                ("KILN_TEST_BUILD", "1", "has no effect; docs/environment.md lists all")):
            text, errors = self.kiln("explain", GRAPHS[0], **{name: value})
            self.assertIn("kiln: warning: ", errors)
            self.assertIn(sentence, errors)
            self.assertEqual(text, right)


class ExplainTest(CliTest):
    def test_says_what_records_say(self):
        (self.folder / "strided.kiln").write_text("""graph strided {
  tensor %dy uid=1 f16 [256,2048,7,7] strides=[100352,1,14336,2048]
  tensor %w uid=2 f16 [2048,1024,1,1] strides=[1024,1,1024,1024]
  tensor %dx uid=3 f16 [256,1024,14,14] strides=[200704,1,14336,1024]
  %dx = conv_dgrad(%dy, %w) compute=f32 pre_padding=[0,0] post_padding=[0,0] stride=[2,2] dilation=[1,1]
}
""")
        graph, records = str(self.folder / "strided.kiln"), {"KILN_RECORDS": "share/kiln/records"}
        text, _ = self.kiln("explain", graph, **records)
        self.assertRegex(text, r"(?m)^  record    wgmma_sm90 tile_left=\d+,.*: was measured")
        for case in ({}, dict(records, KILN_TUNE="off"), dict(records, KILN_TUNE="heuristic")):
            text, _ = self.kiln("explain", graph, **case)
            self.assertNotIn("  record ", text)

    def test_every_example(self):
        for graph in GRAPHS:
            text, _ = self.kiln("explain", graph)
            groups = int(re.search(r"in (\d+) group", text).group(1))
            self.assertEqual(len(re.findall(r"(?m)^group \d+: ", text)), groups)
            self.assertEqual(len(re.findall(r"(?m)^  engine    \w+ \(row \d+\)", text)), groups)
            self.assertEqual(text.count(", leads: "), 1)
            self.assertRegex(text, r"(?m)^  knob      \w+=\d+, legal \d+")
            self.assertRegex(text, r"(?m)^  declined  \w+: .+")

    def test_fused_into_one_group(self):
        text, _ = self.kiln("explain", "examples/graphs/conv_scale_bias_relu.json")
        self.assertRegex(text, r"(?m)^group 0: conv_fprop, mul, add, max\w*$")
        self.assertNotIn("group 1", text)

    def test_floor_counts_each_tensor_once(self):
        text, _ = self.kiln("explain", self.file("s.kiln", SMALL))
        self.assertRegex(text, r"(?m)^  floor     256 B, .+ at 2\.9 TB/s: reads 128 B, writes 128 B$")
        self.assertRegex(text, r"(?m)^floor 256 B, .+; the groups move 256 B, model .+s$")
        self.assertNotIn("workspace ", text.split("\n", 1)[1])
        self.assertRegex(self.kiln("explain", self.file("s.kiln", SMALL), "--arch", "cpu")[0],
                         r"(?m)^  floor     256 B: reads 128 B, writes 128 B$")

    # The rate of a copy: 0.85 of what the vendor says of the architecture's usual board.
    def test_floor_is_the_boards(self):
        path = self.file("s.kiln", SMALL)
        for arch, board, rate in (("sm_70", "Tesla V100-SXM2-16GB", "0.8"), ("sm_75", "Tesla T4", "0.3"),
                                  ("sm_80", "NVIDIA A100-SXM4-80GB", "1.7"),
                                  ("sm_89", "NVIDIA GeForce RTX 4090", "0.9"),
                                  ("sm_90a", "NVIDIA H100 80GB HBM3", "2.9"), ("sm_100a", "NVIDIA B200", "6.8"),
                                  ("sm_120a", "NVIDIA GeForce RTX 5090", "1.5")):
            text, _ = self.kiln("explain", path, "--arch", arch)
            self.assertIn(f" for {arch} ({board}), ", text)
            self.assertRegex(text, rf"(?m)^floor 256 B, .+ at {re.escape(rate)} TB/s; ")

    def test_why_groups_are_apart(self):
        text, _ = self.kiln("explain", self.file("two.kiln", TWO_GROUPS))
        self.assertIn("in 2 groups", text)
        self.assertRegex(text, r"(?m)^  why       a matmul anchors a group, and waits for all of group 0$")
        # Every plan of a program says the same.
        _, errors = self.kiln("dump", self.file("two.kiln", TWO_GROUPS), "--what", "plan", KILN_WHY="1")
        self.assertIn("kiln: two: group 1: a matmul anchors a group, and waits for all of group 0\n", errors)
        self.assertRegex(errors, r"(?m)^kiln: two: group 0: takes \w+ \w+=.*, modelled [0-9.]+ us$")
        self.assertRegex(errors, r"(?m)^kiln: two: group 0: pointwise: the group has a contraction$")
        # A graph of the C interface has no name: its text tells it apart.
        names = {re.search(r"(?m)^kiln: (graph [0-9a-f]{8}): group 0: takes ",
                           self.kiln("dump", self.file("u.kiln", text), "--what", "plan", KILN_WHY="1")[1]).group(1)
                 for text in (TWO_GROUPS.replace("graph two", "graph graph"),
                              TWO_GROUPS.replace("graph two", "graph graph").replace("64,64", "32,32"))}
        self.assertEqual(len(names), 2)

    def test_least_workspace(self):
        path = self.file("two.kiln", TWO_GROUPS)
        text, _ = self.kiln("explain", path)
        self.assertRegex(text, r"(?m)^workspace 8\.0 KiB: no engine can do with less$")
        long_sum = self.file("long.kiln", LONG_SUM)
        text, _ = self.kiln("explain", long_sum, "--arch", "sm_80")
        self.assertRegex(text, r"(?m)^workspace .+: with --least-workspace 0 B, model .+s$")
        self.assertRegex(text, r"(?m)^  scratch   .+ of workspace, written and read again$")
        text, _ = self.kiln("explain", long_sum, "--arch", "sm_80", "--least-workspace")
        self.assertIn(", 0 B of workspace\n", text)
        self.assertNotIn("  scratch ", text)

    def test_choice(self):
        graph = "examples/graphs/pointwise_dag.kiln"
        self.assertIn("threads=512", self.kiln("explain", graph, "--knob", "threads=512")[0])
        _, errors = self.kiln("explain", graph, "--engine", "reduce", status=1)
        self.assertIn("engine reduce declines the graph", errors)


class CacheTest(CliTest):
    """Without kernels; RunTest has one that holds some."""

    def test_empty(self):
        self.assertIn("0 kernels, 0 B in ", self.kiln("cache", "list")[0])
        self.assertIn("0 kernels are sound, 0 were damaged", self.kiln("cache", "verify")[0])
        self.assertIn("removed 0 kernels", self.kiln("cache", "prune", "--max-mb", 0)[0])

    def test_no_folder(self):
        _, errors = self.kiln("cache", "list", status=1, KILN_CACHE_DIR="/proc/no/such/folder")
        self.assertIn("cannot create /proc/no", errors)

    def test_usage(self):
        self.kiln("cache", status=2)
        self.kiln("cache", "prune", "--max-mb", "-1", status=2)


class DoctorTest(CliTest):
    def test_finds_the_cpu(self):
        text, _ = self.kiln("doctor", KILN_DEVICE="cpu")
        self.assertRegex(text, r"(?m)^ok +CPU plug-in +/.*libkiln_cpu\.so")
        self.assertRegex(text, r"(?m)^ok +device .*KILN_DEVICE=cpu")
        self.assertRegex(text, r"(?m)^ok +kernel cache +" + re.escape(str(self.folder)))

    def test_says_what_is_missing_and_what_to_do(self):
        text, _ = self.kiln("doctor", status=1, KILN_DEVICE="cpu", KILN_CPU_PLUGIN="/none.so",
                            KILN_LIBCUDA="/none.so.1", KILN_NVRTC="/none.so.2")
        self.assertRegex(text, r"(?m)^missing +CUDA driver .*/none\.so\.1.*KILN_LIBCUDA")
        self.assertRegex(text, r"(?m)^missing +NVRTC .*/none\.so\.2.*KILN_NVRTC")
        self.assertRegex(text, r"(?m)^missing +CPU plug-in .*/none\.so.*KILN_CPU_PLUGIN")
        self.assertRegex(text, r"(?m)^missing +device ")

    def test_counts_tuning_records(self):
        none = dict(KILN_DEVICE="cpu", KILN_RECORDS_DIR=str(self.folder / "none"))
        text, _ = self.kiln("doctor", **none)
        self.assertRegex(text, r"(?m)^note +tuning records +none in .*/none")
        lines = (pathlib.Path("share/kiln/records/h100.txt").read_text()).splitlines(keepends=True)
        (self.folder / "some.txt").write_text("".join(lines[:4]))
        text, _ = self.kiln("doctor", KILN_RECORDS=str(self.folder / "some.txt"), **none)
        self.assertRegex(text, r"(?m)^ok +tuning records +3 of NVIDIA H100 80GB HBM3$")
        (self.folder / "some.txt").write_text("".join(lines[:4]) + lines[4].replace("knobs=", "knobs=x"))
        text, _ = self.kiln("doctor", KILN_RECORDS=str(self.folder / "some.txt"), **none)
        self.assertRegex(text, r"(?m)^note +tuning records +3 of .*; 1 damaged line")

    def test_a_setuid_program_reads_no_variable(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a program to another user")
        program = pathlib.Path(tempfile.mkdtemp(dir="/tmp")) / "kiln"
        self.addCleanup(shutil.rmtree, program.parent)
        shutil.copyfile(KILN, program)
        os.chmod(program.parent, 0o755)
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KILN_DEVICE": "cpu",
                       "KILN_CACHE_DIR": str(program.parent / "cache"), "KILN_LIBCUDA": "/none/libcuda.so",
                       "KILN_NVRTC": "/none/libnvrtc.so", "KILN_CPU_PLUGIN": "/none/libkiln_cpu.so"}
        done = subprocess.run([program, "doctor"], env=environment, text=True, capture_output=True, check=False)
        self.assertRegex(done.stdout, r"(?m)^note +environment +KILN_LIBCUDA is ignored: this process has more rights")
        self.assertRegex(done.stdout, r"(?m)^note +kernel cache +in memory only: this process has more rights")
        self.assertNotIn("/none/", done.stdout)
        self.assertNotIn(str(self.folder), done.stdout)

    def test_reports_the_environment(self):
        text, _ = self.kiln("doctor", KILN_SPEED="1", KILN_CPU_THREADS="-5", KILN_DEVICE="cpu")
        self.assertRegex(text, r"(?m)^note +environment +KILN_SPEED is no variable of Kiln")
        self.assertRegex(text, r"(?m)^note +environment +KILN_CPU_THREADS='-5' is ignored")


class LlvmTest(CliTest):
    def test_llvm_of_every_example(self):
        for graph in GRAPHS:
            text, _ = self.kiln("dump", graph, "--what", "llvm")
            self.assertRegex(text, r"define void @kiln_\w+\(")
            self.assertIn("target triple", text)


class RunTest(CliTest):
    def test_fused_convolution(self):
        text, _ = self.kiln("run", "examples/graphs/conv_scale_bias_relu.json", "--device", "cpu",
                            "--repeats", 3)
        self.assertRegex(text, r"graph   conv_scale_bias_relu: 4 operations, 1 kernel, ")
        self.assertRegex(text, r"check   output \(uid 5\) f16 8x64x16x16: right; worst element \[[\d,]+\]: "
                               r"got \S+, want \S+, off by \S+ of \S+ allowed")
        self.assertRegex(text, r"time    \S+ (us|ms|s), median of 3")
        kernel = re.search(r"kernel  (kiln_\w+)  \w+  grid [\dx]+ block 1  .*\n +(/\S+)\n", text)
        self.assertIn(kernel.group(1), pathlib.Path(kernel.group(2)).read_text())

    def test_cache_holds_what_ran_and_finds_damage(self):
        self.kiln("run", self.file("s.kiln", SMALL), "--device", "cpu", "--repeats", 1)
        listed, _ = self.kiln("cache", "list")
        self.assertIn("1 kernels, ", listed)
        self.assertIn("kiln_pointwise_", listed)
        payload, = (self.folder / "cache").glob("v*/*/*/kernel.o")
        payload.write_bytes(payload.read_bytes()[:-1] + b"?")
        text, _ = self.kiln("cache", "verify", status=1)
        self.assertIn("0 kernels are sound, 1 were damaged", text)
        self.kiln("run", self.folder / "s.kiln", "--device", "cpu", "--repeats", 1)
        self.assertIn("1 kernels are sound, 0 were damaged", self.kiln("cache", "verify")[0])
        for size in ("-1", "99999999999999", "2GB", "1e3"):
            self.assertIn("removed 0 kernels", self.kiln("cache", "prune", KILN_CACHE_SIZE_MB=size)[0], size)
        self.assertIn("removed 1 kernels", self.kiln("cache", "prune", "--max-mb", 0)[0])

    def test_what_is_no_file_is_damage(self):
        def sparse(path):
            path.touch()
            os.truncate(path, 1 << 42)

        graph = self.file("s.kiln", SMALL)
        for name in ("kernel.o", "manifest.txt"):
            for make in (os.mkfifo, sparse):
                self.kiln("run", graph, "--device", "cpu", "--repeats", 1)
                file, = (self.folder / "cache").glob(f"v*/*/*/{name}")
                file.unlink()
                make(file)
                self.assertIn("0 kernels are sound, 1 were damaged", self.kiln("cache", "verify", status=1)[0])
                self.assertIn("0 kernels, ", self.kiln("cache", "list")[0])

    def test_more_threads_than_there_can_be(self):
        text, _ = self.kiln("run", self.file("s.kiln", SMALL), "--device", "cpu", "--repeats", 1,
                            KILN_CPU_THREADS="1000000")
        self.assertIn("right", text)
        text, _ = self.kiln("doctor", KILN_DEVICE="cpu", KILN_CPU_THREADS="1000000")
        self.assertRegex(text, rf"(?m)^ok +CPU plug-in .* {4 * len(os.sched_getaffinity(0))} threads$")

    def test_seed_gives_the_data(self):
        graph = self.file("s.kiln", SMALL.replace("[4,8]", "[64,64]").replace("relu_fwd", "exp"))

        def check(*options):
            text, _ = self.kiln("run", graph, "--device", "cpu", "--repeats", 1, *options)
            return re.search(r"check .*", text).group()
        self.assertEqual(check("--seed", 3), check("--seed", 3))
        self.assertNotEqual(check("--seed", 3), check("--seed", 4))
        self.assertNotEqual(check(), check("--range", "0,9"))

    def test_several_kernels_share_the_workspace(self):
        text, _ = self.kiln("run", "examples/graphs/reduction.kiln", "--device", "cpu", "--repeats", 1)
        kernels = int(re.search(r"(\d+) kernels?, ", text).group(1))
        self.assertEqual(len(re.findall(r"(?m)^kernel  ", text)), kernels)

    def test_without_check(self):
        text, _ = self.kiln("run", self.file("s.kiln", SMALL), "--device", "cpu", "--no-check")
        self.assertNotIn("check ", text)
        self.assertIn("kernel ", text)

    def test_in_place_graph_and_scalars(self):
        graph = self.file("i.kiln", """graph in_place {
  tensor %x uid=1 f16 [4,1024]
  tensor %s uid=2 f32 [1,1] by_value
  tensor %y uid=1 f16 [4,1024]
  %y = pointwise(%x, %s) compute=f32 mode=mul
}
""")
        self.assertIn(": right;", self.kiln("run", graph, "--device", "cpu", "--repeats", 1)[0])

    def test_tensors_without_uids(self):
        graph = self.file("n.kiln", SMALL.replace("uid=1 ", "").replace("uid=2 ", "uid=1 "))
        text, _ = self.kiln("run", graph, "--device", "cpu", "--repeats", 1)
        self.assertIn("check   y (uid 1) f32 4x8: right;", text)
        self.assertIn("tensor %x uid=2 f32", self.kiln("dump", graph, "--what", "graph")[0])
        graph = self.file("m.kiln", SMALL.replace("uid=1 ", "uid=-7 ").replace("uid=2 ", "uid=-7 "))
        self.assertIn(": right;", self.kiln("run", graph, "--device", "cpu", "--repeats", 1)[0])

    def test_elements_that_share_a_place(self):
        """Inputs of stride 0 and of windows that overlap; integers, halves of bytes, and offsets too."""
        for strides in ("[0,1]", "[8,0]", "[0,0]", "[3,1]", "[1,1]"):
            for dtype in ("f32", "f16", "i8", "u4"):
                graph = self.file("o.kiln", f"""graph overlap {{
  tensor %x uid=1 {dtype} [4,8] strides={strides}
  tensor %b uid=3 f32 [4,8]
  tensor %y uid=2 f32 [4,8] strides=[1,4]
  %y = pointwise(%x, %b) compute=f32 mode=add
}}
""")
                text, _ = self.kiln("run", graph, "--device", "cpu", "--repeats", 1)
                self.assertIn("check   y (uid 2) f32 4x8: right;", text)

    def test_a_graph_that_is_too_large_is_refused_before_it_starts(self):
        for elements, sentence in (("1048576,1048576", "running small takes "), ("8192,8192", "checking small takes ")):
            graph = self.file("l.kiln", SMALL.replace("4,8", elements))
            arguments = ["run", graph, "--device", "cpu", "--repeats", "1"]
            limited = ["bash", "-c", 'ulimit -v 3000000; exec "$0" "$@"', KILN, *arguments]
            environment = {**os.environ, "KILN_CACHE_DIR": str(self.folder / "cache")}
            done = subprocess.run(limited, text=True, capture_output=True, env=environment, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertIn(f"kiln: {sentence}", done.stderr)
            self.assertRegex(done.stderr, r"[0-9.]+ [GT]iB are free")
        self.assertIn("--check-part MB checks a part", done.stderr)

    def test_a_part_is_checked(self):
        graph = self.file("p.kiln", SMALL.replace("4,8", "1024,2048"))
        text, _ = self.kiln("run", graph, "--device", "cpu", "--repeats", 1, "--check-part", 1)
        part = re.search(r"check   y \(uid 2\) f32 (\d+)x(\d+): right;", text)
        self.assertLess(int(part.group(1)) * int(part.group(2)) * 8, 1 << 20)
        self.assertRegex(text, r"(?m)^        that is the part \[\d+:\d+,\d+:\d+\] of 1024x2048$")
        text, _ = self.kiln("run", graph, "--device", "cpu", "--repeats", 1, "--check-part", 100000)
        self.assertIn("f32 1024x2048: right;", text)
        graph = self.file("q.kiln", SMALL.replace("pointwise", "reduction").replace("relu_fwd", "add")
                          .replace("4,8", "1024,1024", 1).replace("4,8", "1,1"))
        _, errors = self.kiln("run", graph, "--device", "cpu", "--check-part", 1, status=1)
        self.assertIn("no part of small can be checked in 1.0 MiB", errors)
        self.kiln("run", graph, "--device", "cpu", "--check-part", 1, "--no-check", status=2)

    def test_no_such_device(self):
        _, errors = self.kiln("run", self.file("s.kiln", SMALL), "--device", "cuda", status=1,
                              KILN_LIBCUDA="/none.so.1")
        self.assertIn("/none.so.1", errors)
        self.kiln("run", self.folder / "s.kiln", "--device", "tpu", status=2)


class TuneTest(CliTest):
    """On the CPU device, whose candidates are few."""

    def tune(self, *arguments, **kwargs):
        return self.kiln("tune", *arguments, "--device", "cpu", "--jobs", "2", **kwargs)[0]

    def lines(self):
        return [line for file in sorted((self.folder / "cache/records").glob("*.txt"))
                for line in file.read_text().splitlines()]

    def test_measures_stores_and_resumes(self):
        graph = self.file("small.kiln", SMALL)
        first = self.tune(graph)
        self.assertIn("1 graphs, 1 distinct groups, of which 1 are tuned here", first)
        self.assertRegex(first, r"(?m)^  best .* by pointwise threads=")
        self.assertIn("0 known", first)
        self.assertIn("1 groups tuned, 0 failed", first)
        stored = self.lines()
        self.assertGreater(len(stored), 2)
        again = self.tune(graph)
        self.assertIn("  0 measured,", again)
        self.assertEqual(self.lines(), stored)
        self.assertNotIn("  0 measured,", self.tune(graph, "--retune", "--top", "1"))
        self.assertGreater(len(self.lines()), len(stored))

    def test_lists_folders_and_shards(self):
        captured = self.folder / "captured"
        captured.mkdir()
        for n in (8, 16, 24, 32, 40):
            (captured / f"{n}.kiln").write_text(SMALL.replace("4,8", f"4,{n}"))
        (captured / "notes.md").write_text("no graph")
        same = self.file("same.kiln", SMALL.replace("small", "other").replace("%x", "%z"))
        graph_list = self.file("list.txt", f"# graphs\ncaptured\n\n{same.name}  # by its name\n")
        for shard, expected in (("1/2", 3), ("2/2", 2)):
            text = self.tune(graph_list, "--shard", shard, "--top", "1")
            self.assertIn(f"6 graphs, 5 distinct groups, of which {expected} are tuned here", text)
        self.assertEqual(len({re.search(r"problem=(\w+)", line).group(1) for line in self.lines()}), 5)

    def test_a_budget_ends_it(self):
        text = self.tune(self.file("small.kiln", SMALL), "--budget", "0.000001")
        self.assertIn("the budget is used up", text)
        self.assertLessEqual(len(self.lines()), 1)

    def test_refuses_in_words(self):
        graph = self.file("small.kiln", SMALL)
        for arguments, sentence in (
                ((graph, "--shard", "3/2"), "--shard 3/2 is not of the form"),
                ((self.folder / "none.txt",), "cannot be read"),
                ((self.file("empty.txt", "# nothing\n"),), "there is no graph in it"),
                ((self.file("self.txt", "self.txt\n"),), "nested more than"),
                ((self.file("spelled.txt", "\nm: matmul(a, b) -> c  # a graph itself\n"),),
                 "spelled.txt:2: there is no file")):
            _, error = self.kiln("tune", *arguments, "--device", "cpu", status=2)
            self.assertIn(sentence, error)

    def test_run_uses_what_was_measured(self):
        graph = self.file("small.kiln", SMALL)
        self.tune(graph)
        best = re.search(r"pointwise/\d+ (\S+)", self.kiln("records", "list")[0]).group(1)
        dumps = self.folder / "dumps"
        dumps.mkdir()
        self.kiln("run", graph, "--device", "cpu", KILN_DUMP="after:pick-engine",
                  KILN_DUMP_DIR=str(dumps))
        (dump,) = dumps.iterdir()
        self.assertIn(f"engine pointwise {best}\n", dump.read_text())

    def application(self, cache, **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
        environment = {**kept, "KILN_DEVICE": "cpu", "KILN_CACHE_DIR": str(self.folder / cache),
                       "KILN_CPU_PLUGIN": str(pathlib.Path("runtime/cpu/libkiln_cpu.so").resolve()),
                       **variables}
        # Large enough that the tiles differ in time, and not square.
        case = "m: matmul(a:f32[1,96,64], b:f32[1,64,200]) -> y:f32"
        done = subprocess.run([RUN_CASE, LIBRARY, case], env=environment, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_capture_tune_deploy(self):
        """A program of the C interface runs once, its graph is tuned, and it runs on the records."""
        for _ in range(2):
            self.application("cache", KILN_CAPTURE=str(self.folder / "captured"))
        (captured,) = (self.folder / "captured").iterdir()
        self.assertRegex(captured.name, r"^matmul-[0-9a-f]{16}\.kiln$")
        self.kiln("dump", captured)
        self.tune(self.folder / "captured", "--patience", "0")
        # Each configuration in turn is what is known, and what the program runs on.
        shipped = self.folder / "shipped.txt"
        self.kiln("records", "export", shipped, "--keep", "100")
        records = [line for line in shipped.read_text().splitlines() if "problem=" in line]
        self.assertGreater(len(records), 3)
        for number, record in enumerate(records[:3] + records[-1:]):
            shipped.write_text(record + "\n")
            dumps = self.folder / f"dumps{number}"
            dumps.mkdir()
            self.application("other", KILN_RECORDS=str(shipped), KILN_DUMP="after:pick-engine",
                             KILN_DUMP_DIR=str(dumps))
            knobs = re.search(r"\tknobs=(\S+)\t", record).group(1)
            text = "".join(dump.read_text() for dump in dumps.iterdir())
            self.assertEqual(set(re.findall(r"engine contract_simt (\S+)", text)), {knobs})


class RecordsTest(CliTest):
    """Files made by tuning two graphs."""

    def setUp(self):
        super().setUp()
        self.parts = []
        for n in (8, 16):
            graph = self.file(f"{n}.kiln", SMALL.replace("4,8", f"4,{n}"))
            part = self.folder / f"part{n}"
            self.kiln("tune", graph, "--device", "cpu", "--top", "3", KILN_RECORDS_DIR=str(part))
            self.parts.append(part)

    def test_merge_is_a_union_in_any_order(self):
        a, b, c = (self.folder / f"{name}.txt" for name in "abc")
        self.kiln("records", "merge", a, *self.parts)
        self.kiln("records", "merge", b, *reversed(self.parts), a)
        self.kiln("records", "merge", c, self.parts[0])
        self.kiln("records", "merge", c, self.parts[1])
        self.kiln("records", "merge", c)
        self.assertEqual(a.read_text(), b.read_text())
        self.assertEqual(a.read_text(), c.read_text())
        self.assertEqual(len(a.read_text().splitlines()), 1 + 2 * 3)

    def test_list_and_export_keep_the_fastest(self):
        text, _ = self.kiln("records", "list", *self.parts)
        self.assertIn("2 records of 2 problems", text)
        text, _ = self.kiln("records", "list", "--all", *self.parts)
        self.assertIn("6 records of 2 problems", text)
        out = self.folder / "out/shipped.txt"
        self.assertIn("2 records in", self.kiln("records", "export", out, *self.parts)[0])
        self.assertIn("4 records in", self.kiln("records", "export", out, *self.parts, "--keep", "2")[0])

    def test_verify_finds_damage(self):
        self.kiln("records", "verify", *self.parts)
        (file,) = self.parts[0].iterdir()
        text = file.read_text()
        file.write_text(text.replace("\tus=", "\tus=9", 1))
        out, error = self.kiln("records", "verify", *self.parts, status=1)
        self.assertIn("1 lines are damaged", out)
        self.assertIn("its sum does not fit", error)
        # The others of the file are still there.
        merged = self.folder / "merged.txt"
        self.kiln("records", "merge", merged, self.parts[0])
        self.assertGreaterEqual(len(merged.read_text().splitlines()), 3)

    def test_refuses_in_words(self):
        _, error = self.kiln("records", "list", self.folder / "nothing", status=2)
        self.assertIn("there are no records", error)


if __name__ == "__main__":
    unittest.main()
