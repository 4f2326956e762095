"""The corpus as data: problems, networks, and which of them a model of costs may see. Needs nothing but Python.

A problem is a row of problems/KIND.tsv, whose columns README.md explains; a network is a row of networks.tsv. Read by
graphs.py, by trace.py, which writes them, and by tests.
"""
import dataclasses
import functools
import hashlib
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
KINDS = ("conv_fprop", "conv_dgrad", "conv_wgrad", "conv_fused", "matmul", "matmul_fused", "moe", "sdpa_fwd",
         "sdpa_bwd", "norm_fwd", "norm_bwd", "resample_fwd", "resample_bwd", "softmax_fwd", "softmax_bwd", "reduction")
DTYPES = ("f16", "bf16", "tf32", "f32", "fp8")  # of operands; tf32 is f32 tensors whose products may be rounded
SPLITS = ("fit", "held_out")
PROBLEM_COLUMNS = ("dtype", "layout", "dims", "attributes", "networks")
NETWORK_COLUMNS = ("name", "source", "family", "input", "split", "runs")

# These were seen before there was a corpus: the bench list (tests/cases/bench_contract.txt), the shipped records and
# the known networks (share/kiln/records) have their layers, and models were fitted to them.
SEEN_BEFORE = frozenset({"resnet50", "efficientnet_b0", "resnext50_32x4d", "mobilenet_v2"})


def split_of(network):
    """"fit" for 60 % of all names: those whose SHA-256 begins with two bytes, the first the higher, below 39322."""
    first = int.from_bytes(hashlib.sha256(network.encode()).digest()[:2], "big")
    return "fit" if network in SEEN_BEFORE or first < 39322 else "held_out"


@dataclasses.dataclass(frozen=True)
class Network:
    name: str
    source: str  # torchvision, timm, transformers, diffusers, or corpus: a module of modules.py
    family: str
    input: str  # image, volume, video, audio, text
    runs: str  # what was traced

    @property
    def split(self):
        return split_of(self.name)

    def line(self):
        return "\t".join((self.name, self.source, self.family, self.input, self.split, self.runs))


@dataclasses.dataclass(frozen=True)
class Problem:
    kind: str
    dtype: str
    layout: str
    dims: tuple  # of (operand, extents)
    attributes: tuple = ()  # of (name, text)

    def key(self):
        dims = " ".join(f"{name}={'x'.join(map(str, extents))}" for name, extents in self.dims)
        attributes = " ".join(f"{name}={text}" for name, text in self.attributes)
        return (self.dtype, self.layout, dims, attributes)

    def extents(self, operand):
        return dict(self.dims)[operand]

    def attribute(self, name, default=None):
        return dict(self.attributes).get(name, default)

    def name(self):
        """A name that stays the same when rows come and go."""
        return f"{self.kind}_{hashlib.sha256(' '.join((self.kind,) + self.key()).encode()).hexdigest()[:10]}"


def parse_problem(kind, line):
    """The problem of a line and the counts of the networks that send it; ValueError says what is wrong."""
    cells = line.rstrip("\n").split("\t")
    if len(cells) != len(PROBLEM_COLUMNS):
        raise ValueError(f"{len(cells)} columns, {len(PROBLEM_COLUMNS)} are expected: {line!r}")
    dtype, layout, dims, attributes, networks = cells
    operands = tuple((name, tuple(int(extent) for extent in extents.split("x")))
                     for name, _, extents in (cell.partition("=") for cell in dims.split(" ")))
    pairs = tuple((name, text) for name, _, text in (cell.partition("=") for cell in attributes.split()))
    counts = {name: int(count) for name, _, count in (cell.partition(":") for cell in networks.split(" "))}
    return Problem(kind, dtype, layout, operands, pairs), counts


def read_networks(folder=FOLDER):
    """All networks by name."""
    rows = [line.split("\t") for line in (folder / "networks.tsv").read_text().splitlines()]
    if tuple(rows[0]) != NETWORK_COLUMNS:
        raise ValueError(f"networks.tsv: the columns are {rows[0]}")
    networks = {}
    for name, source, family, kind, split, runs in rows[1:]:
        if name in networks:
            raise ValueError(f"networks.tsv: {name} stands there twice")
        if split != split_of(name):
            raise ValueError(f"networks.tsv: {name} is {split}, by its name it is {split_of(name)}")
        networks[name] = Network(name, source, family, kind, runs)
    return networks


def read_problems(kinds=KINDS, folder=FOLDER):
    """Pairs of a problem and its networks' counts, in the files' order."""
    pairs = []
    for kind in kinds:
        lines = (folder / "problems" / f"{kind}.tsv").read_text().splitlines()
        if tuple(lines[0].split("\t")) != PROBLEM_COLUMNS:
            raise ValueError(f"{kind}.tsv: the columns are {lines[0]!r}")
        pairs += [parse_problem(kind, line) for line in lines[1:]]
    return pairs


@functools.cache
def seen():
    """Problems that no network of fit sends, and that models have seen all the same."""
    rows = (FOLDER / "seen.tsv").read_text().splitlines()[1:]
    return frozenset(row.split("\t")[0] for row in rows)


def sent_by_fit(counts):
    return any(split_of(network) == "fit" for network in counts)


def split_of_problem(problem, counts):
    """"fit" where a network of fit sends it, whoever else does, or where it is in seen.tsv; else "held_out"."""
    return "fit" if sent_by_fit(counts) or problem.name() in seen() else "held_out"


def write_problems(problems, folder=FOLDER):
    """`problems` are counts of networks by problem."""
    (folder / "problems").mkdir(exist_ok=True)
    for kind in KINDS:
        rows = sorted(problem.key() + (" ".join(f"{name}:{count}" for name, count in sorted(counts.items())),)
                      for problem, counts in problems.items() if problem.kind == kind)
        lines = ["\t".join(row) for row in [PROBLEM_COLUMNS] + rows]
        (folder / "problems" / f"{kind}.tsv").write_text("\n".join(lines) + "\n")


def write_networks(networks, folder=FOLDER):
    lines = ["\t".join(NETWORK_COLUMNS)] + sorted(network.line() for network in networks)
    (folder / "networks.tsv").write_text("\n".join(lines) + "\n")
