#!/usr/bin/env python3
"""Problems of the corpus as text that Kiln's tools read.

    graphs.py --split fit --kind conv_fprop --sample 20 --out /tmp/graphs     a file for each: kiln tune /tmp/graphs
    graphs.py --kind matmul --sample 1 | kiln explain -                       one, on the standard output
    graphs.py --split held_out --sample 300 --form cases                      lines for bench/contract --list
    graphs.py --name conv_fprop_0a1b2c3d4e                                    the one of that name

Without --sample all are printed. A sample of a seed stays the same while the corpus does, and is of each kind that is
asked for. Needs nothing but Python.
"""
import argparse
import pathlib
import random
import sys

import corpus
import forms


def is_dense(problem):
    """False where rows of an operand are apart, as in a slice of a larger tensor: bench/contract has no such data."""
    return not any(layout.startswith("s") for layout in problem.layout.split(","))


def select(options):
    """Problems in the order of their kinds; each kind's sample is drawn on its own."""
    chosen = []
    for kind in options.kind or corpus.KINDS:
        found = [problem for problem, counts in corpus.read_problems([kind])
                 if options.split in (None, corpus.split_of_problem(problem, counts))
                 and options.dtype in (None, problem.dtype)
                 and options.network in (None, *counts)
                 and (not options.dense or is_dense(problem))
                 and options.name in (None, problem.name())]
        if options.sample is not None and options.sample < len(found):
            found = random.Random(f"{options.seed} {kind}").sample(found, options.sample)
        chosen += found
    return chosen


def cases_text(problems):
    """A case file: a section for each kind."""
    lines, section = [], None
    for problem in problems:
        if problem.kind != section:
            section = problem.kind
            lines += ([""] if lines else []) + [f"[{section}]"]
        lines.append(forms.case_line(problem))
    return "\n".join(lines) + "\n"


def add_options(parser):
    """Which problems: what select() reads."""
    parser.add_argument("--split", choices=corpus.SPLITS)
    parser.add_argument("--kind", action="append", choices=corpus.KINDS, help="may be given several times")
    parser.add_argument("--dtype", choices=corpus.DTYPES)
    parser.add_argument("--network", help="only what this network sends")
    parser.add_argument("--name", help="only the problem of this name")
    parser.add_argument("--dense", action="store_true", help="without operands whose rows are apart")
    parser.add_argument("--sample", type=int, metavar="N", help="N of each kind, drawn at random")
    parser.add_argument("--seed", type=int, default=1)


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--form", choices=("graph", "cases"), default="graph")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="a file NAME.kiln for each graph")
    return parser.parse_args(arguments)


def main():
    options = options_of(sys.argv[1:])
    problems = select(options)
    if not problems:
        sys.exit("graphs.py: the corpus has no such problem")
    if options.form == "cases":
        print(cases_text(problems), end="")
        return
    for problem in problems:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{problem.name()}.kiln").write_text(forms.graph_text(problem))
        else:
            print(forms.graph_text(problem), end="")


if __name__ == "__main__":
    main()
