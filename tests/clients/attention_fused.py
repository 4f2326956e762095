"""Which combinations of attention are one kernel: masks x layouts x types x directions, as cudnn-frontend spells them
at extents that models have, and what `kiln explain` makes of each for sm_90 and sm_80. Forward is to be one group,
backward two, the second of which sums. Run by frontend_test.sh:

    python attention_fused.py --cudnn LIBCUDNN --cudart LIBCUDART --kiln KILN [--write]

Those that are more are in attention_unfused.tsv, by the number of their groups and what those are. The list only
shrinks: a combination that is fused and still listed fails, and so does one that is not fused and not listed. --write
writes it anew.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import preload

_parser = argparse.ArgumentParser()
_parser.add_argument("--cudnn", required=True)
_parser.add_argument("--cudart", required=True)
_parser.add_argument("--kiln", required=True)
_parser.add_argument("--write", action="store_true")
_parser.add_argument("--most", type=int, help="combinations, for trying")
_parser.add_argument("--only", default="", help="of the names, a part, for trying")
_parser.add_argument("--keep", help="a folder for the graphs, for looking at them")
_arguments = _parser.parse_args()
_captured = pathlib.Path(tempfile.mkdtemp())
os.environ["KILN_CAPTURE"] = str(_captured)
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's; small products in many threads only wait for each other
preload.load(_arguments.cudart, _arguments.cudnn)

import cudnn  # noqa: E402

import quantised  # noqa: E402
import versions  # noqa: E402
from attention import Attention  # noqa: E402
from builder import Builder  # noqa: E402
from drawn_attention import LAYOUTS  # noqa: E402
from memory import HostMemory  # noqa: E402

_T = cudnn.data_type
_LIST = pathlib.Path(__file__).with_name("attention_unfused.tsv")
_ARCHS = ("sm_90a", "sm_80")
_QUERIES, _KEYS, _HEADS, _DEPTH = 128, 192, 2, 128
_LENGTHS = {"seq_q": (128, 100), "seq_kv": (130, 192)}
_BIAS = {"bias": (1, _HEADS, _QUERIES, _KEYS)}
_CAUSAL = {"right": 0}
_BOTTOM = {"right": 0, "bottom_right": True}
_WINDOW = {"right": 0, "left": 64}
_DROP = {"dropout": 0.1}
_SINK = {"sink": True}
_RAGGED = {**_LENGTHS, "ragged": True}
_PAGED = {**_LENGTHS, "page": 16}

# Name, arguments of Attention, and where it is legal: f(orward), b(ackward), 8 (fp8, too), l (several layouts), 4 (f32,
# too).
MASKS = [
    ("none", {}, "fb8l4"),
    ("causal", _CAUSAL, "fb8l4"),
    ("causal_bottom_right", _BOTTOM, "fbl"),
    ("window", _WINDOW, "fbl"),
    ("window_bottom_right", {**_WINDOW, "bottom_right": True}, "fbl"),
    ("window_both_sides", {"right": 32, "left": 64}, "fbl4"),
    ("padding", _LENGTHS, "fb8l4"),
    ("padding_causal", {**_LENGTHS, **_CAUSAL}, "fb8l4"),
    ("padding_causal_bottom_right", {**_LENGTHS, **_BOTTOM}, "fbl"),
    ("padding_window", {**_LENGTHS, **_WINDOW}, "fbl"),
    ("bias", _BIAS, "fbl"),
    ("bias_causal", {**_BIAS, **_CAUSAL}, "fbl"),
    ("bias_window", {**_BIAS, **_WINDOW}, "fb"),
    ("bias_padding", {**_BIAS, **_LENGTHS}, "fbl4"),
    ("bias_padding_causal", {**_BIAS, **_LENGTHS, **_CAUSAL}, "fb"),
    ("dbias", {**_BIAS, "dbias": True}, "b"),
    ("dbias_padding_causal", {**_BIAS, **_LENGTHS, **_CAUSAL, "dbias": True}, "b4"),
    ("alibi_causal", {"alibi": True, **_CAUSAL}, "fbl4"),
    ("alibi_padding_causal", {"alibi": True, **_LENGTHS, **_CAUSAL}, "fb"),
    ("alibi_bias_causal", {"alibi": True, **_BIAS, **_CAUSAL}, "fb"),
    ("sink", _SINK, "fbl4"),
    ("sink_causal", {**_SINK, **_CAUSAL}, "fb"),
    ("sink_window", {**_SINK, **_WINDOW}, "fb"),
    ("sink_padding_causal", {**_SINK, **_LENGTHS, **_CAUSAL}, "fb"),
    ("dropout", _DROP, "fbl"),
    ("dropout_causal", {**_DROP, **_CAUSAL}, "fb4"),
    ("dropout_padding_causal", {**_DROP, **_LENGTHS, **_CAUSAL}, "fb"),
    ("score_function", {"cap": 0.75}, "fbl4"),
    ("grouped_causal", {**_CAUSAL, "heads": 1}, "fbl4"),
    ("heads_4_2_1_causal", {**_CAUSAL, "q": (2, 4, _QUERIES, _DEPTH), "heads": 2, "value_heads": 1}, "fb"),
    ("deterministic_causal", {**_CAUSAL, "deterministic": True}, "b4"),
    ("depth_192_128_causal", {**_CAUSAL, "q": (2, _HEADS, _QUERIES, 192), "value_depth": 128}, "fb4"),
    ("depth_64_causal", {**_CAUSAL, "q": (2, _HEADS, _QUERIES, 64)}, "fb"),
    ("ragged", _RAGGED, "fb4"),
    ("ragged_causal", {**_RAGGED, **_CAUSAL}, "fb4"),
    ("ragged_causal_bottom_right", {**_RAGGED, **_BOTTOM}, "fb"),
    ("ragged_window", {**_RAGGED, **_WINDOW}, "fb"),
    ("ragged_bias_causal", {**_RAGGED, **_BIAS, **_CAUSAL}, "fb"),
    ("paged", _PAGED, "f"),
    ("paged_causal", {**_PAGED, **_CAUSAL}, "f4"),
    ("paged_causal_bottom_right", {**_PAGED, **_BOTTOM}, "f"),
    ("paged_window", {**_PAGED, **_WINDOW}, "f"),
    ("paged_one_query", {"q": (2, _HEADS, 1, _DEPTH), "seq_q": (1, 1), "seq_kv": (130, 192), "page": 16}, "f"),
    ("one_query", {"q": (2, _HEADS, 1, _DEPTH)}, "f4"),
    ("one_query_padding", {"q": (2, _HEADS, 1, _DEPTH), "seq_q": (1, 1), "seq_kv": (130, 192)}, "f"),
]
if versions.HAS_LOG2:
    _BLOCKS, _CUMULATED = {"blocks": True, "implementation": "UNIFIED"}, {**_LENGTHS, "cumulated": "qk"}
    MASKS += [
        ("blocks", _BLOCKS, "f"),
        ("blocks_causal_sink", {**_BLOCKS, **_CAUSAL, **_SINK}, "f"),
        ("cumulated_causal", {**_CUMULATED, **_CAUSAL}, "fl"),
        ("cumulated_bottom_right", {**_CUMULATED, **_BOTTOM}, "f"),
        ("cumulated_ragged_causal", {**_CUMULATED, **_CAUSAL, "ragged": True, "unit": _HEADS * _DEPTH}, "f"),
        ("log2_causal", {**_CAUSAL, "log2": True}, "f"),
    ]


def combinations():
    """(name, data type, backward, arguments of Attention) of each."""
    for mask, options, where in MASKS:
        for direction in "fb":
            if direction not in where:
                continue
            for layout in ("bhsd", "bshd", "bs3hd") if "l" in where else ("bshd",):
                types = (_T.BFLOAT16, _T.HALF) if layout == "bshd" else (_T.BFLOAT16,)
                for io in (*types, _T.FLOAT) if layout == "bshd" and "4" in where else types:
                    name = f"{mask} {layout} {io.name.lower()} {'forward' if direction == 'f' else 'backward'}"
                    yield name, io, direction == "b", {**options, "layout": LAYOUTS[layout]}
            if "8" in where:
                name = f"{mask} bs3hd fp8_e4m3 {'forward' if direction == 'f' else 'backward'}"
                yield name, _T.FP8_E4M3, direction == "b", {**options, "layout": LAYOUTS["bs3hd"]}


def _text_of(handle, io, backward, options):
    """A file with the graph as the library sees it."""
    for file in _captured.iterdir():
        file.unlink()
    options = {"q": (2, _HEADS, _QUERIES, _DEPTH), "keys": _KEYS, **options}
    asked = {name: options.pop(name) for name in ("dbias", "deterministic") if name in options}
    b = Builder(handle, HostMemory(), io=io)
    problem = (quantised.Fp8Attention if io == _T.FP8_E4M3 else Attention)(b, **options)
    problem.backward(**asked) if backward else problem.forward()
    b.graph.validate()
    b.graph.build_operation_graph()
    b.graph.create_execution_plans([cudnn.heur_mode.FALLBACK])
    b.graph.build_plans()
    files = list(_captured.iterdir())
    assert len(files) == 1, files
    return files[0]


def _groups(file, arch):
    """The engines of a graph's groups, in launch order."""
    text = subprocess.run([_arguments.kiln, "explain", "--arch", arch, str(file)], check=True, capture_output=True,
                          text=True).stdout
    return re.findall(r"(?m)^  engine    (\w+) ", text)


def _is_fused(engines, backward):
    return any(e.startswith("attention") for e in engines) and len(engines) <= (2 if backward else 1)


def main():
    handle = cudnn.create_handle()
    count, unfused = 0, {}
    chosen = [combination for combination in combinations() if _arguments.only in combination[0]]
    for name, io, backward, options in chosen[:_arguments.most]:
        count += 1
        file = _text_of(handle, io, backward, options)
        if _arguments.keep:
            shutil.copy(file, pathlib.Path(_arguments.keep) / f"{name.replace(' ', '_')}{file.suffix}")
        for arch in _ARCHS:
            engines = _groups(file, arch)
            # Pages are read by attention_sm90 as they lie, transposed ones too. One query with 192 keys is less
            # than its tile, so that the model may prefer another engine.
            has_wgmma = arch == "sm_90a" and io != _T.FLOAT
            by_pages = name.startswith("paged") and "one_query" not in name and has_wgmma
            # Gradients are products of wgmma, but for rows of more than 128.
            by_wgmma = backward and has_wgmma and "192" not in name
            by_bytes = not backward and arch == "sm_90a" and io == _T.FP8_E4M3
            if (not _is_fused(engines, backward) or by_pages and engines != ["attention_sm90"] or
                    by_bytes and engines != ["attention_bytes_sm90"] or
                    by_wgmma and not any(engine.startswith("attention_grad_sm90") for engine in engines)):
                unfused[f"{name} {arch}"] = f"{len(engines)} groups: {', '.join(engines)}"
    cudnn.destroy_handle(handle)
    lines = [f"{name}\t{why}\n" for name, why in sorted(unfused.items())]
    print(f"{count} combinations on {len(_ARCHS)} architectures, {len(unfused)} of {count * len(_ARCHS)} not fused")
    if _arguments.write:
        _LIST.write_text("combination\tgroups\n" + "".join(lines))
        return 0
    listed = {line.split("\t")[0] for line in _LIST.read_text().splitlines()[1:]}
    for name in sorted(listed - unfused.keys()):
        print(f"{name}: is fused (or no longer a combination), and is to be struck from {_LIST.name}")
    for name in sorted(unfused.keys() - listed):
        print(f"{name}: is {unfused[name]}")
    # Fewer than the 200 that the list is to speak of would be a mistake of the table.
    return int(listed != unfused.keys() or count < 200)


if __name__ == "__main__":
    sys.exit(main())
