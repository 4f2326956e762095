"""bench/corpus as data: rows are well-formed, each network's split follows from its name, all kinds, directions and data
types are there, and nothing that a choice of plans is made from has seen a problem that is held out.

Such things are the files of LEARNED_FROM. Held out is what no network of `fit` sends (corpus.py: split_of_problem). A file
has seen a problem if it names it (KIND_0a1b2c3d4e), or has an operation with the same operands, in data type, extents and
strides, and a result of the same extents: in tuning records (work=…), in graphs' text, in case lines. What was there
before the corpus stands in bench/corpus/seen.tsv, which makes it `fit`, and which may only become shorter.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
sys.path.insert(0, str(ROOT / "bench/corpus"))
import corpus  # noqa: E402
import forms  # noqa: E402
import graphs  # noqa: E402

# Tuning records and known networks; the list whose timings the models' constants were fitted to; and whatever is fitted
# from now on, with the constants themselves. Measurements of held-out problems belong into bench/results.
LEARNED_FROM = ("share/kiln/records/*.txt", "share/kiln/records/*.kiln", "tests/cases/bench_contract.txt",
                "bench/fit/**/*", "compiler/**/*")
MOST_SEEN = 17  # problems of seen.tsv


NETWORKS, PAIRS = corpus.read_networks(), corpus.read_problems()


def plain(dims, strides):
    """Strides with 0 for dims of extent 1, which say nothing."""
    return tuple(0 if extent == 1 else stride for extent, stride in zip(dims, strides))


def key_of(operation, operands, result):
    """What two spellings of a problem have in common: `operands` are (data type, extents, strides)."""
    return (operation, tuple((dtype, tuple(dims), plain(dims, strides)) for dtype, dims, strides in operands[:2]),
            tuple(result))


def key_of_problem(problem):
    """Of its first operation: what is behind a contraction says little."""
    node = forms.build(problem).nodes[0]
    operation = forms.node_text(node)[0]
    operands = [(t.dtype, t.dims, t.strides()) for t in node.inputs if t is not None]
    return key_of(operation, operands, node.outputs[0].dims)


def numbers(text, separator):
    return tuple(int(number) for number in text.split(separator))


def keys_of_records(text):
    """Of lines of tuning records: work=matmul,add a:f16:1x64x64/4096x64x1 …, operands before results."""
    for work in re.findall(r"\bwork=([^\t\n]+)", text):
        operations, *tensors = work.split(" ")
        parsed = []
        for tensor in tensors:
            found = re.fullmatch(r"\w+:(\w+):([\dx]+)/([\dx]+)", tensor)
            if found:
                parsed.append((found[1], numbers(found[2], "x"), numbers(found[3], "x")))
        operation = operations.split(",")[0]
        if len(parsed) < 3 or operation not in ("conv_fprop", "conv_dgrad", "conv_wgrad", "matmul"):
            continue
        result = (parsed[0][1][0], parsed[0][1][1], parsed[1][1][2]) if operation == "matmul" else parsed[-1][1]
        yield key_of(operation, parsed[:2], result)


def keys_of_graphs(text):
    for graph in re.split(r"^graph ", text, flags=re.MULTILINE)[1:]:
        tensors = {name: (dtype, numbers(dims, ","), numbers(strides, ",")) for name, dtype, dims, strides in re.findall(
            r"tensor %(\w+)(?: uid=\d+)? (\w+) \[([\d,]+)\] strides=\[([\d,]+)\]", graph)}
        for results, operation, operands in re.findall(r"^  (.*) = (\w+)\((.*?)\)", graph, re.MULTILINE):
            read = [tensors[name] for name in re.findall(r"%(\w+)", operands) if name in tensors]
            written = re.findall(r"%(\w+)", results)
            if read and written and written[0] in tensors:
                yield key_of(operation, read, tensors[written[0]][1])


# name:dtype[extents]@layout
TENSOR = r"%?\w+:\w+\[[\d,]+\](?:@[\w.]+)?"
CASE = re.compile(rf"\b(conv_\w+|matmul)\(({TENSOR})(?:!\w+)?, ({TENSOR})[^)]*\) -> (%?\w+:[^ ;]+)([^;\n]*)")


def keys_of_cases(text):
    """Convolutions and products of case lines; layouts are those of forms.py."""
    for kind, first, second, result, attributes in CASE.findall(text):
        operands = []
        for tensor in (first, second):
            dtype, dims, layout = re.fullmatch(r"%?\w+:(\w+)\[([\d,]+)\](?:@([\w.]+))?", tensor).groups()
            dims = numbers(dims, ",")
            operands.append((dtype, dims, forms.strides_of(dims, layout or "row")))
        (_, a, _), (_, b, _) = operands
        said = re.search(r"\[([\d,]+)\]", result)
        if said:
            dims = numbers(said[1], ",")
        elif kind == "matmul":
            dims = (max(a[0], b[0]), *a[1:-1], b[-1])
        else:
            geometry = tuple(re.findall(r"\b(pad|stride|dilation)=([\d,]+)", attributes))
            dims = forms.convolved(corpus.Problem("conv_fprop", "f16", "row", (("x", a), ("w", b)), geometry))
        yield key_of(kind, operands, dims)


def learned_from():
    """(path, text) of each file that a choice of plans is made from."""
    for pattern in LEARNED_FROM:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text(errors="replace")


class Data(unittest.TestCase):
    def test_is_large_enough(self):
        self.assertGreaterEqual(len(NETWORKS), 60)
        self.assertGreaterEqual(len(PAIRS), 3000)
        folder = corpus.FOLDER / "problems"
        self.assertLess(sum(path.stat().st_size for path in folder.iterdir()), 2 << 20)

    def test_rows_are_distinct_and_sorted(self):
        names = [problem.name() for problem, _ in PAIRS]
        self.assertEqual(len(set(names)), len(names))
        for kind in corpus.KINDS:
            lines = (corpus.FOLDER / "problems" / f"{kind}.tsv").read_text().splitlines()[1:]
            self.assertEqual(lines, sorted(lines, key=lambda line: line.split("\t")), kind)
        self.assertEqual(sorted(path.stem for path in (corpus.FOLDER / "problems").glob("*")), sorted(corpus.KINDS))

    def test_rows_have_known_words(self):
        sent = collections.Counter()
        for problem, counts in PAIRS:
            self.assertIn(problem.dtype, corpus.DTYPES)
            self.assertTrue(counts)
            for name, count in counts.items():
                self.assertIn(name, NETWORKS)
                self.assertGreaterEqual(count, 1)
                sent[name] += 1
            for _, extents in problem.dims:
                self.assertTrue(all(extent >= 1 for extent in extents), problem)
        self.assertEqual(set(sent), set(NETWORKS))

    def test_every_kind_and_data_type_is_there(self):
        found = collections.Counter((problem.kind, problem.dtype) for problem, _ in PAIRS)
        for kind in ("conv_fprop", "conv_dgrad", "conv_wgrad", "conv_fused", "matmul", "matmul_fused"):
            for dtype in ("f16", "bf16", "tf32"):
                self.assertGreater(found[kind, dtype], 20, (kind, dtype))
        self.assertGreater(found["matmul_fused", "fp8"], 20)
        for kind in corpus.KINDS:
            self.assertGreater(sum(count for (k, _), count in found.items() if k == kind), 20, kind)

    def test_shapes_are_of_every_sort(self):
        convs = [p for p, _ in PAIRS if p.kind.startswith("conv_")]
        batches = collections.Counter(p.extents("x")[0] for p in convs)
        for batch in (1, 4, 16, 64, 256):
            self.assertGreater(batches[batch], 50, batch)
        for kind in ("conv_fprop", "conv_dgrad", "conv_wgrad"):
            rows = [p for p in convs if p.kind == kind]
            self.assertTrue(any(p.attribute("dilation") for p in rows), kind)
            self.assertTrue(any(p.extents("w")[1] == 1 < p.extents("x")[1] for p in rows), kind)
            self.assertTrue(any(len(p.extents("x")) == 5 for p in rows), kind)
            self.assertTrue(any(p.extents("x")[2] == 1 < p.extents("x")[3] for p in rows), kind)
            self.assertEqual({p.layout for p in rows}, {"nhwc", "row"})
        rows = {p.extents("a")[1] for p, _ in PAIRS if p.kind.startswith("matmul")}
        self.assertTrue({1, 4, 13, 16, 64, 256, 777, 8192} <= rows)


class Split(unittest.TestCase):
    def test_follows_from_the_name(self):
        # By `printf resnet18 | sha256sum`, and so on.
        self.assertEqual([corpus.split_of(name) for name in ("resnet50", "a", "b", "d")],
                         ["fit", "held_out", "fit", "fit"])
        shares = [corpus.split_of(f"network {i}") for i in range(4000)]
        self.assertAlmostEqual(shares.count("fit") / 4000, 0.6, delta=0.03)

    def test_a_wrong_split_is_refused(self):
        network = corpus.Network("a", "corpus", "test", "image", "infer:1:f16:row")
        with tempfile.TemporaryDirectory() as folder:
            corpus.write_networks([network], pathlib.Path(folder))
            self.assertEqual(corpus.read_networks(pathlib.Path(folder)), {"a": network})
            path = pathlib.Path(folder, "networks.tsv")
            path.write_text(path.read_text().replace("held_out", "fit"))
            with self.assertRaisesRegex(ValueError, "a is fit, by its name it is held_out"):
                corpus.read_networks(pathlib.Path(folder))

    def test_a_problem_of_both_is_fit(self):
        problem = corpus.Problem("softmax_fwd", "f16", "row", (("x", (3, 4)),))
        self.assertEqual(corpus.split_of_problem(problem, {"a": 1}), "held_out")
        self.assertEqual(corpus.split_of_problem(problem, {"a": 1, "b": 2}), "fit")

    def test_both_halves_are_large(self):
        splits = collections.Counter(corpus.split_of_problem(*pair) for pair in PAIRS)
        self.assertGreater(splits["fit"], 1500)
        self.assertGreater(splits["held_out"], 900)


class HeldOut(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.by_key, cls.by_name = {}, {}
        for problem, counts in PAIRS:
            if not corpus.sent_by_fit(counts):
                cls.by_key.setdefault(key_of_problem(problem), []).append(problem.name())
                cls.by_name[problem.name()] = problem

    def seen_in(self, text):
        """Names of held-out problems that a text has."""
        names = set(re.findall(rf"\b(?:{'|'.join(corpus.KINDS)})_[0-9a-f]{{10}}\b", text)) & set(self.by_name)
        for keys in (keys_of_records, keys_of_graphs, keys_of_cases):
            for key in keys(text):
                names.update(self.by_key.get(key, []))
        return names

    def test_nothing_was_seen(self):
        found = collections.defaultdict(set)
        for path, text in learned_from():
            for name in self.seen_in(text):
                found[name].add(path)
        lines = (corpus.FOLDER / "seen.tsv").read_text().splitlines()
        self.assertEqual(lines[0], "problem\tfiles\treason")
        rows = [line.split("\t") for line in lines[1:]]
        self.assertTrue(all(len(row) == 3 and row[2] for row in rows), "each line has a reason")
        known = {name: set(files.split(" ")) for name, files, _ in rows}
        new = {name: files - known.get(name, set()) for name, files in found.items()}
        self.assertEqual({name: files for name, files in new.items() if files}, {},
                         "held-out problems that a choice of plans has seen: take them out of these files")
        self.assertEqual({name: files for name, files in known.items() if files != found[name]}, {},
                         "lines of seen.tsv that say too much")
        self.assertLessEqual(len(known), MOST_SEEN, "seen.tsv may only become shorter")

    def test_every_spelling_is_found(self):
        """What the test above would not see proves nothing."""
        for kind in ("conv_fprop", "conv_dgrad", "conv_wgrad", "conv_fused", "matmul", "matmul_fused"):
            name, problem = next((n, p) for n, p in self.by_name.items() if p.kind == kind and graphs.is_dense(p))
            self.assertIn(name, self.seen_in(forms.graph_text(problem)))
            self.assertIn(name, self.seen_in(forms.case_line(problem)[len(name):]))
            self.assertIn(name, self.seen_in(f"| {name} | 1.2 |"))
            node = forms.build(problem).nodes[0]
            tensors = " ".join(f"{t.name}:{t.dtype}:{'x'.join(map(str, t.dims))}/{'x'.join(map(str, t.strides()))}"
                               for t in node.inputs + node.outputs)
            self.assertIn(name, self.seen_in(f"kiln-record-1\twork={node.operation} {tensors}\tsum=0"))

    def test_todays_files_are_read(self):
        found = collections.Counter()
        for path, text in learned_from():
            for keys in (keys_of_records, keys_of_graphs, keys_of_cases):
                found[path] += sum(1 for _ in keys(text))
        for path in ("share/kiln/records/h100.txt", "share/kiln/records/h200.txt",
                     "share/kiln/records/efficientnet_b0.kiln", "tests/cases/bench_contract.txt"):
            self.assertGreater(found[path], 50, path)


class Tools(unittest.TestCase):
    def run_graphs(self, *arguments):
        return subprocess.run([sys.executable, "-B", corpus.FOLDER / "graphs.py", *arguments], capture_output=True,
                              text=True, check=False)

    def test_a_sample_is_of_its_split_and_kind(self):
        made = self.run_graphs("--split", "held_out", "--kind", "conv_fprop", "--sample", "5", "--seed", "7")
        names = re.findall(r"^graph (\w+) \{", made.stdout, re.MULTILINE)
        self.assertEqual(len(names), 5)
        self.assertTrue(all(name.startswith("conv_fprop_") for name in names))
        splits = {p.name(): corpus.split_of_problem(p, counts) for p, counts in PAIRS}
        self.assertEqual({splits[name] for name in names}, {"held_out"})
        again = self.run_graphs("--split", "held_out", "--kind", "conv_fprop", "--sample", "5", "--seed", "7")
        self.assertEqual(made.stdout, again.stdout)
        self.assertNotEqual(made.stdout, self.run_graphs("--split", "held_out", "--kind", "conv_fprop", "--sample", "5").stdout)

    def test_nothing_found_is_an_error(self):
        made = self.run_graphs("--name", "conv_fprop_nothing")
        self.assertEqual((made.returncode, made.stderr), (1, "graphs.py: the corpus has no such problem\n"))

    def test_the_page_has_the_tables_of_the_data(self):
        made = subprocess.run([sys.executable, "-B", corpus.FOLDER / "tables.py", "--check"], capture_output=True,
                              text=True, check=False)
        self.assertEqual((made.returncode, made.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
