"""Attention drawn at random from a table of cudnn-frontend's options, each with the rule that says when it is legal.

    options = draw(seed)              # a Draw: direction, data type, arguments of Attention; REAL: extents of models
    run(handle, draw, memory)         # through the frontend, compared with attention.py's reference in f64
    shrink(draw, fails)               # the fewest options and smallest extents with which it still fails

The rules are those of the frontend's support surface for a Hopper GPU and cuDNN 9.28, of which some are wider than those of
9.19; a graph that they allow and the frontend refuses is a mistake here, and fails.
"""

import dataclasses

import cudnn
import numpy as np
import quantised
from attention import Attention, bshd
from builder import Builder, packed
from memory import HostMemory

_T = cudnn.data_type
_FP8 = (_T.FP8_E4M3, _T.FP8_E5M2)


def sbhd(dims):
    """Strides of B, H, S, D extents that lie in memory as S, B, H, D."""
    b, h, _, d = dims
    return (h * d, d, b * h * d, 1)


def bs3hd(dims):
    """Strides of one of three tensors that lie side by side in memory as B, S, 3, H, D."""
    _, h, s, d = dims
    return (3 * s * h * d, d, 3 * h * d, 1)


LAYOUTS = {"bhsd": packed, "bshd": bshd, "sbhd": sbhd, "bs3hd": bs3hd}


@dataclasses.dataclass
class Draw:
    """One graph: what attention.Attention takes, by name, and how it is asked."""

    seed: int
    backward: bool
    io: object
    options: dict

    def __str__(self):
        return f"seed {self.seed}: {'backward' if self.backward else 'forward'} {self.io.name} {self.options}"


# --- the table: option, what it may be, when it is legal ---------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Option:
    """`values(rng, o)`: arguments to add to those in `o`. `legal(o, backward, fp8)`: with the rest of them."""

    name: str
    chance: float
    values: object
    legal: object = lambda o, backward, fp8: True


def _extents(o):
    b, h, queries, _ = o["q"]
    return b, h, queries, o["keys"]


def _lengths(rng, o):
    b, _, queries, keys = _extents(o)

    def some(most):
        return tuple(int(rng.choice([0, 1, most, rng.integers(0, most + 1), rng.integers(0, most + 1)]))
                     for _ in range(b))

    return {"seq_q": some(queries), "seq_kv": some(keys)}


def _bias(rng, o):
    b, h, queries, keys = _extents(o)
    return {"bias": (int(rng.choice([1, b])), int(rng.choice([1, h])), queries, keys)}


# Masks that models add, as far as they fit the type. A row of which every key has a large one is a row whose scores are
# equal but for their rounding in f32, which says nothing: only rows of -1e4 and -inf are masked as a whole.
_MASKS = (-1e4, -65504.0, -1e9, -1e30, -3.38e38, -np.inf)


def _bias_mask(rng, o):
    value = float(rng.choice(_MASKS))
    whole = (int(rng.integers(o["bias"][2])),) if value in (-1e4, -np.inf) and rng.random() < 0.5 else ()
    return {"bias_mask": (value, whole)} if "bias" in o else {}


def _padded(o):
    return "seq_kv" in o


def _has(o, *names):
    return any(o.get(name) not in (None, False) for name in names)


def _bottom_right(o):
    return o.get("bottom_right", False) and o.get("right") is not None


def _bounds_are_legal(o, backward, fp8):
    _, _, queries, keys = _extents(o)
    if o.get("left") is not None and not _padded(o) and queries > keys:
        return False
    if not _bottom_right(o):
        return True
    return not fp8 and (_padded(o) or queries <= keys) and not _has(o, "bias", "alibi", "dropout", "custom_dropout")


def _batches_fit(o):
    """Batches and the gaps behind them lie within what the extents promise."""
    b, _, queries, keys = _extents(o)
    return all(sum(o[name]) + b * o.get("gap", 0) <= b * extent
               for name, extent in (("seq_q", queries), ("seq_kv", keys)))


def _pages_are_full(o):
    """Bits of dropout are drawn by places among scores, of which one operation for all has as many as pages hold."""
    return not _has(o, "dropout") or o["keys"] % o["page"] == 0


OPTIONS = [
    Option("padding", 0.45, _lengths),
    Option("causal", 0.35, lambda rng, o: {"right": 0}, _bounds_are_legal),
    Option("right_bound", 0.15, lambda rng, o: {"right": int(rng.integers(0, 6))}, lambda o, backward, fp8: not fp8),
    Option("window", 0.25, lambda rng, o: {"left": int(rng.integers(1, 12))},
           lambda o, backward, fp8: not fp8 and _bounds_are_legal(o, backward, fp8)),
    Option("bottom_right", 0.25, lambda rng, o: {"bottom_right": True}, _bounds_are_legal),
    Option("bias", 0.25, _bias, lambda o, backward, fp8: not fp8 and _bounds_are_legal(o, backward, fp8)),
    Option("bias_mask", 0.4, _bias_mask,
           lambda o, backward, fp8: not fp8 and "bias" in o),
    Option("alibi", 0.2, lambda rng, o: {"alibi": True},
           lambda o, backward, fp8: not fp8 and o.get("right") == 0 and _bounds_are_legal(o, backward, fp8)),
    Option("sink", 0.15, lambda rng, o: {"sink": True},
           lambda o, backward, fp8: not fp8 and (backward or o["q"][2] > 1)),
    Option("dropout", 0.15, lambda rng, o: {"dropout": float(rng.choice([0.1, 0.25, 0.5]))},
           lambda o, backward, fp8: not fp8 and _bounds_are_legal(o, backward, fp8)),
    Option("ragged", 0.3, lambda rng, o: {"ragged": True, "gap": int(rng.integers(0, 3))},
           lambda o, backward, fp8: not fp8 and _padded(o) and _batches_fit(o)),
    Option("paged", 0.25, lambda rng, o: {"page": int(rng.choice([1, 2, 4, 8, 16]))},
           lambda o, backward, fp8: not fp8 and not backward and _padded(o) and not _has(o, "ragged") and
           _pages_are_full(o)),
    Option("cap", 0.1, lambda rng, o: {"cap": 0.75},
           lambda o, backward, fp8: not fp8 and not _padded(o) and
           not _has(o, "alibi", "left", "bottom_right", "ragged") and o.get("right") is None),
    Option("scale_tensor", 0.2, lambda rng, o: {"scale_tensor": True}, lambda o, backward, fp8: not fp8),
]


_LATE = ("bias_mask", "alibi", "ragged", "paged")  # legal with another option alone


def _is_legal(options, backward, fp8):
    chosen = [option for option in OPTIONS if options["drawn"].get(option.name)]
    return all(option.legal(options, backward, fp8) for option in chosen)


# Queries, keys and heads of q. The reference in f64 holds some matrices of all scores: `most` of them in all.
@dataclasses.dataclass(frozen=True)
class Extents:
    rows: tuple
    heads: tuple
    most: int = 1 << 62


SMALL = Extents((1, 2, 7, 16, 17, 24, 33), (1, 2, 4))
REAL = Extents((1, 2, 63, 128, 200, 513, 1024, 1500, 2048, 4096), (2, 4, 8), 1 << 23)


def _shape(rng, backward, fp8, extents):
    queries, keys = (int(rng.choice(extents.rows)) for _ in range(2))
    if backward and queries == keys == 1:
        keys = 3
    heads = int(rng.choice(extents.heads))
    depth = int(rng.choice([16, 24, 32, 64, 72, 80, 96, 128, 192, 256], p=[.2, .1, .2, .2, .05, .05, .05, .05, .05, .05]))
    if fp8:
        depth = 128 if backward else int(rng.choice([16, 32, 64, 128]))
    batches = min(int(rng.integers(1, 4)), max(1, extents.most // (heads * queries * keys)))
    while heads > 1 and batches * heads * queries * keys > extents.most:  # powers of two, as slopes of alibi want
        heads //= 2
    options = {"q": (batches, heads, queries, depth), "keys": keys,
               "heads": int(rng.choice([n for n in (1, 2, 4) if heads % n == 0])),
               "layout": str(rng.choice(list(LAYOUTS))), "scale": float(rng.choice([1.0, 0.2, 0.35]))}
    if depth == 192:
        options["value_depth"] = 128
    if fp8 and backward:
        options["heads"] = heads
    return options


def draw(seed, extents=SMALL):
    """The graph of a seed, the same on every machine."""
    rng = np.random.default_rng(seed)
    backward = bool(rng.random() < 0.4)
    io = [_T.HALF, _T.BFLOAT16, *_FP8][int(rng.choice(4, p=[0.42, 0.42, 0.1, 0.06]))]
    fp8 = io in _FP8
    if seed % 8 == 7 and not fp8:  # so that other seeds keep their graphs
        io = _T.FLOAT
    options = {**_shape(rng, backward, fp8, extents), "drawn": {}}
    # In any order, since each option is legal or not with those before, but for those that want another one.
    for option in sorted((OPTIONS[at] for at in rng.permutation(len(OPTIONS))), key=lambda o: o.name in _LATE):
        if rng.random() >= option.chance or (option.name == "bias_mask" and "bias" not in options):
            continue
        more = {**options, **option.values(rng, options), "drawn": {**options["drawn"], option.name: True}}
        if _is_legal(more, backward, fp8):
            options = more
    if "bias" in options and backward and rng.random() < 0.6:
        options["dbias"] = True
    if backward and rng.random() < 0.3:
        options["deterministic"] = True
    if not backward:
        options["stats"] = bool(rng.random() < 0.6)
    return Draw(seed, backward, io, options)


# --- running -----------------------------------------------------------------------------------------------------


def run(handle, drawn, space=None):
    """Raises what the frontend raises, or builder.Mismatch."""
    b = Builder(handle, space or HostMemory(), io=drawn.io, seed=drawn.seed)
    options = {name: value for name, value in drawn.options.items() if name != "drawn"}
    options["layout"] = LAYOUTS[options["layout"]]
    asked = {name: options.pop(name) for name in ("stats", "dbias", "deterministic") if name in options}
    kind = quantised.Fp8Attention if drawn.io in _FP8 else Attention
    problem = kind(b, **options)
    if drawn.backward:
        problem.backward(**(asked if kind is Attention else {}))
    else:
        problem.forward(**asked)
    b.run()


# --- shrinking ---------------------------------------------------------------------------------------------------

_DEFAULTS = {"scale": 1.0, "layout": "bhsd"}


def _without(options, name):
    """The options without what a row of the table added, or None where nothing is left to drop."""
    keys = {"padding": ("seq_q", "seq_kv"), "causal": ("right",), "right_bound": ("right",), "window": ("left",),
            "ragged": ("ragged", "gap"), "paged": ("page",)}.get(name, (name,))
    fewer = {key: value for key, value in options.items() if key not in keys and not (name == "bias" and key == "dbias")}
    fewer["drawn"] = {key: True for key in options["drawn"] if key != name and
                      not (keys == ("right",) and key in ("causal", "right_bound"))}
    return fewer


def _smaller(drawn):
    """Draws that are simpler in one thing, simplest first."""
    o = drawn.options
    for name in o["drawn"]:
        yield _without(o, name)
    for name, value in _DEFAULTS.items():
        if o.get(name) != value:
            yield {**o, name: value}
    for name in ("dbias", "deterministic", "stats"):
        if o.get(name):
            yield {**o, name: False}
    b, h, queries, depth = o["q"]
    if b > 1:
        for keep in range(b):
            less = {name: (o[name][keep],) for name in ("seq_q", "seq_kv") if name in o}
            yield {**o, **less, "q": (1, h, queries, depth)} | (
                {"bias": (1, *o["bias"][1:])} if "bias" in o else {})
    if h > 1:
        yield {**o, "heads": 1, "q": (b, 1, queries, depth)} | (
            {"bias": (o["bias"][0], 1, *o["bias"][2:])} if "bias" in o else {})
    if depth > 16 and drawn.io not in _FP8:
        yield {key: value for key, value in o.items() if key != "value_depth"} | {"q": (b, h, queries, 16)}


def shrink(drawn, fails, most=60):
    """`fails(draw)`: whether it goes wrong as the given one does."""
    tried = 0
    helps = True
    while helps and tried < most:
        helps = False
        for options in _smaller(drawn):
            simpler = dataclasses.replace(drawn, options=options)
            if not _is_legal(options, drawn.backward, drawn.io in _FP8):
                continue
            tried += 1
            if tried > most:
                break
            if fails(simpler):
                drawn, helps = simpler, True
                break
    return drawn
