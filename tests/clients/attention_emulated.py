"""The combinations of attention_fused.py at small extents on tests/support/emulated_gpu, against the reference in f64:
lengths that are odd, 1 and 0, sequences one behind another, pages, sinks, dropout. Run by attention_emulated_test.sh:

    python attention_emulated.py --cudnn LIBCUDNN --cudart LIBCUDART --libcuda LIBCUDA [--only WORD]

What is run is what is fused, on the architecture that EMULATED_GPU_ARCH names.
"""

import argparse
import os
import sys
import tempfile

import preload

_parser = argparse.ArgumentParser()
_parser.add_argument("--cudnn", required=True)
_parser.add_argument("--cudart", required=True)
_parser.add_argument("--libcuda", required=True)
_parser.add_argument("--only", default="", help="of the names, parts of them")
_parser.add_argument("--seed", type=int, default=1)
_arguments = _parser.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # f32 is compared with what f32 has
preload.load(_arguments.cudart, _arguments.cudnn)

import cudnn  # noqa: E402

import quantised  # noqa: E402
import versions  # noqa: E402
from attention import Attention  # noqa: E402
from builder import Builder, Mismatch  # noqa: E402
from drawn_attention import LAYOUTS  # noqa: E402
from memory import EmulatedMemory  # noqa: E402

_T = cudnn.data_type
_LENGTHS = {"seq_q": (67, 0, 1), "seq_kv": (150, 77, 1)}
_NO_KEYS = {"seq_q": (70, 33, 5), "seq_kv": (0, 1, 151)}
_BIAS = {"bias": (1, 2, 70, 151)}
_CAUSAL, _BOTTOM = {"right": 0}, {"right": 0, "bottom_right": True}
_WINDOW = {"right": 0, "left": 20}
_RAGGED, _SINK, _DROP = {"ragged": True}, {"sink": True}, {"dropout": 0.25}
_SHAPE = {"q": (3, 2, 70, 64), "keys": 151}

# Name, arguments of Attention; layouts and types take turns.
CASES = [
    ("padding_causal", {**_LENGTHS, **_CAUSAL}),
    ("padding_bottom_right", {**_LENGTHS, **_BOTTOM}),
    ("padding_bottom_right_hides_rows", {"seq_q": (70, 40, 70), "seq_kv": (3, 20, 64), **_BOTTOM}),
    ("padding_no_keys_causal", {**_NO_KEYS, **_CAUSAL}),
    ("padding_window", {**_LENGTHS, **_WINDOW}),
    ("padding_bias", {**_LENGTHS, **_BIAS}),
    ("padding_bias_causal", {**_NO_KEYS, **_BIAS, **_CAUSAL}),
    ("padding_alibi_causal", {**_LENGTHS, "alibi": True, **_CAUSAL}),
    ("sink", {**_SINK}),
    ("sink_window", {**_SINK, **_WINDOW}),
    ("sink_padding_causal", {**_SINK, **_LENGTHS, **_CAUSAL}),
    ("sink_padding_no_keys", {**_SINK, **_NO_KEYS}),
    ("dropout", {**_DROP}),
    ("dropout_padding_causal", {**_DROP, **_LENGTHS, **_CAUSAL}),
    ("paged_1", {**_LENGTHS, "page": 1}),
    ("paged_3_causal", {**_LENGTHS, "page": 3, **_CAUSAL}),
    ("paged_16_bottom_right", {**_NO_KEYS, "page": 16, **_BOTTOM, "heads": 1}),
    ("paged_64_window_bias", {**_LENGTHS, "page": 64, **_WINDOW, **_BIAS}),
    ("paged_8_sink_causal", {**_LENGTHS, "page": 8, **_CAUSAL, **_SINK}),
    ("ragged", {**_LENGTHS, **_RAGGED}),
    ("ragged_gap_causal", {**_LENGTHS, **_RAGGED, "gap": 2, **_CAUSAL}),
    # Rows that begin anywhere, for which there are no maps.
    ("ragged_shifted_causal", {**_LENGTHS, **_RAGGED, "gap": 1, "shift": 3, **_CAUSAL}),
    ("ragged_no_keys_bottom_right", {**_NO_KEYS, **_RAGGED, **_BOTTOM, "heads": 1}),
    ("ragged_window_bias", {**_LENGTHS, **_RAGGED, **_WINDOW, **_BIAS}),
    ("ragged_sink_causal", {**_LENGTHS, **_RAGGED, **_SINK, **_CAUSAL}),
    ("ragged_everything", {**_LENGTHS, **_RAGGED, **_SINK, **_BIAS, "alibi": True, **_CAUSAL, **_DROP}),
    ("score_function", {"cap": 0.75}),
    ("depth_192_128_padding_causal", {**_LENGTHS, **_CAUSAL, "q": (3, 2, 70, 192), "value_depth": 128}),
    ("depth_256_sink_causal", {**_SINK, **_CAUSAL, "q": (3, 2, 70, 256)}),
    ("depth_80_ragged_causal", {**_LENGTHS, **_RAGGED, **_CAUSAL, "q": (3, 2, 70, 80)}),
    ("depth_24_paged_causal", {**_LENGTHS, "page": 4, **_CAUSAL, "q": (3, 2, 70, 24)}),
    ("fp8", {"fp8": True}),
    ("fp8_causal", {**_CAUSAL, "fp8": True}),
    ("fp8_padding_causal", {**_LENGTHS, **_CAUSAL, "fp8": True}),
    ("fp8_depth_128_padding", {**_NO_KEYS, "fp8": True, "q": (3, 2, 70, 128)}),
    ("fp8_grouped", {"fp8": True, "q": (1, 4, 33, 32), "heads": 2}),
    ("fp8_e5m2", {"fp8": "e5m2", "keys": 40}),
    # Rows of whole calls of Philox, which neighbours share.
    ("dropout_calls", {**_DROP, "keys": 152}),
    ("dropout_calls_padding_causal", {**_DROP, **_LENGTHS, **_CAUSAL, "keys": 208}),
    # A bias copied in panels beside the scores: rings that go round, groups that see fewer blocks than others.
    ("bias_copied", {"bias": (1, 2, 70, 328), "keys": 328}),
    ("bias_copied_causal", {"bias": (1, 2, 270, 408), "q": (2, 2, 270, 128), "keys": 408, **_CAUSAL}),
    ("bias_copied_of_images", {"bias": (3, 1, 200, 280), "q": (3, 2, 200, 64), "keys": 280, "heads": 1, **_CAUSAL}),
    ("bias_copied_padding_causal", {"bias": (1, 2, 70, 280), "keys": 280, **_LENGTHS, **_CAUSAL}),
    ("bias_copied_no_keys_alibi_causal", {"bias": (1, 2, 70, 152), "keys": 152, **_NO_KEYS, "alibi": True, **_CAUSAL}),
    ("bias_copied_window_sink", {"bias": (1, 1, 270, 408), "q": (2, 2, 270, 64), "keys": 408, **_WINDOW, **_SINK}),
    ("bias_copied_ragged_causal", {"bias": (1, 2, 70, 280), "keys": 280, **_LENGTHS, **_RAGGED, **_CAUSAL}),
    ("bias_copied_paged", {"bias": (1, 2, 70, 280), "keys": 280, **_LENGTHS, "page": 8}),
    ("bias_copied_depth_192_128", {"bias": (1, 2, 70, 152), "keys": 152, "q": (3, 2, 70, 192), "value_depth": 128}),
    ("bias_copied_depth_256", {"bias": (1, 2, 70, 152), "keys": 152, "q": (3, 2, 70, 256)}),
    # Intervals of keys without lengths, and tiles of which no row sees a key.
    ("window_of_many_blocks", {"q": (1, 2, 270, 128), "keys": 408, "right": 0, "left": 150}),
    ("padding_hides_tiles_sink_causal",
     {"seq_q": (3, 200, 0), "seq_kv": (300, 0, 7), **_SINK, **_CAUSAL, "q": (3, 2, 270, 64), "keys": 300}),
    # A factor by which no slope can be divided, and which is no factor of maxima.
    ("alibi_negative_scale_causal", {"alibi": True, "scale": -0.2, **_CAUSAL, "q": (1, 2, 200, 64)}),
    ("alibi_no_scale_causal", {"alibi": True, "scale": 1, **_CAUSAL, "q": (2, 4, 200, 64), "keys": 200}),
]
if versions.HAS_LOG2:
    _BLOCKS = {"blocks": True, "implementation": "UNIFIED", "q": (2, 2, 200, 64), "keys": 331}
    CASES += [
        ("blocks", {**_BLOCKS}),
        ("blocks_causal_sink", {**_BLOCKS, **_CAUSAL, **_SINK}),
        ("blocks_padding_grouped", {**_BLOCKS, "seq_q": (150, 9), "seq_kv": (331, 130), "heads": 1}),
        ("cumulated_bottom_right", {**_LENGTHS, **_BOTTOM, "cumulated": "qk"}),
        ("cumulated_ragged_causal", {**_LENGTHS, **_RAGGED, **_CAUSAL, "cumulated": "qk", "gap": 1, "unit": 128}),
        ("cumulated_paged_window", {**_LENGTHS, **_WINDOW, "cumulated": "qk", "page": 16}),
        ("log2_sink_causal", {**_SINK, **_CAUSAL, "log2": True}),
    ]
_EVEN = {"keys": 152}  # eight neighbours have their random bits of one call
_POISON = {"poison": True}
_BESIDE = {**_EVEN, "bias": (1, 2, 70, 152)}  # copied with the blocks of queries
_ONE_HEAD = {"q": (1, 4, 70, 64), "heads": 1}  # its tiles are divided among blocks
_DEEP = {"q": (1, 2, 70, 192)}
_FP8 = {"q": (1, 2, 70, 128)}
# The gradients, likewise.
GRADIENTS = [
    ("padding", {**_LENGTHS}),
    ("padding_causal_poison", {**_LENGTHS, **_CAUSAL, **_POISON}),
    ("padding_no_keys_bottom_right_poison", {**_NO_KEYS, **_BOTTOM, **_POISON}),
    ("padding_bias_causal_poison", {**_LENGTHS, **_BIAS, **_CAUSAL, **_POISON}),
    ("padding_dbias_poison", {**_LENGTHS, **_BIAS, **_POISON, "dbias": True}),
    ("bias_copied", {**_BESIDE}),
    ("bias_copied_depth_128", {**_BESIDE, "q": (1, 2, 70, 128)}),
    ("bias_copied_causal_deterministic", {**_BESIDE, **_CAUSAL, "deterministic": True}),
    ("bias_copied_of_images", {**_EVEN, "bias": (3, 1, 70, 152), "heads": 1}),
    ("bias_copied_padding_causal_poison", {**_BESIDE, **_LENGTHS, **_CAUSAL, **_POISON, "q": (3, 2, 70, 128)}),
    ("bias_copied_dropout", {**_BESIDE, **_DROP}),
    ("dbias_copied", {**_BESIDE, "dbias": True, "q": (3, 2, 70, 128)}),
    ("dbias_padding_causal_poison", {**_BESIDE, **_LENGTHS, **_CAUSAL, **_POISON, "dbias": True}),
    ("dbias_of_all_heads", {**_EVEN, "bias": (1, 1, 70, 152), "dbias": True, "heads": 1}),
    ("dbias_of_images_dropout", {**_EVEN, **_DROP, "bias": (3, 1, 70, 152), "dbias": True}),
    ("dbias_deterministic", {**_BESIDE, "dbias": True, "deterministic": True}),
    ("dbias_of_each_deterministic", {**_EVEN, "bias": (3, 2, 70, 152), "dbias": True, "deterministic": True}),
    ("padding_window", {**_LENGTHS, **_WINDOW}),
    ("sink_padding_causal_poison", {**_SINK, **_LENGTHS, **_CAUSAL, **_POISON}),
    ("dropout", {**_DROP}),
    ("dropout_words_shared", {**_DROP, **_EVEN}),
    ("dropout_words_shared_depth_128", {**_DROP, **_EVEN, "q": (1, 2, 70, 128)}),
    ("dropout_padding_causal_poison", {**_DROP, **_LENGTHS, **_CAUSAL, **_EVEN, **_POISON}),
    ("dropout_padding_bias_causal", {**_DROP, **_LENGTHS, **_BIAS, **_CAUSAL}),
    ("score_function", {"cap": 0.75}),
    ("score_function_depth_128", {"cap": 0.75, "q": (1, 2, 70, 128)}),
    ("one_head_of_keys", {**_ONE_HEAD}),
    ("one_head_of_keys_causal", {**_ONE_HEAD, **_CAUSAL, "q": (2, 6, 140, 128), "deterministic": True}),
    ("one_head_of_keys_padding_poison", {**_LENGTHS, **_POISON, "q": (3, 4, 70, 64), "heads": 1}),
    # k and v with other numbers of heads.
    ("heads_4_2_1", {"q": (2, 4, 70, 64), "heads": 2, "value_heads": 1}),
    ("heads_4_1_2_causal_depth_128", {"q": (2, 4, 70, 128), "heads": 1, "value_heads": 2, **_CAUSAL}),
    ("heads_4_4_2_padding_deterministic",
     {**_LENGTHS, "q": (3, 4, 70, 64), "heads": 4, "value_heads": 2, "deterministic": True}),
    ("heads_12_2_3_ragged_dbias",
     {**_LENGTHS, **_RAGGED, "q": (3, 12, 70, 64), "heads": 2, "value_heads": 3, "keys": 152,
      "bias": (1, 12, 70, 152), "dbias": True}),
    # Whole blocks of queries: sums of dq lie where dq does.
    ("whole_blocks", {"q": (2, 2, 128, 64)}),
    ("whole_blocks_depth_128_causal", {"q": (1, 2, 192, 128), **_CAUSAL}),
    ("whole_blocks_one_head_of_keys", {"q": (2, 4, 128, 128), "heads": 1}),
    ("ragged_causal", {**_LENGTHS, **_RAGGED, **_CAUSAL}),
    ("ragged_window_bias", {**_LENGTHS, **_RAGGED, **_WINDOW, **_BIAS}),
    ("ragged_gap_deterministic", {**_LENGTHS, **_RAGGED, "gap": 2, "deterministic": True}),
    ("ragged_shifted_causal", {**_LENGTHS, **_RAGGED, "gap": 1, "shift": 3, **_CAUSAL, "q": (3, 2, 70, 128)}),
    ("ragged_no_keys_bottom_right", {**_NO_KEYS, **_RAGGED, **_BOTTOM, "q": (3, 4, 70, 64), "heads": 2}),
    ("ragged_one_head_of_keys", {**_LENGTHS, **_RAGGED, "q": (3, 4, 70, 128), "heads": 1}),
    ("ragged_dbias_copied", {**_LENGTHS, **_RAGGED, **_BESIDE, "dbias": True}),
    ("ragged_shifted_bias_copied", {**_LENGTHS, **_RAGGED, **_BESIDE, "shift": 5}),
    ("ragged_sink_dropout_causal", {**_LENGTHS, **_RAGGED, **_SINK, **_DROP, **_CAUSAL, "q": (3, 2, 70, 80)}),
    ("depth_192_128_padding_causal", {**_LENGTHS, **_CAUSAL, "q": (3, 2, 70, 192), "value_depth": 128}),
    # Tiles of 64 keys; rows of two panels and a half, of three and of four, and both of unequal ones.
    ("depth_192_128_dropout", {**_DROP, **_EVEN, **_DEEP, "value_depth": 128}),
    ("depth_160_padding_sink_poison", {**_LENGTHS, **_SINK, **_POISON, "q": (3, 2, 70, 160)}),
    ("depth_192_ragged_causal", {**_LENGTHS, **_RAGGED, **_CAUSAL, "q": (3, 2, 70, 192)}),
    ("depth_192_dbias_copied_deterministic", {**_BESIDE, **_DEEP, "dbias": True, "deterministic": True}),
    ("depth_256_causal", {**_CAUSAL, "q": (1, 2, 150, 256)}),
    ("depth_256_dbias", {**_BESIDE, "dbias": True, "q": (1, 2, 70, 256)}),
    ("depth_256_one_head_of_keys_deterministic", {"deterministic": True, "q": (1, 4, 70, 256), "heads": 1}),
    ("depth_256_ragged_dropout_causal", {**_LENGTHS, **_RAGGED, **_DROP, **_CAUSAL, "q": (3, 2, 70, 256)}),
    ("depth_96_causal", {**_CAUSAL, "q": (1, 2, 70, 96)}),
    ("depth_128_64", {"q": (1, 2, 70, 128), "value_depth": 64}),
    # The frontend takes depths of 128 alone.
    ("fp8", {"fp8": True, **_FP8}),
    ("fp8_causal", {**_CAUSAL, "fp8": True, **_FP8}),
    ("fp8_padding_causal", {**_LENGTHS, **_CAUSAL, "fp8": True, "q": (3, 2, 70, 128)}),
    ("fp8_padding_no_keys", {**_NO_KEYS, "fp8": True, "q": (3, 2, 70, 128)}),
    ("fp8_padding_nothing_seen", {"seq_q": (0,), "seq_kv": (77,), "fp8": True, **_FP8}),
    ("fp8_grouped", {**_CAUSAL, "fp8": True, "q": (1, 4, 70, 128), "heads": 1}),
    ("fp8_e5m2", {"fp8": "e5m2", **_FP8}),
]


# Cases of f32, by the engines that keep all of its bits.
WIDE = [
    ("padding_causal", {**_LENGTHS, **_CAUSAL}),
    ("padding_no_keys_bias", {**_NO_KEYS, **_BIAS}),
    ("sink_window_depth_128", {**_SINK, **_WINDOW, "q": (2, 2, 70, 128)}),
    ("dropout_calls_padding_causal", {**_DROP, **_LENGTHS, **_CAUSAL, "keys": 208}),
    ("ragged_gap_causal", {**_LENGTHS, **_RAGGED, "gap": 2, **_CAUSAL}),
    ("paged_3_causal", {**_LENGTHS, "page": 3, **_CAUSAL}),
    ("depth_192_128_causal", {**_CAUSAL, "q": (1, 2, 70, 192), "value_depth": 128}),
]
WIDE_GRADIENTS = [
    ("padding_causal_poison", {**_LENGTHS, **_CAUSAL, **_POISON}),
    ("dbias_padding_causal", {**_LENGTHS, **_BIAS, **_CAUSAL, "dbias": True}),
    ("sink_padding_no_keys", {**_SINK, **_NO_KEYS}),
    ("dropout_words_shared", {**_DROP, **_EVEN}),
    ("window_one_head_of_keys_depth_128", {**_WINDOW, "q": (2, 4, 70, 128), "heads": 1}),
    ("ragged_gap_causal", {**_LENGTHS, **_RAGGED, "gap": 2, **_CAUSAL}),
    ("whole_blocks_causal", {"q": (2, 2, 128, 64), **_CAUSAL}),
    ("one_tile_bottom_right", {"seq_q": (70, 33, 5), "seq_kv": (3, 0, 40), **_BOTTOM, "keys": 40}),
    ("score_function", {"cap": 0.75}),
]


def _run(handle, number, options, backward=False):
    options = {**_SHAPE, **options}
    asked = {name: options.pop(name) for name in ("dbias", "deterministic") if name in options}
    fp8, f32 = options.pop("fp8", None), options.pop("f32", False)
    layout = ["bhsd", "bshd", "sbhd", "bs3hd"][number % 4]
    heads = options.get("heads", options["q"][1])
    if layout == "bs3hd" and (heads != options["q"][1] or "value_heads" in options or "value_depth" in options):
        layout = "bshd"
    io = (_T.HALF, _T.BFLOAT16)[number // 2 % 2]
    if f32:
        io = _T.FLOAT
    if fp8:
        io = _T.FP8_E5M2 if fp8 == "e5m2" else _T.FP8_E4M3
    memory = EmulatedMemory(_arguments.libcuda)
    b = Builder(handle, memory, io=io, seed=_arguments.seed + number)
    problem = (quantised.Fp8Attention if fp8 else Attention)(b, **{**options, "layout": LAYOUTS[layout]})
    if backward:
        problem.backward(**asked)
    else:
        problem.forward(**({} if fp8 else {"stats": number % 5 != 4}))
    b.run()
    memory.free()


def main():
    handle = cudnn.create_handle()
    failed = 0
    cases = [(f"forward {name}", options) for name, options in CASES]
    cases += [(f"backward {name}", options) for name, options in GRADIENTS]
    if os.environ.get("EMULATED_GPU_ARCH") != "sm_90":  # one engine takes f32 on both
        cases += [(f"forward f32 {name}", {**options, "f32": True}) for name, options in WIDE]
        cases += [(f"backward f32 {name}", {**options, "f32": True}) for name, options in WIDE_GRADIENTS]
    for number, (name, options) in enumerate(cases):
        if not any(word in name for word in _arguments.only.split(",")):
            continue
        try:
            _run(handle, number, options, name.startswith("backward"))
            print(f"{name}: right", flush=True)
        except (Mismatch, Exception) as wrong:
            failed += 1
            print(f"{name}: {type(wrong).__name__}: {wrong}", flush=True)
    cudnn.destroy_handle(handle)
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
