"""The cases of operators.py that are about sequences: recurrent networks, the CTC loss, attention.

family -> function(torch) -> [Case]. Each is made so that PyTorch calls cuDNN on the GPU, or says that it does not;
on the CPU, in float64, the same functions are PyTorch's own.
"""
import itertools

from operator_case import Case

NARROW = ("float16", "bfloat16")


# ---- recurrent networks ----------------------------------------------------------------------------------------


def _network(torch, kind, sizes, options):
    """torch.nn's module of a kind; "tanh" and "relu" are RNNs."""
    inputs, hidden, layers = sizes
    maker = getattr(torch.nn, kind, torch.nn.RNN)
    return maker(inputs, hidden, layers, **({"nonlinearity": kind} if maker is torch.nn.RNN else {}), **options)


def _recurrent(torch, name, kind, sizes=(13, 17, 1), steps=9, batch=5, lengths=None, states=False, evaluate=False, flat=True, frozen="",
               amp=None, unbatched=False, stride=1, types=None, **options):
    """`lengths`: a packed sequence of them. `frozen`: "weights" or "inputs", of which no gradient is asked."""
    net = _network(torch, kind, sizes, options).double()
    directions = 2 if options.get("bidirectional") else 1
    shape = (batch, steps * stride) if options.get("batch_first") else (steps * stride, batch)
    x = torch.randn(*(shape[:1] if unbatched else shape), sizes[0], dtype=torch.float64)
    leaves = [x]
    if states:
        widths = [options.get("proj_size") or sizes[1]] + ([sizes[1]] if kind == "LSTM" else [])
        leaves += [torch.randn(directions * sizes[2], batch, width, dtype=torch.float64) for width in widths]
    count = len(leaves)
    names = [key for key, _ in net.named_parameters()]

    def run(*tensors):
        x, first, weights = tensors[0], tensors[1:count], tensors[count:]
        if x.is_cuda and not torch.backends.cudnn.is_acceptable(x):
            raise AssertionError("PyTorch would not call cuDNN")
        mine = _network(torch, kind, sizes, options).to(x.device, x.dtype)
        for key, weight in zip(names, weights):
            mine._parameters[key] = weight.detach() if frozen == "weights" else weight
        mine._flat_weights = [mine._parameters[key] for key in mine._flat_weights_names]
        if flat:
            mine.flatten_parameters()
        mine.train(not evaluate)
        with torch.set_grad_enabled(not evaluate), torch.autocast("cuda", dtype=getattr(torch, amp or "float16"),
                                                                  enabled=bool(amp) and x.is_cuda):
            return results(mine, x.detach() if frozen == "inputs" else x, first)

    def results(mine, x, first):
        first = (tuple(first) if kind == "LSTM" else first[0]) if first else None
        x = x[:, ::stride] if options.get("batch_first") else x[::stride]
        if lengths:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), options.get("batch_first", False), enforce_sorted=False)
        y, last = mine(x, first)
        if lengths:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, options.get("batch_first", False))
        return (y, *(last if isinstance(last, tuple) else (last,)))

    leaves += [weight.detach() for _, weight in net.named_parameters()]
    # PyTorch does not call cuDNN for recurrent networks of bfloat16, but under autocast.
    return Case(name, run, leaves, types=types or (("float32",) if amp else ("float64", "float32", "float16")),
                has_kinks=kind == "relu", rounds_to=amp)


def _of_kind(torch, kind):
    def case(name, **more):
        return _recurrent(torch, name, kind, **more)

    ragged = [9, 4, 7, 1, 4]
    cases = [
        case("plain"),
        case("one", sizes=(1, 1, 1), steps=1, batch=1),
        case("one_step", steps=1),
        case("long", sizes=(24, 64, 1), steps=70, batch=16),
        case("two_layers", sizes=(12, 20, 2)),
        case("three_layers_both_ways", sizes=(8, 33, 3), bidirectional=True),
        case("batch_first", batch_first=True),
        case("gaps", stride=2),
        case("no_bias", bias=False),
        case("states", states=True),
        case("states_both_ways", states=True, bidirectional=True, sizes=(13, 17, 2)),
        case("unbatched", unbatched=True),
        case("scattered_weights", flat=False, sizes=(12, 20, 2)),
        case("frozen_weights", frozen="weights"),
        case("frozen_inputs", frozen="inputs"),
        case("packed", lengths=ragged),
        case("packed_both_ways", lengths=ragged, bidirectional=True, sizes=(13, 17, 2), states=True),
        case("packed_batch_first", lengths=ragged, batch_first=True),
        case("packed_equal", lengths=[9] * 5),
        case("evaluated", evaluate=True, sizes=(12, 20, 2), dropout=0.5),
        case("evaluated_packed", evaluate=True, lengths=ragged, states=True, bidirectional=True),
        case("small_hidden", sizes=(64, 128, 1), steps=30, batch=8),
        case("wide", sizes=(128, 512, 1), steps=20, batch=32, types=("float32", "float16")),
        case("static", sizes=(256, 256, 1), steps=16, batch=64, types=("float16",)),
        case("amp_float16", amp="float16", sizes=(16, 32, 2), bidirectional=True),
        case("amp_bfloat16", amp="bfloat16", sizes=(16, 32, 2), lengths=ragged),
        case("amp_scattered", amp="float16", flat=False),
    ]
    if kind == "LSTM":
        cases += [
            case("projection", proj_size=7, states=True),
            case("projection_both_ways", proj_size=6, bidirectional=True, sizes=(13, 17, 2), lengths=ragged),
            case("amp_projection", proj_size=8, amp="float16", sizes=(16, 32, 2)),
        ]
    return cases


def dropout_between(torch):
    """A second layer that copies shows what was dropped. What it was must be what the gradients' kernel believes."""
    cases = []
    for rate, (steps, batch, width) in itertools.product((0.25, 0.7), ((20, 8, 32), (3, 130, 17))):
        def run(x, w, rate=rate, width=width):
            net = torch.nn.RNN(width, width, 2, nonlinearity="relu", dropout=rate).to(x.device, x.dtype)
            for key, value in {"weight_ih_l0": w, "weight_hh_l0": w * 0.1, "weight_ih_l1": torch.eye(width), "weight_hh_l1": torch.zeros(width, width),
                               "bias_ih_l0": torch.ones(width), "bias_hh_l0": torch.zeros(width), "bias_ih_l1": torch.zeros(width),
                               "bias_hh_l1": torch.zeros(width)}.items():
                net._parameters[key] = value.to(x.device, x.dtype)
            net._flat_weights = [net._parameters[key] for key in net._flat_weights_names]
            x = x.square() + 0.5  # all that the first layer says is above 0
            got, other = net(x)[0], net(x)[0]
            kept, h, rows = (got != 0).to(x.dtype), torch.zeros_like(x[0]), []
            for row in x:
                h = torch.relu(row @ w.T + 1 + h @ (w * 0.1).T)
                rows.append(h)
            share, twice = kept.mean().item(), ((other != 0) == (got != 0)).double().mean().item()
            most = 6 * (rate * (1 - rate) / kept.numel())**0.5
            if abs(share - (1 - rate)) > most:
                raise AssertionError(f"{share:.3f} are kept, not {1 - rate}")
            if twice > 1 - rate * (1 - rate):
                raise AssertionError(f"another call has {twice:.3f} of the same elements")
            return got - torch.stack(rows) * kept / (1 - rate) + x + w.sum()

        x, w = torch.randn(steps, batch, width, dtype=torch.float64), torch.rand(width, width, dtype=torch.float64) / width
        cases.append(Case(f"rate_{rate}_{steps}x{batch}x{width}", run, [x, w], exact=lambda x, w: x.square() + 0.5 + w.sum(), types=("float64", "float32", "float16"),
                          is_random=True))
    return cases


# ---- the CTC loss ----------------------------------------------------------------------------------------------


def ctc(torch):
    """By lengths on the host (lists) and on the device (tensors), where PyTorch asks cuDNN."""
    functional, cases = torch.nn.functional, []

    def add(name, steps, batch, classes, labels, lengths, on_device, reduction="mean", short=None, zero_infinity=False):
        labels = torch.tensor(labels, dtype=torch.int32)
        inputs = short or [steps] * batch

        def run(x):
            y, mine, wanted = torch.log_softmax(x, -1), labels, (inputs, lengths)
            if on_device:
                mine, wanted = labels.to(x.device), [torch.tensor(each, dtype=torch.int32, device=x.device) for each in wanted]
            if x.is_cuda and not torch._use_cudnn_ctc_loss(y, mine, *wanted, 0):
                raise AssertionError("PyTorch would not call cuDNN")
            return functional.ctc_loss(y, mine, *wanted, reduction=reduction, zero_infinity=zero_infinity)

        cases.append(Case(name, run, [torch.randn(steps, batch, classes, dtype=torch.float64) * 2], types=("float32",)))

    for on_device in (False, True):
        where = "device" if on_device else "host"
        add(f"plain_{where}", 12, 3, 7, [1, 2, 3, 4, 5, 6, 1, 1], [3, 2, 3], on_device)
        add(f"none_{where}", 12, 3, 7, [1, 2, 3, 4, 5, 6, 1, 1], [3, 2, 3], on_device, "none")
        add(f"sum_{where}", 30, 2, 40, [7, 7, 7, 7, 39, 2, 2], [4, 3], on_device, "sum")
        add(f"one_{where}", 1, 1, 2, [1], [1], on_device, "none")
        add(f"exact_fit_{where}", 7, 2, 5, [2, 2, 3, 3, 1, 2, 3, 4, 1], [5, 4], on_device, "none")
        generator = torch.Generator().manual_seed(3)
        lengths = torch.randint(1, 120, (16,), generator=generator).tolist()
        add(f"long_{where}", 260, 16, 64, torch.randint(1, 64, (sum(lengths),), generator=generator).tolist(), lengths, on_device)
        add(f"most_labels_{where}", 600, 2, 29, torch.randint(1, 29, (255 + 200,), generator=generator).tolist(), [255, 200], on_device, "none")
        add(f"zero_infinity_{where}", 12, 3, 7, [1, 2, 3, 4, 5, 6, 1, 1], [3, 2, 3], on_device, zero_infinity=True)
    add("short_inputs_device", 40, 4, 9, [1, 2, 3, 8, 8, 4, 5, 6, 7, 1], [3, 2, 4, 1], True, "none", short=[40, 17, 6, 1])
    return cases


# ---- attention -------------------------------------------------------------------------------------------------


def _masks(torch, kind, shape):
    """Of `shape`, which may have extents of 1. Every query sees its first keys, except where the kind says otherwise."""
    generator = torch.Generator().manual_seed(17)
    seen = torch.rand(shape, generator=generator) > 0.3
    seen[..., 0] = True
    if kind == "lengths":
        seen = (torch.arange(shape[-1]) < torch.linspace(1, shape[-1], shape[0]).long().view(-1, 1, 1, 1)).expand(shape)
    if kind == "hidden_rows":
        seen[..., ::3, :] = False
    if kind in ("bool", "lengths", "hidden_rows"):
        return seen.contiguous()
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "float":
        return values
    return values.masked_fill(~seen, -1e4 if kind == "lowest" else float("-inf"))


def _attention(torch, name, q=(2, 3, 64, 64), keys=None, heads=None, depth=None, mask=None, mask_shape=None, rows_first=False, **options):
    """`mask`: a kind of _masks. `rows_first`: tensors lie as batch, row, head, depth."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b, h, _, d = q
    kv = (b, heads or h, keys or q[2])
    shapes = [q, (*kv, d), (*kv, depth or d)]
    tensors = [torch.randn(b, s, n, e, dtype=torch.float64).transpose(1, 2) if rows_first else torch.randn(b, n, s, e, dtype=torch.float64)
               for b, n, s, e in shapes]
    mask = None if mask is None else _masks(torch, mask, mask_shape or (b, 1, q[2], kv[2]))

    def run(q, k, v, hidden=None):
        given = None if mask is None else mask.to(q.device)
        if hidden is not None:
            given = torch.where(given, 0.0, hidden)
        if given is not None and given.is_floating_point():
            given = given.to(q.dtype)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if q.is_cuda else SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=given, **options)

    # PyTorch hands cuDNN this number, not -inf, for False: rows that see no key are the mean of all values.
    is_bool = mask is not None and mask.dtype == torch.bool
    return Case(name, run, tensors, types=NARROW, keeps_layout=True, exact=(lambda q, k, v: run(q, k, v, -65504.0)) if is_bool else None)


def attention(torch):
    def case(name, **more):
        return _attention(torch, name, **more)

    cases = [
        case("plain"),
        case("causal", is_causal=True),
        case("one_row", q=(2, 3, 1, 64), keys=70),
        case("odd_lengths", q=(2, 3, 77, 64), keys=131),
        case("causal_odd", q=(2, 3, 333, 128), is_causal=True),
        case("scale", scale=0.3),
        case("rows_first", rows_first=True, q=(2, 4, 100, 64)),
        case("rows_first_causal", rows_first=True, is_causal=True, q=(3, 4, 128, 128)),
        case("many_heads", q=(2, 160, 130, 64), is_causal=True),
        case("groups", q=(2, 8, 96, 64), heads=2, enable_gqa=True),
        case("groups_causal", q=(2, 8, 200, 128), heads=2, enable_gqa=True, is_causal=True),
        case("one_group_masked", q=(2, 6, 96, 64), heads=1, enable_gqa=True, mask="bool"),
        case("one_row_groups", q=(2, 8, 1, 128), heads=2, keys=500, enable_gqa=True),
        *[case(f"depth_{depth}", q=(2, 2, 70, depth)) for depth in (32, 40, 96, 104)],
        case("values_narrower", q=(2, 2, 70, 96), depth=64),
    ]
    for kind in ("bool", "float", "infinite", "lowest", "lengths"):
        cases.append(case(f"mask_{kind}", mask=kind))
        cases.append(case(f"mask_{kind}_odd", q=(2, 3, 77, 64), keys=131, mask=kind))
        cases.append(case(f"mask_{kind}_of_all", q=(2, 4, 256, 128), mask=kind, mask_shape=(1, 1, 256, 256) if kind != "lengths" else None))
        cases.append(case(f"mask_{kind}_of_keys", q=(2, 4, 128, 64), keys=160, mask=kind, mask_shape=(2, 1, 1, 160)))
        cases.append(case(f"mask_{kind}_of_heads", q=(2, 4, 128, 64), keys=160, mask=kind, mask_shape=(2, 4, 128, 160)))
    cases.append(case("mask_hidden_rows", q=(2, 3, 96, 64), mask="hidden_rows"))
    return cases + dropped_attention(torch)


def dropped_attention(torch):
    """Values of one each show which weights were dropped; gradients must believe the same."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q, k, rate, causal):
        depth = k.shape[-2]
        ones = torch.eye(depth, device=q.device, dtype=q.dtype).expand(*k.shape[:2], depth, depth)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            got = torch.nn.functional.scaled_dot_product_attention(q, k, ones, dropout_p=rate, is_causal=causal)
        exact = torch.nn.functional.softmax((q.double() @ k.double().transpose(-1, -2) / q.shape[-1]**0.5).masked_fill(
            torch.ones(q.shape[-2], depth, device=q.device, dtype=torch.bool).triu(1) if causal else torch.zeros((), device=q.device, dtype=torch.bool),
            float("-inf")), -1)
        large = exact > 1e-4
        kept = (got != 0) & large
        share = kept.sum().item() / large.sum().item()
        if abs(share - (1 - rate)) > 6 * (rate * (1 - rate) / large.sum().item())**0.5:
            raise AssertionError(f"{share:.3f} of the weights are kept, not {1 - rate}")
        return (got - torch.where(large, kept * exact / (1 - rate), got.double()) + q.double() @ k.double().transpose(-1, -2)).to(q.dtype)

    return [Case(f"dropout_{rate}{'_causal' if causal else ''}", lambda q, k, rate=rate, causal=causal: run(q, k, rate, causal),
                 [torch.randn(2, 4, rows, 64, dtype=torch.float64), torch.randn(2, 4, 64, 64, dtype=torch.float64)],
                 exact=lambda q, k: q @ k.transpose(-1, -2), types=NARROW, keeps_layout=True, is_random=True)
            for rate, causal, rows in ((0.1, False, 128), (0.5, False, 77), (0.3, True, 64))]


TOGETHER = [["lstm"], ["gru"], ["rnn_tanh", "ctc"], ["rnn_relu", "dropout_between"], ["attention"]]
FAMILIES = {
    "lstm": lambda torch: _of_kind(torch, "LSTM"),
    "gru": lambda torch: _of_kind(torch, "GRU"),
    "rnn_tanh": lambda torch: _of_kind(torch, "tanh"),
    "rnn_relu": lambda torch: _of_kind(torch, "relu"),
    "dropout_between": dropout_between,
    "ctc": ctc,
    "attention": attention,
}
