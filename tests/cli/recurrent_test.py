"""The tool on loops over time: every command takes networks, their gradients and the CTC loss, and `run` compares
numbers that mean something.

    bazel test //tests/cli:recurrent_test
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import unittest

from cli_case import ARCHS, CliTest, LIBRARY

# All three calls of a network, with sequences that end early. A second cell as it is spelled, for what is common.
TRAINING = """graph training {{
  tensor %x uid=1 f32 [5,3,4] strides=[12,4,1]
  tensor %w uid=2 f32 [{weights}] strides=[1]
  tensor %hx uid=3 f32 [2,3,5]
  tensor %lengths uid=4 i32 [3]
  tensor %dy uid=5 f32 [5,3,10] strides=[30,10,1]
  tensor %y uid=6 f32 [5,3,10] strides=[30,10,1]
  tensor %hy uid=7 f32 [2,3,5]
  tensor %reserve uid=8 f32 [{reserve}] strides=[1]
  tensor %dx uid=9 f32 [5,3,4] strides=[12,4,1]
  tensor %gradients uid=10 f32 [{gradients}] strides=[1]
  tensor %dhx uid=11 f32 [2,3,5]
  tensor %dw uid=12 f32 [{weights}] strides=[1]
  %y, %hy, _, %reserve = rnn_forward(%x, %w, %hx, _, %lengths) compute=f32 {network}
  %dx, %gradients, %dhx = rnn_backward_data(%y, %dy, %w, %reserve, %hx, _, _, _, %lengths) compute=f32 {network}
  %dw = rnn_backward_weights(%x, %y, %reserve, %gradients, %hx, %lengths) compute=f32 {network}
}}
"""


def training(cell, gates, kept, slopes):
    """Gates of the cell, blocks that it keeps, and those of its gradient; one layer, both directions."""
    hidden, states = 5, 5 * 3 * 2 * 5  # hidden units; of all steps, sequences and directions
    return TRAINING.format(weights=2 * gates * hidden * (4 + hidden + 2), reserve=kept * states,
                           gradients=slopes * states,
                           network=f"cell={cell} hidden=5 projected=5 bidirectional=true")


# 9 rows: sequences of 4, 3 and 2 steps, or of as many in all.
PACKED = """graph packed {
  tensor %x uid=1 f32 [9,4] strides=[4,1]
  tensor %w uid=2 f32 [220] strides=[1]
  tensor %lengths uid=3 i32 [3]
  tensor %y uid=4 f32 [9,5] strides=[5,1]
  tensor %cy uid=5 f32 [1,3,5]
  %y, _, %cy = rnn_forward(%x, %w, _, _, %lengths) compute=f32 cell=lstm hidden=5 projected=5 steps=4
}
"""
LOOP = """graph loop {
  tensor %xg uid=1 f32 [6,2,1,15]
  tensor %r uid=2 f32 [1,15,5]
  tensor %lengths uid=3 i32 [2]
  tensor %y uid=4 f32 [6,2,5]
  tensor %hy uid=5 f32 [1,2,5]
  %y, %hy = recurrence(%xg, %r, _, _, _, _, %lengths) compute=f32 cell=gru
}
"""
CTC = """graph ctc {{
  tensor %probs uid=1 f32 [12,{samples},5]
  tensor %labels uid=2 i32 [{labels}]
  tensor %label_lengths uid=3 i32 [{samples}]
  tensor %input_lengths uid=4 i32 [{samples}]
{before}  tensor %costs uid=5 f32 [{samples}]
  tensor %gradients uid=6 f32 [12,{samples},5]
  %costs, %gradients = ctc_loss(%probs, %labels, %label_lengths, %input_lengths{operand}) compute=f32 max_label=6 {attrs}
}}
"""


def ctc(samples, attrs="", keeps=False):
    """`keeps`: gradients of samples that no path fits stay as they were."""
    before = f"  tensor %before uid=7 f32 [12,{samples},5]\n" if keeps else ""
    return CTC.format(samples=samples, labels=samples * 6, before=before, operand=", %before" if keeps else "",
                      attrs=attrs + (" skip_infeasible=true" if keeps else ""))


GRAPHS = {
    "lstm": training("lstm", 4, 5, 4),
    "gru": training("gru", 3, 4, 4),
    "tanh": training("tanh", 1, 1, 1),
    "packed": PACKED,
    "loop": LOOP,
    "ctc": ctc(17),
    "ctc_probabilities": ctc(3, "softmax=false"),
    "ctc_keeps": ctc(9, keeps=True),
}


class RecurrentTest(CliTest):
    def graphs(self):
        return [(name, self.file(f"{name}.kiln", text)) for name, text in GRAPHS.items()]

    def run_graph(self, path, *options):
        return self.kiln("run", path, "--device", "cpu", "--repeats", 1, *options)[0]

    def test_run_compares_numbers(self):
        for name, path in self.graphs():
            for seed in (1, 2):
                text = self.run_graph(path, "--seed", seed)
                checks = re.findall(r"(?m)^check   .*$", text)
                self.assertEqual(len(checks), path.read_text().count("tensor %") - text_inputs(path), name)
                for check in checks:
                    self.assertIn(": right;", check, f"{name}, seed {seed}")
                    self.assertNotRegex(check, r"got -?nan|want -?nan", f"{name}, seed {seed}")
                self.assertNotIn("should be NaN", text)

    # Labels of no symbol, which only NaN comes of, are said to be no check.
    def test_run_says_where_all_is_nan(self):
        graph = self.file("nan.kiln", """graph nan {
  tensor %x uid=1 f32 [4,8]
  tensor %y uid=2 f32 [4,8]
  %y = pointwise(%x) compute=f32 mode=log
}
""")
        self.assertIn("every element should be NaN", self.run_graph(graph, "--range", "-2,-1"))
        self.assertNotIn("should be NaN", self.run_graph(graph, "--range", "1,2"))

    def test_graphs_are_read_back_as_themselves(self):
        for name, path in self.graphs():
            text, _ = self.kiln("dump", path, "--what", "graph")
            again, _ = self.kiln("dump", "-", "--what", "graph", stdin=text)
            self.assertEqual(text, again, name)
            self.assertRegex(text, r"= (rnn_forward|recurrence|ctc_loss)\(", name)

    def test_dump_shows_loops_on_every_architecture(self):
        for name, path in self.graphs():
            for arch in ARCHS:
                text, _ = self.kiln("dump", path, "--arch", arch)
                self.assertIn('extern "C" __global__', text, name)
                self.assertNotIn("#include", text, name)
            self.assertIn("thread_x", self.kiln("dump", path, "--what", "tile")[0], name)
            self.assertRegex(self.kiln("dump", path, "--what", "llvm")[0], r"define void @kiln_\w+\(", name)

    def test_explain_names_the_engine_of_each_loop(self):
        for name, path in self.graphs():
            for arch in ("cpu", "sm_90a"):
                text, _ = self.kiln("explain", path, "--arch", arch)
                groups = int(re.search(r"in (\d+) group", text).group(1))
                self.assertEqual(len(re.findall(r"(?m)^  engine    \w+ \(row \d+\)", text)), groups, name)
                wanted = r"ctc\w*" if name.startswith("ctc") else r"recurrence\w*"
                self.assertRegex(text, rf"(?m)^  engine    {wanted} \(row \d+\)", f"{name} for {arch}")
                self.assertRegex(text, r"(?m)^  declined  \w+: .+", name)

    def test_tune_measures_and_run_takes_it(self):
        for name, path in self.graphs():
            if name not in ("gru", "ctc"):
                continue
            tuned, _ = self.kiln("tune", path, "--device", "cpu", "--jobs", 2, "--patience", 0)
            self.assertRegex(tuned, r"1 graphs, \d+ distinct groups", name)
            self.assertRegex(tuned, r"[1-9]\d* groups tuned, 0 failed", name)
            again, _ = self.kiln("tune", path, "--device", "cpu", "--jobs", 2, "--patience", 0)
            self.assertIn("  0 measured,", again, name)
            self.assertNotIn("WRONG", self.run_graph(path), name)
        listed, _ = self.kiln("records", "list")
        self.assertRegex(listed, r"recurrence\w*/\d+ ")
        self.assertRegex(listed, r"ctc\w*/\d+ ")

    def test_capture_tune_and_run(self):
        """A client of the C interface is captured; what it computed is run, explained and tuned."""
        captured = self.folder / "captured"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
        environment = {**kept, "KILN_DEVICE": "cpu", "KILN_CACHE_DIR": str(self.folder / "cache"),
                       "KILN_CPU_PLUGIN": str(pathlib.Path("runtime/cpu/libkiln_cpu.so").resolve()),
                       "KILN_CAPTURE": str(captured)}
        done = subprocess.run([sys.executable, __file__, "--client"], env=environment, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = {path: path.read_text() for path in sorted(captured.iterdir())}
        for op in ("rnn_forward", "rnn_backward_data", "rnn_backward_weights", "ctc_loss"):
            self.assertTrue(any(f"{op}(" in text for text in texts.values()), f"{op} in {list(texts)}")
        for path in texts:
            self.assertNotIn("WRONG", self.run_graph(path), path.name)
            self.kiln("explain", path)
        tuned, _ = self.kiln("tune", captured, "--device", "cpu", "--jobs", 2, "--patience", 0)
        self.assertIn(f"{len(texts)} graphs, ", tuned)
        self.assertRegex(tuned, r"[1-9]\d* groups tuned, 0 failed")


def text_inputs(path):
    """How many tensors of a graph are no results."""
    results = sum(len(re.findall(r"%\w+", line.split("=")[0])) for line in path.read_text().splitlines()
                  if re.match(r"  [%_].* = \w+\(", line))
    return path.read_text().count("tensor %") - results


class Client:
    """A program of the C interface: a GRU in training, and a CTC loss with its labels on the device."""

    FLOAT, TRAINING, GRU, SOFTMAX = 0, 1, 3, 1

    def __init__(self):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.handle = self.made("cudnnCreate")

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise SystemExit(f"{name} answers {status}")

    def made(self, name):
        place = ctypes.c_void_p()
        self.call(name, ctypes.byref(place))
        return place

    def tensor(self, *dims):
        desc = self.made("cudnnCreateTensorDescriptor")
        strides = [1] * len(dims)
        for d in range(len(dims) - 1, 0, -1):
            strides[d - 1] = strides[d] * dims[d]
        ints = ctypes.c_int * len(dims)
        self.call("cudnnSetTensorNdDescriptor", desc, self.FLOAT, len(dims), ints(*dims), ints(*strides))
        return desc

    def data(self, width):
        desc = self.made("cudnnCreateRNNDataDescriptor")
        self.call("cudnnSetRNNDataDescriptor", desc, self.FLOAT, 0, 5, 3, width, (ctypes.c_int * 3)(5, 2, 4), None)
        return desc

    @staticmethod
    def space(size):
        """Memory for a work or reserve space, as aligned as allocators give it."""
        memory = (ctypes.c_double * (size.value // 8 + 4))()
        space = ctypes.c_void_p((ctypes.addressof(memory) + 15) // 16 * 16)
        space.memory = memory
        return space

    @staticmethod
    def floats(count):
        return (ctypes.c_float * count)(*[(i * 37 % 19 - 9) / 10 for i in range(count)])

    def network(self):
        rnn = self.made("cudnnCreateRNNDescriptor")
        self.call("cudnnSetRNNDescriptor_v8", rnn, 0, self.GRU, 2, 0, 0, self.FLOAT, self.FLOAT, 3, 4, 6, 6, 1, None,
                  ctypes.c_uint(1))
        x_desc, y_desc, h_desc = self.data(4), self.data(6), self.tensor(1, 3, 6)
        weights, work, reserve = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudnnGetRNNWeightSpaceSize", self.handle, rnn, ctypes.byref(weights))
        self.call("cudnnGetRNNTempSpaceSizes", self.handle, rnn, self.TRAINING, x_desc, ctypes.byref(work),
                  ctypes.byref(reserve))
        x, y, h = self.floats(60), self.floats(90), self.floats(18)
        w, dw = self.floats(weights.value // 4), self.floats(weights.value // 4)
        spaces = (work, self.space(work), reserve, self.space(reserve))
        self.call("cudnnRNNForward", self.handle, rnn, self.TRAINING, None, x_desc, x, y_desc, y, h_desc, h, None,
                  None, None, None, weights, w, *spaces)
        self.call("cudnnRNNBackwardData_v8", self.handle, rnn, None, y_desc, y, self.floats(90), x_desc,
                  self.floats(60), h_desc, h, None, self.floats(18), None, None, None, None, weights, w, *spaces)
        self.call("cudnnRNNBackwardWeights_v8", self.handle, rnn, 0, None, x_desc, x, h_desc, h, y_desc, y, weights,
                  dw, *spaces)

    def loss(self):
        loss, probs = self.made("cudnnCreateCTCLossDescriptor"), self.tensor(7, 2, 5)
        self.call("cudnnSetCTCLossDescriptor_v8", loss, self.FLOAT, self.SOFTMAX, 0, 3)
        size = ctypes.c_size_t()
        self.call("cudnnGetCTCLossWorkspaceSize_v8", self.handle, 0, loss, probs, probs, ctypes.byref(size))
        self.call("cudnnCTCLoss_v8", self.handle, 0, loss, probs, self.floats(70), (ctypes.c_int * 6)(1, 2, 4, 3),
                  (ctypes.c_int * 2)(3, 1), (ctypes.c_int * 2)(7, 6), self.floats(2), probs, self.floats(70), size,
                  self.space(size))


if __name__ == "__main__":
    if sys.argv[1:] == ["--client"]:
        client = Client()
        client.network()
        client.loss()
    else:
        unittest.main()
