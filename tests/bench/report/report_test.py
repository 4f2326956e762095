"""bench/report/report.py on made-up results: numbers, missing ones, wrong ones, and none at all."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

REPORT = pathlib.Path("bench/report/report.py").resolve()


def timing(median):
    return {"median_us": median, "p10_us": 0.98 * median, "p90_us": 1.03 * median} if median else None


def side(first, best, error=""):
    return {"first": timing(first), "best": timing(best), "config": "engine 1", "offered": 3, "plans": 2, "timed": 2, "error": error}


def row(section, name, ours, nvidia, cublas=None, **more):
    made = {"section": section, "name": name, "graph": name, "flops": 2e11, "bytes": 10**8, "floor_us": 100.0, "roof_tflops": 790,
            "wrong": "", "note": "", "fault": "", "oracle": True, "kiln": side(*ours), "nvidia": side(*nvidia),
            "cublas": side(*(cublas or (None, None)))}
    return made | more


def result(*rows, **more):
    return {"benchmark": "contract", "commit": "abc1234", "date": "2026-01-02", "device": "Made-up GPU", "driver": "13.0",
            "nvidia_version": 91900, "cublas_version": 130100, "kiln_version": 91900, "rows": list(rows)} | more


ROWS = [
    row("matmul", "square", (125, 110), (240, 220), (180, 121)),
    row("matmul", "skinny", (125, 120), (70, 60)),
    row("conv", "refused", (125, 110), (None, None, "cudnnBackendFinalize: not supported | really")),
    row("conv", "bad", (None, None, "y[0] is 3"), (100, 90), wrong="engine 4: y[0] is 3, the oracle says 1"),
]


class ReportTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_report(self, results, *flags):
        names = []
        for i, data in enumerate(results):
            names.append(f"results{i}.json")
            (self.folder / names[-1]).write_text(json.dumps(data))
        return subprocess.run([sys.executable, REPORT, *names, *flags], cwd=self.folder, capture_output=True, text=True)

    def test_steps_of_pytorch(self):
        ours = {"first_s": 0.5, "peak_bytes": 8, "median_ms": 20.0, "q25_ms": 19.0, "q75_ms": 21.0}
        rows = [{"name": "resnet50", "cold_s": 9.25, "ours": ours, "nvidia": ours | {"median_ms": 25.0}, "commit": "def5678"},
                {"name": "first", "cold_s": 0.3, "ours": 0.002, "nvidia": 0.064},
                {"name": "efficientnet_b0", "error": "a process ended"},
                {"name": "shape", "ours": {"forward": 0.001}, "nvidia": {"forward": 0.0005}}]
        text = self.run_report([{"benchmark": "torch_steps", "commit": "abc1234", "date": "2026-01-02", "device": "Made-up GPU",
                                 "nvidia_version": 91900, "rows": rows}]).stdout
        self.assertIn("a training step (def5678) | 20 | 25 | 1.25 |", text)
        self.assertIn("(from an empty kernel cache 9.2 s) (def5678) | 500 | 500 | 1.00 |", text)
        self.assertIn("(from an empty kernel cache 300 ms) | 2 | 64 | 32.00 |", text)
        self.assertIn("of a convolution seen before | 1 | 0.5 | 0.50 |", text)
        self.assertNotIn("EfficientNet", text)

    def test_summary_has_geometric_means(self):
        done = self.run_report([result(*ROWS)])
        self.assertEqual(done.returncode, 0, done.stderr)
        # Ratios 2 and 0.5 have the mean 1; the first choices 240/125 and 70/125.
        self.assertIn("| matmul | 2 of 2 | 1.00 | 0.50 skinny | 1.04 |", done.stdout)
        self.assertIn("| conv | 0 of 2, 1 wrong |", done.stdout)
        self.assertIn("| **all** | 2 of 4, 1 wrong | 1.00 | 0.50 skinny |", done.stdout)
        self.assertIn("1.10 |", done.stdout)  # cuBLAS over ours
        self.assertIn("Made-up GPU, commit abc1234, 2026-01-02", done.stdout)
        self.assertIn("cuDNN 9.19.0", done.stdout)

    def test_pages_have_every_problem_and_reason(self):
        done = self.run_report([result(*ROWS)], "--pages", "docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[table](docs/bench_contract.md)", done.stdout)
        self.assertEqual(list(self.folder.rglob("*.html")), [])
        text = (self.folder / "docs/bench_contract.md").read_text()
        self.assertIn("| square | 100.0 | 125.0/110.0 | 240.0/220.0 | 2.00 | 0.91 | 5.0 % | 121.0 |", text)
        self.assertIn("not supported \\| really", text)
        self.assertIn("WRONG: engine 4", text)
        for line in text.splitlines():
            if line.startswith("| square"):
                self.assertEqual(line.count("|"), 10)

    def test_attention_has_means_of_each_direction(self):
        rows = [("forward_a", 100, 110), ("forward_b", 100, 440), ("backward_a", 200, 180), ("backward_b", 200, None)]
        done = self.run_report([{"benchmark": "attention", "commit": "abc1234", "date": "2026-01-02", "device": "Made-up GPU",
                                 "nvidia_version": 91900,
                                 "rows": [{"name": name, "flops": 1e10, "error": "", "kiln": timing(ours), "nvidia": timing(theirs),
                                           "nvidia_error": "" if theirs else "wrong: y is off"} for name, ours, theirs in rows]}])
        self.assertEqual(done.returncode, 0, done.stderr)
        # The mean of 1.1 and 4.4 is 2.2.
        self.assertIn("forward 2.20 in the geometric mean, 1.10 at least; backward 0.90 in the geometric mean", done.stdout)
        self.assertIn("| forward a | 100 | 100 | 110 | 1.10 |", done.stdout)
        self.assertIn("| backward b | 200 | 50 | wrong result |  |", done.stdout)

    def test_legacy_calls_have_means_by_family(self):
        def call(name, ours, theirs, difference="", host=2.0):
            return {"name": name, "bytes": 10**8, "error": "", "difference": difference, "kiln": timing(ours), "copy": timing(50),
                    "nvidia": timing(theirs), "nvidia_error": "" if theirs else "not | supported", "kiln_host_us": host,
                    "nvidia_host_us": 4.0}

        data = result(call("pooling/max", 100, 200), call("pooling/avg", 100, 50), call("lrn/f32", 100, 400, "y: sample 3 is 1"),
                      call("lrn/f16", 100, None, host=2.5), benchmark="legacy")
        done = self.run_report([data], "--pages", "docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| pooling | 2 of 2 | 1.00 | 0.50 avg | 0.50 | 2.00 | 4.00 |", done.stdout)
        self.assertIn("| lrn | 0 of 2 |  |  | 0.50 | 2.50 | 4.00 |", done.stdout)
        self.assertIn("| all | 2 of 4 | 1.00 | 0.50 avg |", done.stdout)
        self.assertIn("(docs/bench_legacy.md)", done.stdout)
        page = (self.folder / "docs/bench_legacy.md").read_text()
        self.assertIn("| pooling/max | 100 | 100.0 | 200.0 | 2.00 | 0.50 | 2.00 | 4.00 |  |", page)
        self.assertIn("| lrn/f32 | 100 | 100.0 | 400.0 |  | 0.50 | 2.00 | 4.00 | y: sample 3 is 1 |", page)
        self.assertIn("not / supported", page)

    def test_networks_are_compared_with_two_algorithms(self):
        def phase(name, ours, torch, **nvidia):
            return {"name": name, "kiln": timing(ours), "kiln_host_us": 9.0, "torch": torch,
                    "nvidia": {variant: timing(time) for variant, time in nvidia.items()}}

        def network(name, *phases, error="", **differences):
            return {"name": name, "steps": 50, "error": error, "differences": differences, "phases": list(phases)}

        data = result(network("baseline/a", phase("training", 100, "standard", standard=400, static=200)),
                      network("baseline/b", phase("training", 100, "static", standard=100, static=None), standard="y: 3 | 4"),
                      network("baseline/c", phase("training", None, "static"), error="no engine"), benchmark="rnn")
        done = self.run_report([data], "--pages", "docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        # PyTorch's algorithm declines b, and the first one stands for it.
        self.assertIn("| baseline, training | 2 of 3 | 2.00 | 1.41 | 1.00 b | 9.00 |", done.stdout)
        self.assertIn("(docs/bench_rnn.md)", done.stdout)
        page = (self.folder / "docs/bench_rnn.md").read_text()
        self.assertIn("| baseline/a | training | 100.0 | 2.00 | 400.0 | standard | 200.0 | static | 4.00 | 2.00 | 9.00 |  |", page)
        self.assertIn("standard: y: 3 / 4 |", page)
        self.assertIn("| no engine |", page)

    def test_html_is_whole_and_alone(self):
        self.run_report([result(*ROWS)], "--plots", "plots")
        page = (self.folder / "plots/bench_contract.html").read_text()
        drawings = re.findall(r"<svg.*?</svg>", page, re.S)
        self.assertEqual(len(drawings), 2)
        for drawing in drawings:
            xml.etree.ElementTree.fromstring(drawing)
        # Five timed sides of the three rows that are right, one of the wrong row, and the legend's two.
        self.assertEqual(drawings[0].count("<circle"), 6 + 2)
        self.assertEqual(drawings[1].count("<rect"), 2)
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"https?://|src=|<link|<script|@import")
        self.assertIn("conv/bad: WRONG", page)

    def test_runs_are_merged_and_the_later_counts(self):
        newer = result(row("matmul", "skinny", (60, 60), (70, 60)), row("one_d", "new", (50, 50), (50, 50)), commit="def")
        done = self.run_report([result(*ROWS), newer])
        self.assertIn("commit abc1234, def", done.stdout)
        self.assertIn("| matmul | 2 of 2 | 1.41 | 1.00 skinny |", done.stdout)
        self.assertIn("| one_d | 1 of 1 |", done.stdout)

    def test_a_further_device_has_a_sentence_and_pages(self):
        other = dict(result(row("matmul", "skinny", (60, 60), (70, 66))), device="NVIDIA Other-GPU 80GB")
        done = self.run_report([result(*ROWS), other], "--pages", "docs", "--plots", "plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("**The same on NVIDIA Other-GPU 80GB, commit abc1234", done.stdout)
        self.assertIn("ratio 1.10 (1 of 1 compared), least 1.10 skinny", done.stdout)
        self.assertIn("[table](docs/bench_contract_other_gpu_80gb.md)", done.stdout)
        self.assertIn("| skinny |", (self.folder / "docs/bench_contract_other_gpu_80gb.md").read_text())
        self.assertTrue((self.folder / "plots/bench_contract_other_gpu_80gb.html").exists())
        self.assertIn("Made-up GPU", (self.folder / "docs/bench_contract.md").read_text())

    def test_nothing_measured(self):
        done = self.run_report([result(nvidia_version=0)], "--plots", "plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing has been measured yet", done.stdout)
        self.assertIn("Nothing has been measured yet", (self.folder / "plots/bench_contract.html").read_text())

    def test_ours_alone(self):
        rows = [row("matmul", "square", (125, 110), (None, None))]
        done = self.run_report([result(*rows, nvidia_version=0)], "--plots", "plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| matmul | 0 of 1 |", done.stdout)
        self.assertIn("No problem ran on both sides", (self.folder / "plots/bench_contract.html").read_text())

    def test_torch_compile_is_beside_bandwidth(self):
        def quartiles(median):
            return {"median_us": median, "q25_us": median, "q75_us": median}

        rows = [{"name": name, "dtype": "f16", "bytes": 10**8, "error": "", "kiln": quartiles(50), "copy": quartiles(45),
                 "nvidia": quartiles(60), "nvidia_error": ""} for name in ("norm", "pool")]
        torch = {"benchmark": "torch_compile", "torch_version": "2.11",
                 "rows": [{"name": "norm", "dtype": "f16", "torch": quartiles(55), "torch_error": ""}]}
        data = result(*rows, benchmark="bandwidth")
        for results in ([data, torch], [torch, data]):
            done = self.run_report(results)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("| norm | f16 | 100 | 2000 | 90 % | 0.0 % | 75 % | 82 % | 1.10 |", done.stdout)
            self.assertIn("| pool | f16 | 100 | 2000 | 90 % | 0.0 % | 75 % |  | 1.20 |", done.stdout)
        self.assertNotIn("torch", self.run_report([data]).stdout)

    def test_a_page_is_filled_between_its_marks(self):
        page = self.folder / "page.md"
        page.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
        self.assertEqual(self.run_report([result(*ROWS)], "--into", "page.md").returncode, 0)
        text = page.read_text()
        self.assertTrue(text.startswith("before\n<!-- bench:begin -->\n**Conv") and text.endswith("<!-- bench:end -->\nafter\n"))
        self.assertNotIn("old", text)

    def test_rows_have_the_mean_and_the_least_of_what_was_compared(self):
        page = self.folder / "page.md"
        page.write_text("<!-- rows:begin -->\n<!-- rows:end -->\n")
        self.assertEqual(self.run_report([result(*ROWS)], "--rows", "page.md").returncode, 0)
        # 220 / 110 and 60 / 120; the two that one side lacks do not count.
        self.assertIn("| convolutions and matrix products | Made-up GPU | 2 | 1.00 | 0.50 skinny |", page.read_text())
        self.assertEqual(page.read_text().count("\n| "), 3)

    def test_rows_link_to_the_pages_that_are_written(self):
        (self.folder / "docs").mkdir()
        (self.folder / "README.md").write_text("<!-- rows:begin -->\n<!-- rows:end -->\n")
        (self.folder / "docs/results.md").write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
        steps = {"benchmark": "torch_steps", "commit": "abc1234", "date": "2026-01-02", "device": "Made-up GPU", "nvidia_version": 91900,
                 "rows": [{"name": "resnet50", "cold_s": 1.0, "ours": {"median_ms": 2.0, "first_s": 1.0},
                           "nvidia": {"median_ms": 3.0, "first_s": 1.0}}]}
        done = self.run_report([result(*ROWS), steps], "--rows", "README.md", "--into", "docs/results.md", "--pages", "docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "README.md").read_text()
        self.assertIn("| [convolutions and matrix products](docs/bench_contract.md) |", text)
        self.assertIn("| [training steps of unmodified PyTorch](docs/results.md) |", text)

    def test_paragraphs_have_120_columns(self):
        self.run_report([result(*ROWS)], "--pages", "docs")
        for line in (self.folder / "docs/bench_contract.md").read_text().splitlines():
            self.assertTrue(line.startswith("|") or len(line) <= 120, line)

    def test_links_are_those_of_the_page_that_has_them(self):
        (self.folder / "docs").mkdir()
        page = self.folder / "docs/results.md"
        page.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
        done = self.run_report([result(*ROWS)], "--into", "docs/results.md", "--pages", "docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[table](bench_contract.md)", page.read_text())

    def test_missing_and_foreign_files(self):
        done = self.run_report([result(*ROWS)], "none.json")
        self.assertEqual(done.returncode, 0)
        self.assertIn("none.json: not there, left out", done.stderr)
        self.assertIn("'other' is no benchmark", self.run_report([{"benchmark": "other"}]).stderr)


if __name__ == "__main__":
    unittest.main()
