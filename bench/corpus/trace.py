#!/usr/bin/env python3
"""Makes the corpus: traces the networks of networks.py on the meta device, which needs no weights and no GPU, and writes
problems/*.tsv, networks.tsv and the tables of README.md.

    pip install torch torchvision timm transformers diffusers
    bench/corpus/trace.py                    all of it, in minutes
    bench/corpus/trace.py --only resnet50    prints what one network sends, and writes nothing
    bench/corpus/trace.py --check            a small module, whose problems are known, through the same code
"""
import argparse
import collections
import functools
import multiprocessing
import pathlib
import pickle
import sys
import time
import warnings

import torch

import chains
import corpus
import networks
import problems
import record
import tables

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "fp8": torch.bfloat16}

TINY = {  # what --check expects, by run
    "train:4:f16:nhwc": [
        "conv_fprop f16 nhwc x=4x16x16x16 w=32x16x3x3 pad=1 stride=2 1",
        "conv_wgrad f16 nhwc x=4x16x16x16 w=32x16x3x3 pad=1 stride=2 1",
        "matmul f16 col,row a=1x10x4 b=1x4x512 1",
        "matmul f16 row,row a=1x4x10 b=1x10x512 1",
        "matmul_fused f16 row,col a=1x4x512 b=1x512x10 chain=bias 1",
        "norm_bwd f16 nhwc x=4x32x8x8 mode=batch 1",
        "norm_fwd f16 nhwc x=4x32x8x8 mode=batch 1",
        "resample_bwd f16 nhwc x=4x32x8x8 y=4x32x4x4 mode=maxpool window=2 stride=2 index=1 1",
        "resample_fwd f16 nhwc x=4x32x8x8 y=4x32x4x4 mode=maxpool window=2 stride=2 index=1 1",
    ],
    "infer:4:f32:row": [
        "conv_fused tf32 row x=4x16x16x16 w=32x16x3x3 chain=bias,relu pad=1 stride=2 1",
        "matmul_fused tf32 row,col a=1x4x512 b=1x512x10 chain=bias,gelu 1",
        "resample_fwd f32 row x=4x32x8x8 y=4x32x4x4 mode=maxpool window=2 stride=2 1",
    ],
}


def problems_of(events, trains):
    """Counts by problem, and counts of what no reader took."""
    counts, unread = collections.Counter(), collections.Counter()
    found = chains.find_chains(events, trains)
    for index, event in enumerate(events):
        reader = problems.READERS.get(event.name)
        if index in found.problems:
            reader = lambda _: [found.problems[index]()]
        if reader is None or index in found.swallowed:
            continue
        try:
            counts.update(list(reader(event)))
        except problems.Unread as reason:
            unread[f"{event.name}: {reason}"] += 1
    return counts, unread


def to_layout(value, layout):
    """Channels last for images and volumes, where the run says so."""
    if layout == "nhwc" and isinstance(value, torch.Tensor) and value.dim() in (4, 5):
        return value.to(memory_format=torch.channels_last if value.dim() == 4 else torch.channels_last_3d)
    return value


def inputs_of(network, run):
    """Positional and named operands of a run, on the meta device."""
    args, kwargs = [], {}
    for name, kind, extents in network.inputs:
        values = {"N": run.batch, "T": run.tokens}
        dims = [values.get(extent, extent) for extent in extents]
        dtype = TYPES[run.dtype] if kind == "float" else torch.int64
        value = to_layout(torch.empty(dims, dtype=dtype, device="meta"), run.layout)
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


def built(network, run):
    """The network on the meta device. Some compute extents with tensors, and have to be built where these have data."""
    options = {"fp8": True} if run.dtype == "fp8" else {}
    try:
        with torch.device("meta"):
            return network.build(**options)
    except (NotImplementedError, RuntimeError):
        return network.build(**options).to("meta")


def trace(network, run):
    """The problems of one step of a network."""
    model = built(network, run)
    kept = {name: p.data for name, p in model.named_parameters() if p.dtype == torch.float8_e4m3fn}
    model = model.to(TYPES[run.dtype])
    for name, data in kept.items():
        model.get_parameter(name).data = data
    if run.layout == "nhwc":
        has_volumes = any(p.dim() == 5 for p in model.parameters())
        model = model.to(memory_format=torch.channels_last_3d if has_volumes else torch.channels_last)
    args, kwargs = inputs_of(network, run)
    return problems_of(record.record(model, args, kwargs, run.trains), run.trains)


def trace_network(name, cache=None):
    """All runs of a network: counts, what no reader took, and a line about it."""
    file = cache / f"{name}.pickle" if cache else None
    if file and file.exists():
        return pickle.loads(file.read_bytes())
    result = trace_runs(name)
    if file and result[1]:
        file.write_bytes(pickle.dumps(result))
    return result


def trace_runs(name):
    warnings.filterwarnings("ignore")
    network, counts, unread, start = networks.by_name(name), collections.Counter(), collections.Counter(), time.time()
    for run in network.runs():
        try:
            found, left = trace(network, run)
        except Exception as error:  # pylint: disable=broad-except
            return name, {}, {}, f"FAILED: {run}: {type(error).__name__}: {error}"
        counts.update(found)
        unread.update(left)
    return name, dict(counts), dict(unread), f"{len(counts)} problems, {time.time() - start:.1f} s"


def check():
    """A convolution with batch norm and ReLU, pooled and classified: every problem of a step is known."""
    def build():
        return torch.nn.Sequential(
            torch.nn.Conv2d(16, 32, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
            torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(512, 10), torch.nn.GELU())

    row = networks.Row("tiny", "corpus", "test", "image", build, [("", "float", ("N", 16, 16, 16))], "")
    for text, expected in TINY.items():
        counts, _ = trace(row, networks.Run.parse(text))
        found = sorted(" ".join((p.kind,) + p.key() + (str(n),)).replace("  ", " ") for p, n in counts.items())
        if found != expected:
            sys.exit("\n".join([f"trace.py: the problems of {text} are", *found, "and not", *expected]))
        print(f"{text}: {len(found)} problems of a small module are as expected")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="one network; prints its problems")
    parser.add_argument("--check", action="store_true", help="trace a small module whose problems are known")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=pathlib.Path, help="a folder that keeps what each network sent, for a next call")
    options = parser.parse_args()
    if options.check:
        return check()
    if options.only:
        name, counts, unread, line = trace_network(options.only)
        for problem, count in sorted(counts.items(), key=lambda pair: (pair[0].kind, pair[0].key())):
            print(problem.kind, *problem.key(), count, sep="\t")
        print(*(f"# not taken, {count} times: {reason}" for reason, count in unread.items()), f"# {name}: {line}",
              sep="\n")
        return None
    problems_by_network, lost = collections.defaultdict(dict), collections.Counter()
    done = []
    with multiprocessing.Pool(options.jobs, maxtasksperchild=8) as pool:
        trace_one = functools.partial(trace_network, cache=options.cache)
        for name, counts, unread, line in pool.imap_unordered(trace_one, [row.name for row in networks.ROWS], 1):
            print(f"{name}: {line}", flush=True)
            lost.update(unread)
            if counts:
                done.append(networks.by_name(name).network())
            for problem, count in counts.items():
                problems_by_network[problem][name] = count
    print(*(f"not taken, {count} times: {reason}" for reason, count in lost.most_common()), sep="\n")
    corpus.write_problems(problems_by_network)
    corpus.write_networks(done)
    tables.write(corpus.FOLDER)
    return None


if __name__ == "__main__":
    sys.exit(main())
