"""Attention as cudnn-frontend's users ask for it, forward and backward: cases for CASES, and the reference in f64.

The frontend sends plain attention as one operation and everything else as products, reductions and pointwise
operations, with the lengths of a padding mask as overrides of the products' extents.
"""

import cudnn
import numpy as np

import memory
import reference
from builder import packed
from reference import EPS32, NORMAL32, Ref

_T = cudnn.data_type
_INF = float("inf")


def bshd(dims):
    """Strides of B, H, S, D extents that lie in memory as B, S, H, D."""
    _, h, s, d = dims
    return (s * h * d, d, h * d, 1)


def visible(shape, left, right, bottom_right, seq_q, seq_kv):
    """Whether query i sees key j, over [batches, 1, queries, keys]."""
    b, s_q, s_kv = shape
    rows = np.full(b, s_q) if seq_q is None else seq_q
    columns = np.full(b, s_kv) if seq_kv is None else seq_kv
    i, j = np.arange(s_q)[None, :, None], np.arange(s_kv)[None, None, :]
    diagonal = i + (columns - rows)[:, None, None] * (1 if bottom_right else 0)
    seen = (i < rows[:, None, None]) & (j < columns[:, None, None])
    if right is not None:
        seen &= j <= diagonal + right
    if left is not None:
        seen &= j > diagonal - left
    return seen[:, None]


def per_head(ref, heads):
    """k or v with its heads repeated for each query head."""
    times = heads // ref.shape[1]
    return Ref(np.repeat(ref.value, times, 1), np.repeat(ref.err, times, 1))


def _shared(ref, heads):
    """The sum over query heads that share one of `heads`."""
    b, h, s, d = ref.shape
    grouped = Ref(ref.value.reshape(b, heads, h // heads, s, d), ref.err.reshape(b, heads, h // heads, s, d))
    total = reference.REDUCTIONS["ADD"](grouped, (2,))
    return Ref(total.value[:, :, 0], total.err[:, :, 0])


def swapped(ref):
    return Ref(ref.value.swapaxes(2, 3), ref.err.swapaxes(2, 3))


def rounded(ref, data_type):
    """What may have been stored in data_type on its way."""
    _, roundoff, subnormal = memory.STORAGE[data_type]
    return Ref(ref.value, ref.err + roundoff * np.abs(ref.value) + subnormal)


def exp_where(x, where):
    """exp(x) where it counts, 0 elsewhere."""
    exponent = np.where(where, x.value, 0)
    value = np.where(where, np.exp(exponent), 0.0)
    off = np.where(where, x.err, 0) + EPS32 * (4 * np.abs(exponent) + 8)
    # Far below 0 the exponential is 0 however far off its exponent may be.
    err = np.where(off < 1, value * np.expm1(np.minimum(off, 1)), np.exp(np.minimum(exponent + off, 700)) - value)
    # The GPU's exponential is 0 where the result would be a subnormal of float32.
    return Ref(value, np.where(where, err + NORMAL32, 0.0))


def _philox(places, seed, offset):
    """Philox4x32-7: word place % 4 of counter {place / 4, offset} under key seed."""
    low, wide = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [places >> np.uint64(2) & low, places >> np.uint64(34), np.full_like(places, offset), np.zeros_like(places)]
    key = [np.uint64(seed), np.uint64(0)]
    for _ in range(7):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [b >> wide ^ c[1] ^ key[0], b & low, a >> wide ^ c[3] ^ key[1], a & low]
        key = [key[0] + np.uint64(0x9E3779B9) & low, key[1] + np.uint64(0xBB67AE85) & low]
    return np.choose((places & np.uint64(3)).astype(np.int64), c)


class Attention:
    """The operands of one problem, its graph options and its reference."""

    def __init__(self, b, q=(2, 4, 24, 32), keys=40, heads=None, value_heads=None, value_depth=None, layout=packed, scale=0.2,
                 scale_tensor=False, left=None, right=None, bottom_right=False, seq_q=None, seq_kv=None, bias=None,
                 alibi=False, sink=False, custom_dropout=False, page=None, ragged=False, gap=0, shift=0,
                 dropout=None, dump=False, deprecated=False, cap=None, maxima=False, implementation=None,
                 bias_mask=None, poison=False, cumulated="", unit=1, log2=False, blocks=False, stats_layout=packed):
        self.b, self.batches, self.io = b, q[0], b.io
        heads = heads or q[1]
        depth = value_depth or q[3]
        shape = (q[0], heads, keys, q[3]), (q[0], value_heads or heads, keys, depth)
        self.o_dims, self.o_strides = (*q[:3], depth), bshd if ragged else layout
        self.lengths = (seq_q, seq_kv) if ragged else None
        self.poisoned = [None, None]  # rows behind the lengths, of q's side and of the keys', hold NaN
        if poison:
            self.poisoned = [(np.arange(n) >= np.array(lengths)[:, None])[:, None, :, None]
                             for n, lengths in ((q[2], seq_q), (keys, seq_kv))]
        self.gap, self.shift, self.unit, self.offsets = gap, shift, unit, {}
        self.cumulated, self.log2, self.stats_layout = cumulated, log2, stats_layout
        self.q = self._input(q, layout, 0)
        self.options = {}
        if implementation:
            self.options["implementation"] = getattr(cudnn.attention_implementation, implementation)
        if page is None:
            self.k, self.v = (self._input(dims, layout, 1) for dims in shape)
        else:
            self.k, self.v = (self._paged(name, dims, page, keys) for name, dims in zip("kv", shape))
        self.scale = scale
        if scale_tensor:
            self.options["attn_scale"] = b.input((1, 1, 1, 1), data_type=_T.FLOAT, values=np.full((1, 1, 1, 1), scale)).tensor
        elif scale != 1:
            self.options["attn_scale"] = scale
        self._mask(left, right, bottom_right, seq_q, seq_kv, (q[0], q[2], keys), deprecated)
        if blocks:
            self._hide_blocks(q, keys)
        self.cap = cap
        self.maxima = maxima
        self.bias = None if bias is None else b.input(bias, values=self._masked(bias, bias_mask))
        if self.bias:
            self.options["bias"] = self.bias.tensor
            self.seen = self.seen & ~np.isneginf(self.bias.ref.value)
        self.slopes = None
        if alibi:  # the frontend makes them itself
            self.options["use_alibi_mask"] = True
            self.slopes = np.array([2.0 ** (-8.0 / q[1] * (h + 1)) for h in range(q[1])]).reshape(1, -1, 1, 1)
        self.sink = b.input((1, q[1], 1, 1), data_type=_T.FLOAT) if sink else None
        if sink:
            self.options["sink_token"] = self.sink.tensor
        self.keep = None
        if dropout:
            self._drop(dropout, (*q[:3], keys), dump)
        if custom_dropout:
            kept = b.rng.uniform(0, 1, (*q[:3], keys)) > 0.3
            mask = b.input(kept.shape, values=kept.astype(float))
            up = b.input((1, 1, 1, 1), data_type=_T.FLOAT, values=np.full((1, 1, 1, 1), 1 / 0.7))
            self.options["dropout"] = (mask.tensor, up.tensor)
            down = b.input((1, 1, 1, 1), data_type=_T.FLOAT, values=np.full((1, 1, 1, 1), 0.7))
            self.down = down.tensor
            self.keep = kept * up.ref.value

    def _masked(self, dims, mask):
        """Values of a bias, of which `mask` = (value, rows that have it for every key) stands in place of a third."""
        values = self.b.rng.uniform(-1.0, 1.0, dims)
        if mask is None:
            return values
        hidden = self.b.rng.uniform(0, 1, dims) < 0.33
        hidden[..., int(self.b.rng.integers(dims[3]))] = False
        hidden[:, :, list(mask[1])] = True
        lowest = {_T.HALF: -65504.0}.get(self.io, -3.38e38)
        return np.where(hidden, mask[0] if np.isinf(mask[0]) else max(mask[0], lowest), values)

    def _drop(self, probability, shape, dump):
        """What the library keeps: Bernoulli numbers of its Philox, by the place among the scores."""
        seed, offset = 123456, 7
        scalars = [self.b.input((1, 1, 1, 1), data_type=_T.INT64, values=np.full((1, 1, 1, 1), n)).tensor
                   for n in (seed, offset)]
        self.options["dropout"] = (probability, *scalars)
        places = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
        # The client says 1 - 0.1 in f64 and in f32: the same numbers must be kept.
        words = _philox(places >> np.uint64(1), seed, offset)  # of two places, half a word each
        kept = (words >> (places & np.uint64(1)) * np.uint64(16) & np.uint64(0xFFFF)) < np.float32(1 - probability) * 2.0**16
        self.keep = kept / (1 - probability)
        if dump:
            self.dump = self.b.graph.tensor(dim=list(shape), stride=list(packed(shape)), data_type=_T.FLOAT)
            self.options["rng_dump"] = self.dump
            self.b.output(self.b.node(self.dump, Ref(kept.astype(float), 0)), data_type=_T.FLOAT)

    def _offsets(self, dims, side):
        """Offsets of batches of B, H, S, D extents; `gap` rows are left free behind each, `shift` elements
        before the first."""
        row = dims[1] * dims[3]
        key = side, row
        if key not in self.offsets:
            ends = np.cumsum([self.shift] + [(n + self.gap) * row for n in self.lengths[side]])
            self.offsets[key] = self.b.input((len(ends), 1, 1, 1), data_type=_T.INT32,
                                             values=ends.reshape(-1, 1, 1, 1) // self.unit)
        return self.offsets[key]

    def _input(self, dims, layout, side, values=None):
        """Of q's side (0) or that of the keys."""
        if self.lengths is None:
            return self.b.input(dims, strides=layout, values=values, poisoned=self.poisoned[side])
        return self.b.ragged_input(dims, bshd(dims), self._offsets(dims, side), values=values, unit=self.unit)

    def _output(self, node, dims, side):
        if self.lengths is None:
            self.b.output(node, strides=self.o_strides)
        else:
            self.b.ragged_output(node, self._offsets(dims, side), strides=bshd(dims), unit=self.unit)

    def _mask(self, left, right, bottom_right, seq_q, seq_kv, shape, deprecated):
        if deprecated:
            self.options["use_causal_mask_bottom_right" if bottom_right else "use_causal_mask"] = True
            if left is not None:
                self.options["sliding_window_length"] = left
        else:
            if left is not None:
                self.options["diagonal_band_left_bound"] = left
            if right is not None:
                self.options["diagonal_band_right_bound"] = right
            if bottom_right:
                self.options["diagonal_alignment"] = cudnn.diagonal_alignment.BOTTOM_RIGHT
        if seq_kv is not None:
            self.options["use_padding_mask"] = True
            for side, name, lengths in (("q", "seq_len_q", seq_q), ("k", "seq_len_kv", seq_kv)):
                if side in self.cumulated:  # where each sequence begins, and the end of the last
                    name, lengths = "cu_" + name, np.cumsum([0, *lengths])
                values = np.array(lengths, np.float64).reshape(-1, 1, 1, 1)
                self.options[name] = self.b.input(values.shape, data_type=_T.INT32, values=values).tensor
            seq_q, seq_kv = np.array(seq_q), np.array(seq_kv)
        self.inside = np.arange(shape[1]) < (np.full((shape[0], 1), shape[1]) if seq_q is None else seq_q[:, None])
        self.seen = visible(shape, left, right, bottom_right, seq_q, seq_kv)

    def _hide_blocks(self, q, keys):
        """A bit for 128 queries and 128 keys: whether these see those."""
        b, h, queries, _ = q
        rows, columns = -(-queries // 128), -(-keys // 128)
        bits = self.b.rng.uniform(0, 1, (b, h, rows, columns)) < 0.6
        words = np.packbits(bits, axis=3, bitorder="little")
        self.options["block_mask"] = self.b.input(words.shape, data_type=_T.UINT8, values=words).tensor
        self.seen = self.seen & np.repeat(np.repeat(bits, 128, 2), 128, 3)[:, :, :queries, :keys]

    def _paged(self, name, dims, page, keys):
        """A container of pages in a random order; the reference sees them put together."""
        b, h, s, d = dims
        count = -(-s // page)
        order = self.b.rng.permutation(b * count + 2)[:b * count]
        container = self.b.input((b * count + 2, h, page, d))
        table = self.b.input((b, 1, count, 1), data_type=_T.INT32, values=order.reshape(b, 1, count, 1))
        self.options[f"paged_attention_{name}_table"] = table.tensor
        self.options["paged_attention_max_seq_len_kv"] = keys
        pages = container.ref.value[order].reshape(b, count, h, page, d).swapaxes(1, 2)
        return type(container)(container.tensor, Ref(pages.reshape(b, h, count * page, d)[:, :, :s]))

    # --- reference ------------------------------------------------------------------------------------------

    def _capped_product(self):
        heads = self.q.ref.shape[1]
        score = reference.matmul(self.q.ref, swapped(per_head(self.k.ref, heads)))
        score = reference.pointwise(lambda s: s * np.float32(self.scale), score)
        if self.cap:
            score = reference.pointwise(lambda s: self.cap * np.tanh(s / self.cap), score)
        return score

    def _score(self):
        score = self._capped_product()
        if self.bias:
            score = reference.pointwise(np.add, score, self.bias.ref)
        if self.slopes is not None:
            distance = np.arange(score.shape[3])[None, :] - np.arange(score.shape[2])[:, None]
            score = reference.pointwise(np.add, score, Ref(self.slopes * distance, EPS32 * 4 * np.abs(distance)))
        return score

    def _softmax(self):
        """Weights, and the logarithm of each row's sum; a row that sees nothing has weights 0 and -inf.

        Rows from the length of q on see nothing and have no sink."""
        score = self._score()
        seen = np.broadcast_to(self.seen, score.shape)
        top = np.max(np.where(seen, score.value, -_INF), 3, keepdims=True)
        top_err = np.max(np.where(seen, score.err, 0), 3, keepdims=True)
        is_query = np.broadcast_to(self.inside[:, None, :, None], top.shape)
        if self.sink:
            top = np.where(is_query, np.maximum(top, self.sink.ref.value), top)
        base = np.where(np.isinf(top), 0, top)
        weights = exp_where(Ref(score.value - base, score.err + top_err), seen)
        total = reference.REDUCTIONS["ADD"](weights, (3,))
        if self.sink:
            share = exp_where(Ref(self.sink.ref.value - base, top_err), is_query)
            total = reference.pointwise(np.add, total, share)
        empty = ~np.broadcast_to(self.seen, score.shape).any(3, keepdims=True)
        total = Ref(np.where(empty, 1, total.value), total.err)
        weights = reference.pointwise(np.divide, weights, total)
        log = reference.pointwise(lambda t: np.log(t) + base, total, cancelled=lambda t: np.abs(base) + 1)
        return weights, Ref(np.where(empty, -_INF, log.value), np.where(empty, 0, log.err + top_err))

    def _capped(self):
        """Scores are cap * tanh(score / cap) where the client's own functions say so; and the slope of it."""
        scalars = [self.b.scalar(value, 4).tensor for value in (1 / self.cap, self.cap)]
        kept = []

        def score(graph, s):
            kept.append(graph.tanh(graph.mul(s, scalars[0])))
            return graph.mul(kept[-1], scalars[1])

        def slope(graph, ds):
            return graph.sub(ds, graph.mul(ds, graph.mul(kept[-1], kept[-1])))

        return score, slope

    def forward(self, stats=True):
        b = self.b
        if self.cap:
            self.options["score_mod"] = self._capped()[0]
        rows = (*self.o_dims[:3], 1)
        if self.maxima:
            for name in ("score_max", "score_sum_exp"):
                self.options[name] = b.graph.tensor(dim=list(rows), stride=list(packed(rows)), data_type=_T.FLOAT)
        if self.log2:
            self.options["stats_use_log2"] = True
        o, logs = b.graph.sdpa(self.q.tensor, self.k.tensor, self.v.tensor, generate_stats=stats, **self.options)
        o.set_dim(list(self.o_dims)).set_stride(list(self.o_strides(self.o_dims)))
        weights, expected = self._softmax()
        if self.keep is not None:
            weights = reference.pointwise(np.multiply, weights, Ref(self.keep, 0))
        product = reference.matmul(rounded(weights, self.io), per_head(self.v.ref, self.q.ref.shape[1]))
        self._output(b.node(o, product), self.o_dims, 0)
        if stats:
            logarithms = expected
            if self.log2:
                logarithms = reference.pointwise(lambda log: log * np.log2(np.e), expected)
            b.output(b.node(logs, logarithms), data_type=_T.FLOAT)
        if self.maxima:
            score = self._score()
            largest = Ref(np.max(np.where(self.seen, score.value, -_INF), 3, keepdims=True), np.max(score.err))
            b.output(b.node(self.options["score_max"], largest), data_type=_T.FLOAT)
            total = reference.pointwise(lambda log, top: np.exp(log - top), expected, largest)
            b.output(b.node(self.options["score_sum_exp"], total), data_type=_T.FLOAT)

    def backward(self, dbias=False, deterministic=False):
        b = self.b
        heads = self.q.ref.shape[1]
        weights, logs = self._softmax()
        dropped = weights if self.keep is None else reference.pointwise(np.multiply, weights, Ref(self.keep, 0))
        v = per_head(self.v.ref, heads)
        o = self._input(self.o_dims, self.o_strides, 0, reference.matmul(dropped, v).value)
        grad = self._input(self.o_dims, self.o_strides, 0)
        stats = b.input(logs.value.shape, data_type=_T.FLOAT, values=logs.value, strides=self.stats_layout)
        if dbias:
            bias_grad = b.graph.tensor(dim=list(self.bias.ref.shape), stride=list(packed(self.bias.ref.shape)),
                                       data_type=self.io)
            self.options["dBias"] = bias_grad
        if self.sink:
            sink_grad = b.graph.tensor(dim=list(self.sink.ref.shape), stride=list(packed(self.sink.ref.shape)),
                                       data_type=_T.FLOAT)
            self.options["dSink_token"] = sink_grad
        if self.cap:
            self.options["score_mod"], self.options["score_mod_bprop"] = self._capped()
        if len(self.options.get("dropout", ())) == 2:
            self.options["dropout"] += (self.down,)
        results = b.graph.sdpa_backward(self.q.tensor, self.k.tensor, self.v.tensor, o.tensor, grad.tensor,
                                        stats.tensor, use_deterministic_algorithm=deterministic, **self.options)
        # The weights again, from the statistics that are stored.
        score = self._score()
        seen = np.broadcast_to(self.seen, score.shape)
        weights = exp_where(Ref(score.value - stats.ref.value, score.err), seen)
        inner = reference.REDUCTIONS["ADD"](reference.pointwise(np.multiply, grad.ref, o.ref), (3,))
        over = reference.matmul(grad.ref, swapped(v))
        dropped = weights
        if self.keep is not None:
            over = reference.pointwise(np.multiply, over, Ref(self.keep, 0))
            dropped = reference.pointwise(np.multiply, weights, Ref(self.keep, 0))
        ds = reference.pointwise(lambda w, d, i: w * (d - i), weights, over, inner,
                                 cancelled=lambda w, d, i: w * (np.abs(d) + np.abs(i)))
        of_product = ds  # the bias is added behind the client's function
        if self.cap:
            of_product = reference.pointwise(lambda g, s: g * (1 - (s / self.cap) ** 2), ds, self._capped_product(),
                                             cancelled=lambda g, s: np.abs(g))
        scaled = rounded(reference.pointwise(lambda s: s * np.float32(self.scale), of_product), self.io)
        k = per_head(self.k.ref, heads)
        expected = [reference.matmul(scaled, k),
                    _shared(rounded(reference.matmul(swapped(scaled), self.q.ref), self.io), self.k.ref.shape[1]),
                    _shared(rounded(reference.matmul(swapped(rounded(dropped, self.io)), grad.ref), self.io),
                            self.v.ref.shape[1])]
        for side, tensor, operand, ref in zip((0, 1, 1), results, (self.q, self.k, self.v), expected):
            tensor.set_dim(list(operand.ref.shape)).set_stride(list(self.o_strides(operand.ref.shape)))
            self._output(b.node(tensor, ref), operand.ref.shape, side)
        if self.sink:
            # The derivative, though the frontend spells its negative; 0 of rows that see nothing.
            share = reference.pointwise(lambda sink, log, d: np.where(np.isinf(log), 0, -np.exp(sink - log) * d),
                                        self.sink.ref, stats.ref, inner)
            b.output(b.node(sink_grad, reference.REDUCTIONS["ADD"](share, (0, 2))), data_type=_T.FLOAT)
        if dbias:
            axes = tuple(a for a, d in enumerate(self.bias.ref.shape) if d == 1 and ds.shape[a] > 1)
            summed = reference.REDUCTIONS["ADD"](rounded(ds, self.io), axes) if axes else ds
            b.output(b.node(bias_grad, summed))


# --- cases: name, options of Attention -----------------------------------------------------------------------

_LENGTHS = {"seq_q": (24, 7), "seq_kv": (13, 40)}
_BOTH = {
    "plain": {"scale": 1},
    "scaled": {},
    "bshd": {"layout": bshd},
    "scale_tensor": {"scale_tensor": True},
    "grouped": {"heads": 2},
    "grouped_bshd": {"heads": 2, "layout": bshd},
    "one_head_of_keys": {"heads": 1, "value_depth": 16},
    "causal": {"right": 0},
    "causal_bottom_right": {"right": 0, "bottom_right": True},
    "window": {"right": 0, "left": 6},
    "window_bottom_right": {"right": 0, "left": 9, "bottom_right": True},
    "window_both": {"right": 3, "left": 6},
    "causal_deprecated": {"right": 0, "deprecated": True},
    "window_deprecated": {"right": 0, "left": 6, "deprecated": True},
    "causal_bottom_right_deprecated": {"right": 0, "bottom_right": True, "deprecated": True},
    "capped": {"cap": 0.75, "scale": 0.4},
    "one_query": {"q": (3, 8, 1, 32), "keys": 33, "heads": 2},
    "lengths": _LENGTHS,
    "causal_lengths": {**_LENGTHS, "right": 0},
    "bias": {"bias": (1, 4, 24, 40)},
    "alibi": {"alibi": True, "right": 0},
    "custom_dropout": {"custom_dropout": True},
    "dropout": {"dropout": 0.25},
    "dropout_of_a_tenth": {"dropout": 0.1, "right": 0},
    "dropout_everything": {**_LENGTHS, "right": 0, "alibi": True, "bias": (1, 4, 24, 40), "heads": 2, "dropout": 0.1},
    "dropout_causal_lengths": {**_LENGTHS, "right": 0, "dropout": 0.5, "heads": 1},
    "ragged": {**_LENGTHS, "ragged": True},
    "ragged_grouped": {**_LENGTHS, "ragged": True, "heads": 2},
    "ragged_gaps_causal": {**_LENGTHS, "ragged": True, "gap": 2, "right": 0},
    "ragged_gaps_causal_grouped": {**_LENGTHS, "ragged": True, "gap": 2, "right": 0, "heads": 2},
    "everything": {**_LENGTHS, "right": 0, "alibi": True, "bias": (1, 4, 24, 40), "heads": 2},
}
_FORWARD = {
    "no_stats": {},
    "dropout_dump": {"dropout": 0.1, "dump": True},
    "odd_extents": {"q": (1, 3, 7, 24), "keys": 13, "value_depth": 8},
    "causal_bottom_right_lengths": {"seq_q": (11, 7), "seq_kv": (13, 40), "right": 0, "bottom_right": True},
    "causal_bottom_right_hides_rows": {"seq_q": (24, 20), "seq_kv": (13, 3), "right": 0, "bottom_right": True},
    "empty_sequences": {"seq_q": (24, 0), "seq_kv": (0, 40)},
    "sink": {"sink": True},
    "sink_causal_lengths": {**_LENGTHS, "right": 0, "sink": True},
    "maxima": {"maxima": True},
    "unified": {"implementation": "UNIFIED", "q": (2, 4, 24, 64)},
    "unified_scaled_grouped": {"implementation": "UNIFIED", "heads": 2, "scale_tensor": True},
    "one_query_lengths": {"q": (3, 8, 1, 32), "keys": 33, "heads": 2, "seq_q": (1, 1, 1), "seq_kv": (33, 1, 16)},
    "paged": {**_LENGTHS, "page": 8},
    "paged_causal": {**_LENGTHS, "page": 4, "heads": 2, "right": 0},
    "paged_one_query": {"q": (2, 4, 1, 32), "seq_q": (1, 1), "seq_kv": (37, 5), "page": 1},
}
_BACKWARD = {
    "dropout_dump": ({"dropout": 0.1, "dump": True}, {}),
    "dbias": ({"bias": (1, 4, 24, 40)}, {"dbias": True}),
    "dbias_of_batches": ({"bias": (2, 1, 24, 40), "right": 0}, {"dbias": True}),
    "deterministic": ({"right": 0}, {"deterministic": True}),
    "sink": ({"sink": True}, {}),
    "sink_causal_lengths": ({**_LENGTHS, "right": 0, "sink": True}, {}),
}


def add_cases(case):
    """Calls case(name, data type, build) for each."""

    def forward(options, stats):
        return lambda b: Attention(b, **options).forward(stats)

    def backward(options, arguments):
        return lambda b: Attention(b, **options).backward(**arguments)

    for io, suffix in ((_T.HALF, "fp16"), (_T.BFLOAT16, "bf16")):
        for name, options in {**_BOTH, **_FORWARD}.items():
            case(f"sdpa_{name}_{suffix}", io, forward(options, name not in ("no_stats", "maxima")))
        for name, options in _BOTH.items():
            case(f"sdpa_backward_{name}_{suffix}", io, backward(options, {}))
        for name, (options, arguments) in _BACKWARD.items():
            case(f"sdpa_backward_{name}_{suffix}", io, backward(options, arguments))
