#!/usr/bin/env python3
"""What Kiln's models choose for a sample of the corpus, by kinds of shape: engines, and modelled times over a floor.
Needs the tool and no GPU.

    bench/corpus/plans.py --kiln build/quickstart/bin/kiln --arch sm_90a --sample 300        tables in Markdown
    bench/corpus/plans.py --kiln … --rows plans.tsv                    all problems, and a row for each in a file
    bench/corpus/plans.py --from plans.tsv                             the tables of such a file

The floor is the larger of two: each tensor once through memory at the rate that `kiln explain` names for the target,
and the arithmetic at 790 TFLOP/s for f16 and bf16 and twice that for fp8 (bench/contract/list.h). `kiln explain` keeps
all digits of f32 operands, which takes three products of TF32 for one: a sixth of 790.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import math
import pathlib
import re
import subprocess

import corpus
import forms
import graphs

FLOPS = {"f16": 790e12, "bf16": 790e12, "tf32": 790e12 / 6, "fp8": 1580e12, "f32": 60e12}
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
SHORTEST_US = 5.0  # of floors in means: below, a launch is most of it


def flops_of(problem):
    extents, dims = problem.extents, dict(problem.dims)
    if problem.kind.startswith("conv_"):
        return 2 * math.prod(forms.convolved(problem)) * math.prod(extents("w")[1:])
    if problem.kind.startswith("matmul"):
        return 2 * max(dims["a"][0], dims["b"][0]) * dims["a"][1] * math.prod(dims["b"][1:])
    if problem.kind == "moe":
        return 2 * math.prod(dims["t"]) * dims["w"][2]
    if problem.kind.startswith("sdpa_"):
        products = 2 if problem.kind == "sdpa_fwd" else 5
        return 2 * products * math.prod(dims["q"]) * dims["k"][2] / (2 if problem.attribute("causal") else 1)
    return 0


# --- kinds of shape --------------------------------------------------------------------------------------------------
def shapes_of_convolution(problem):
    """The kind of shape that is most particular about a convolution."""
    x, w = problem.extents("x"), problem.extents("w")
    groups = x[1] // w[1]
    filters = w[0] // groups
    window, stride = w[2:], forms.list_of(problem.attribute("stride"), len(w) - 2, 1)
    if groups > 1 and w[1] == 1:
        return "depthwise, filter of 7 or more" if max(window) >= 7 else "depthwise, smaller filter"
    if groups > 1:
        return "grouped"
    if w[1] <= 4:
        return "4 channels or fewer"
    if max(stride) > 1 and tuple(stride) == tuple(window):
        return "filter as large as its stride"
    if filters <= 16:
        return "16 filters or fewer"
    if w[1] % 8 or filters % 8:
        return "channels or filters no multiple of 8"
    if problem.attribute("dilation"):
        return "dilated"
    if max(window) >= 7:
        return "filter of 7 or more"
    if w[1] % 64 or filters % 64:
        return "multiples of 8, not of 64"
    return "multiples of 64"


def shapes_of_product(problem):
    a, b = problem.extents("a"), problem.extents("b")
    if b[1] % 8 or b[2] % 8:
        return "depth or columns no multiple of 8"
    if a[0] > 1:
        return "batched, fewer than 64 rows" if a[1] < 64 else "batched"
    if a[1] <= 16:
        return "16 rows or fewer"
    return "rows no multiple of 64" if a[1] % 64 else "rows multiples of 64"


def shape_of(problem):
    if problem.kind.startswith("conv_"):
        x = problem.extents("x")
        if math.prod(x[2:]) == 1:
            return "images of one pixel"  # which lie the same in both layouts
        shape = "3-D" if len(x) == 5 else "1-D" if x[2] == 1 < x[3] else shapes_of_convolution(problem)
        return f"{shape}, {'NHWC' if problem.layout == 'nhwc' else 'NCHW'}"
    if problem.kind.startswith("matmul"):
        return shapes_of_product(problem)
    if problem.kind.startswith("sdpa_"):
        depth, rows = problem.extents("q")[3], problem.extents("q")[2]
        return ("one query" if rows == 1 else f"depth {depth}") + (", bias" if problem.attribute("bias") else "")
    if problem.kind == "moe":
        return f"{problem.extents('w')[0]} experts"
    mode = problem.attribute("mode", "rows")
    return f"{mode}, {problem.layout}" if problem.kind.startswith(("norm", "resample")) else mode


# --- plans -----------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Plan:
    problem: corpus.Problem
    refusal: str = ""
    engines: tuple = ()  # of all groups, the one with the contraction first
    model_us: float = 0.0
    floor_us: float = 0.0

    def ratio(self):
        return self.model_us / self.floor_us


def microseconds(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def parse(problem, text):
    """What `kiln explain` printed."""
    model = re.search(r"^floor .*, model ([\d.]+ \w+)$", text, re.MULTILINE)
    memory = re.search(r"^floor ([\d.]+) (\w+), [\d.]+ \w+ at ([\d.]+) TB/s", text, re.MULTILINE)
    if model is None or memory is None:
        return Plan(problem, refusal=text.strip().splitlines()[-1] if text.strip() else "no answer")
    scale = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[memory[2]]
    floor = float(memory[1]) * scale / (float(memory[3]) * 1e12)
    floor = 1e6 * max(floor, flops_of(problem) / FLOPS[problem.dtype])
    groups = re.findall(r"^group \d+: (.*)\n(?:  why .*\n)*  engine    (\w+)", text, re.MULTILINE)
    groups.sort(key=lambda group: not re.search(r"\b(conv_|matmul|moe_)", group[0]))
    return Plan(problem, engines=tuple(engine for _, engine in groups), model_us=microseconds(model[1]), floor_us=floor)


def plan(problem, options):
    try:
        made = subprocess.run([options.kiln, "explain", "-", "--arch", options.arch], input=forms.graph_text(problem),
                              capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return Plan(problem, refusal="no plan in 300 s")
    return parse(problem, made.stdout if made.returncode == 0 else made.stderr)


# --- tables ----------------------------------------------------------------------------------------------------------
def mean(values):
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" if values else ""


def table(plans, key, heads):
    """A row for each key: how many, model over floor, and the engines of the contraction or of the first group."""
    rows = collections.defaultdict(list)
    for made in plans:
        rows[key(made)].append(made)
    lines = [heads + ["problems", "of 5 us", "model / floor", "worst tenth", "several groups", "engines"]]
    lines.append(["---"] * len(lines[0]))
    for name in sorted(rows):
        planned = [made for made in rows[name] if made.engines]
        ratios = sorted(made.ratio() for made in planned if made.floor_us >= SHORTEST_US)
        engines = collections.Counter(made.engines[0] for made in planned)
        shown = [f"{engine} {count}" for engine, count in engines.most_common()]
        refused = len(rows[name]) - len(planned)
        lines.append([*name, len(rows[name]), len(ratios), mean(ratios),
                      f"{ratios[int(0.9 * len(ratios))]:.2f}" if ratios else "",
                      sum(len(made.engines) > 1 for made in planned) or "",
                      ", ".join(shown + ([f"refused {refused}"] if refused else []))])
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def report(plans):
    """By kind and data type; convolutions of 16 bits by shape, whatever their direction; others by shape."""
    for text, count in collections.Counter(made.refusal for made in plans if made.refusal).most_common(20):
        print(f"* refused, {count} times: {text[:200]}")
    print(table(plans, lambda made: (made.problem.kind, made.problem.dtype), ["kind", "data type"]))
    convs = [made for made in plans if made.problem.kind.startswith("conv_") and made.problem.dtype in ("f16", "bf16")]
    print(table(convs, lambda made: (shape_of(made.problem),), ["convolutions of f16 and bf16"]))
    others = [made for made in plans if not made.problem.kind.startswith("conv_")]
    print(table(others, lambda made: (made.problem.kind, shape_of(made.problem)), ["kind", "shape"]))


# --- rows ------------------------------------------------------------------------------------------------------------
def write_rows(plans, path):
    lines = ["\t".join((made.problem.kind, ",".join(made.engines), f"{made.model_us:.2f}", f"{made.floor_us:.3f}",
                        made.refusal, *made.problem.key())) for made in plans]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def read_rows(path):
    plans = []
    for line in pathlib.Path(path).read_text().splitlines():
        kind, engines, model, floor, refusal, row = line.split("\t", 5)
        problem, _ = corpus.parse_problem(kind, row + "\tnobody:1")
        plans.append(Plan(problem, refusal, tuple(engines.split(",")) if engines else (), float(model), float(floor)))
    return plans


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", help="the tool")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rows", help="a file for a row a problem")
    parser.add_argument("--from", dest="read", help="such a file, in the place of the tool")
    parser.add_argument("--jobs", type=int, default=2)
    graphs.add_options(parser)
    options = parser.parse_args()
    if not options.kiln and not options.read:
        parser.error("one of --kiln and --from is needed")
    if options.read:
        plans = read_rows(options.read)
    else:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            plans = list(pool.map(lambda problem: plan(problem, options), graphs.select(options)))
    if options.rows:
        write_rows(plans, options.rows)
    report(plans)


if __name__ == "__main__":
    main()
