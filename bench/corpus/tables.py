#!/usr/bin/env python3
"""The tables of README.md, between its marks: networks by family, problems by kind, data type and split. trace.py calls
it; by hand after a change of the text. `--check` says whether the page has other tables than the data.
"""
import collections
import sys

import corpus

MARKS = ("<!-- counts:begin -->\n", "<!-- counts:end -->\n")


def table(head, rows):
    lines = [head, ["---"] * len(head)] + rows
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def by_kind(pairs):
    counts = collections.Counter()
    for problem, networks in pairs:
        for column in (problem.dtype, corpus.split_of_problem(problem, networks), "all"):
            counts[problem.kind, column] += 1
            counts["all", column] += 1
    columns = corpus.DTYPES + corpus.SPLITS + ("all",)
    return table(["kind", *columns],
                 [[kind, *(counts[kind, column] or "" for column in columns)] for kind in corpus.KINDS + ("all",)])


def by_family(pairs, networks):
    sent = collections.defaultdict(set)
    for index, (_, counts) in enumerate(pairs):
        for name in counts:
            sent[networks[name].family].add(index)
    rows = []
    for family in sorted(sent, key=str.lower):
        names = {split: sorted(n.name for n in networks.values() if n.family == family and n.split == split)
                 for split in corpus.SPLITS}
        rows.append([family, *(", ".join(names[split]) for split in corpus.SPLITS), len(sent[family])])
    return table(["family", *corpus.SPLITS, "problems"], rows)


def without_batch(problem):
    """What is left of a problem without its data type and the first extent of what is no filter: siblings have it."""
    dims = tuple((name, extents if name == "w" else extents[1:]) for name, extents in problem.dims)
    if problem.kind.startswith(("matmul", "norm", "softmax")):  # rows are the batch there
        dims = tuple((name, extents[-1:] if name in ("a", "x") else extents) for name, extents in problem.dims)
    return (problem.kind, problem.layout, dims, problem.attributes)


def siblings(pairs):
    """How many held-out problems have a sibling in fit, and of how many."""
    fit = {without_batch(p) for p, counts in pairs if corpus.split_of_problem(p, counts) == "fit"}
    held_out = [without_batch(p) for p, counts in pairs if corpus.split_of_problem(p, counts) == "held_out"]
    return sum(key in fit for key in held_out), len(held_out)


def text():
    networks, pairs = corpus.read_networks(), corpus.read_problems()
    split = collections.Counter(network.split for network in networks.values())
    shared, held_out = siblings(pairs)
    shares = (f"{len(networks)} networks, {split['fit']} of them fit and {split['held_out']} held out; {len(pairs)} "
              f"problems.\nOf the {held_out} held-out problems {shared} differ from a fit one in batch (rows of a "
              "matrix) and data type alone.\n")
    return f"{shares}\n{by_kind(pairs)}\n{by_family(pairs, networks)}"


def page(before):
    begin, end = (before.index(mark) for mark in MARKS)
    return before[:begin + len(MARKS[0])] + text() + before[end:]


def write(folder=corpus.FOLDER):
    path = folder / "README.md"
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        readme = (corpus.FOLDER / "README.md").read_text()
        sys.exit(0 if readme == page(readme) else "README.md: its tables are older than the data; run tables.py")
    write()
