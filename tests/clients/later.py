"""What cudnn-frontend sends to libraries that say 9.22 to 9.28 alone: cases for CASES, and their references in f64.

Attention by one operation with masks, lengths one after another, offsets of several elements, logarithms to base 2;
reductions of groups of rows; reshapes that keep the order of elements.
"""

import math

import cudnn
import numpy as np

import quantised
import reference
import versions
from attention import Attention, bshd
from builder import packed
from reference import Ref

_T = cudnn.data_type
_UNIFIED = {"implementation": "UNIFIED"}
_LENGTHS = {"seq_q": (24, 7), "seq_kv": (13, 40)}
_CAUSAL, _BOTTOM = {"right": 0}, {"right": 0, "bottom_right": True}
_CUMULATED = {**_LENGTHS, "cumulated": "qk"}
_DROP = {"dropout": 0.25}

# Name, arguments of Attention. The frontend has no statistics beside dropout here.
_PARTS = {
    "causal": _CAUSAL,
    "bottom_right": _BOTTOM,
    "window": {"right": 3, "left": 6},
    "lengths": _LENGTHS,
    "lengths_causal": {**_LENGTHS, **_CAUSAL},
    "lengths_bottom_right": {**_LENGTHS, **_BOTTOM},
    "bias": {"bias": (1, 4, 24, 40), "heads": 2},
    "alibi": {"alibi": True, **_CAUSAL},
    "sink_causal": {"sink": True, **_CAUSAL},
    "maxima": {"maxima": True},
    "capped": {"cap": 0.75, "scale": 0.4},
    "dropout": _DROP,
    "dropout_lengths_causal": {**_DROP, **_LENGTHS, **_CAUSAL, "heads": 1},
    "paged_causal": {**_LENGTHS, **_CAUSAL, "page": 4, "heads": 2},
    "ragged_causal": {**_LENGTHS, **_CAUSAL, "ragged": True},
    "everything": {**_LENGTHS, **_CAUSAL, "alibi": True, "bias": (1, 4, 24, 40), "heads": 2, "sink": True},
    "blocks": {"q": (2, 4, 150, 32), "keys": 300, "blocks": True},
    "blocks_causal_grouped": {"q": (1, 4, 300, 32), "keys": 300, "heads": 2, "blocks": True, **_CAUSAL},
}
_ONES_AFTER_ANOTHER = {
    "cumulated": _CUMULATED,
    "cumulated_causal": {**_CUMULATED, **_CAUSAL},
    "cumulated_bottom_right": {**_CUMULATED, **_BOTTOM},
    "cumulated_window": {**_CUMULATED, **_CAUSAL, "left": 5},
    "cumulated_empty": {"seq_q": (24, 0), "seq_kv": (0, 40), "cumulated": "qk"},
    "cumulated_ragged_grouped": {**_CUMULATED, **_CAUSAL, "ragged": True, "heads": 2},
    "cumulated_paged": {**_CUMULATED, **_CAUSAL, "page": 8},
    "cumulated_everything": {**_CUMULATED, **_CAUSAL, "alibi": True, "bias": (1, 4, 24, 40), "sink": True},
    # Offsets count rows of a head, heads, or tokens.
    "ragged_of_heads": {**_LENGTHS, "ragged": True, "unit": 32},
    "ragged_of_tokens": {**_CUMULATED, **_CAUSAL, "ragged": True, "gap": 1, "unit": 4 * 32},
}
_MIXED = {
    "cumulated_keys": {**_LENGTHS, "cumulated": "k", **_CAUSAL},
    "cumulated_queries": {**_LENGTHS, "cumulated": "q", **_BOTTOM},
}
_LOG2 = {
    "log2": {},
    "log2_unified": _UNIFIED,
    "log2_sink_lengths_causal": {**_LENGTHS, **_CAUSAL, "sink": True},
    "log2_cumulated_bottom_right": {**_CUMULATED, **_BOTTOM},
}
_BYTES = {
    "plain": {"q": (2, 2, 24, 32), "keys": 40},
    "lengths_causal": {"q": (2, 2, 24, 32), "keys": 40, **_LENGTHS, **_CAUSAL},
    "cumulated": {"q": (2, 2, 24, 32), "keys": 40, **_CUMULATED},
    "grouped": {"q": (1, 4, 17, 16), "keys": 33, "heads": 2},
}
_GRADIENTS = {
    "ragged_sink_causal": {**_LENGTHS, **_CAUSAL, "ragged": True, "sink": True},
    "statistics_bshd": {"layout": bshd, "stats_layout": bshd, **_CAUSAL},
}


def _grouped_reduction(mode, offsets, rows=61, columns=19, **values):
    """Rows from each offset on are one row of the result."""

    def build(b):
        x = b.input((1, rows, columns), **values)
        first = b.input((len(offsets), 1, 1), data_type=_T.INT32, values=np.array(offsets).reshape(-1, 1, 1))
        tensor = b.graph.reduction(x.tensor, mode=getattr(cudnn.reduction_mode, mode), group_offset=first.tensor)
        parts = [reference.REDUCTIONS[mode](Ref(x.ref.value[:, begin:end], x.ref.err[:, begin:end]), (1,))
                 for begin, end in zip(offsets, (*offsets[1:], rows))]
        dims = [len(offsets), 1, columns]
        tensor.set_dim(dims).set_stride(list(packed(dims)))
        b.output(b.node(tensor, b.concatenated(parts, 0)), data_type=_T.FLOAT)

    return build


def _logical_reshape(b):
    """Elements in the order of extents, not of memory: x lies transposed."""
    x = b.input((4, 6, 10), strides=(1, 40, 4))
    tensor = b.graph.reshape(x.tensor, reshape_mode=cudnn.reshape_mode.LOGICAL)
    dims = (8, 30)
    tensor.set_dim(list(dims)).set_stride(list(packed(dims)))
    b.output(b.node(tensor, b.reshaped(x.ref, dims)))


def _strided_slice(b):
    """Every second row, every third column."""
    x = b.input((2, 9, 17))
    part = b.graph.slice(x.tensor, [slice(0, 2), slice(1, 9, 2), slice(0, 17, 3)])
    b.output(b.pointwise("tanh", b.node(part, Ref(x.ref.value[:, 1:9:2, ::3]))))


def _attention(options):
    return lambda b: Attention(b, **options).forward(not options.keys() & {"maxima", "dropout"})


def _add_attention(case):
    kinds = [(versions.HAS_UNIFIED_PARTS, "sdpa_unified_", {n: {**o, **_UNIFIED} for n, o in _PARTS.items()}),
             (versions.HAS_CUMULATED, "sdpa_", _ONES_AFTER_ANOTHER),
             (versions.HAS_UNIFIED_BYTES, "sdpa_", _MIXED),
             (versions.HAS_LOG2, "sdpa_", _LOG2)]
    for has, prefix, table in kinds:
        for name, options in table.items() if has else ():
            if "log2" in name:
                options = {**options, "log2": True}
            for io, suffix in ((_T.HALF, "fp16"), (_T.BFLOAT16, "bf16")):
                case(f"{prefix}{name}_{suffix}", io, _attention(options))
    if versions.HAS_UNIFIED_BYTES:
        for name, options in _BYTES.items():
            case(f"sdpa_fp8_unified_{name}_e4m3", _T.FP8_E4M3,
                 lambda b, o=options: quantised.Fp8Attention(b, **o, **_UNIFIED).forward())
    if versions.HAS_LATER_GRADIENTS:
        for name, options in _GRADIENTS.items():
            for io, suffix in ((_T.HALF, "fp16"), (_T.BFLOAT16, "bf16")):
                case(f"sdpa_backward_{name}_{suffix}", io, lambda b, o=options: Attention(b, **o).backward())


def add_cases(case, for_floats):
    _add_attention(case)
    if versions.HAS_GROUPED_REDUCTION:
        for mode in ("ADD", "MAX", "AVG", "NORM2"):
            case(f"reduce_{mode.lower()}_groups", _T.HALF, _grouped_reduction(mode, (0, 7, 8, 40)))
        case("reduce_add_one_group", _T.FLOAT, _grouped_reduction("ADD", (0,), rows=1, columns=3))
    if versions.HAS_LOGICAL_RESHAPE:
        for_floats("reshape_logical", _logical_reshape)
        for_floats("slice_strided", _strided_slice)
