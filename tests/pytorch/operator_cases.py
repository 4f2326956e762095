"""The cases of operators.py: convolutions, batch normalisation and the rest of PyTorch that may call cuDNN.

family -> function(torch) -> [Case]. The geometries are those that PyTorch's own tests of these operators speak of:
all paddings and their modes, strides, dilation, groups and depthwise, empty batches and channels, tensors with gaps,
either memory format on either side, second derivatives, unbatched inputs, statistics with every kind of momentum.
"""
import itertools

import sequence_cases
from operator_case import Case


def _randn(torch, *shape):
    return torch.randn(shape, dtype=torch.float64)


def _filter(torch, *shape):
    """Of results about as large as the inputs."""
    taps = max(1, torch.Size(shape[1:]).numel())
    return torch.randn(shape, dtype=torch.float64) / taps**0.5


def _geometries(dims):
    """(name, batch and channels, extents, filter's channels out, its extents, groups, arguments) of convolutions."""
    spatial = {1: (19,), 2: (11, 9), 3: (6, 7, 5)}[dims]
    rows = [
        ("plain", (2, 8), spatial, 16, 3, 1, {}),
        ("one_tap", (2, 16), spatial, 8, 1, 1, {}),
        ("padded", (2, 8), spatial, 16, 3, 1, {"padding": 1}),
        ("strided", (3, 8), spatial, 16, 3, 1, {"padding": 1, "stride": 2}),
        ("one_tap_strided", (2, 16), spatial, 24, 1, 1, {"stride": 2}),
        ("dilated", (2, 8), spatial, 16, 2, 1, {"padding": 2, "dilation": 2}),
        ("strided_padded_dilated", (2, 4), spatial, 8, 3, 1, {"padding": 3, "stride": 2, "dilation": 2}),
        ("same", (2, 6), spatial, 4, 3, 1, {"padding": "same"}),
        ("same_of_even_filter", (2, 6), spatial, 4, 2, 1, {"padding": "same"}),
        ("valid", (2, 6), spatial, 4, 3, 1, {"padding": "valid"}),
        ("wide_padding", (2, 4), spatial, 4, 3, 1, {"padding": 4}),
        ("one_channel", (2, 1), spatial, 4, 3, 1, {"padding": 1}),
        ("odd_channels", (3, 5), spatial, 7, 3, 1, {"padding": 1}),
        ("groups", (2, 12), spatial, 24, 3, 3, {"padding": 1}),
        ("groups_strided", (2, 8), spatial, 4, 3, 2, {"stride": 2}),
        ("depthwise", (2, 8), spatial, 8, 3, 8, {"padding": 1}),
        ("depthwise_strided", (2, 8), spatial, 8, 3, 8, {"padding": 1, "stride": 2}),
        ("depthwise_dilated", (2, 8), spatial, 8, 3, 8, {"padding": 2, "dilation": 2}),
        ("depthwise_multiplied", (2, 4), spatial, 8, 3, 4, {"padding": 1}),
        ("batch_of_one", (1, 8), spatial, 16, 3, 1, {"padding": 1}),
        ("empty_batch", (0, 8), spatial, 16, 3, 1, {"padding": 1}),
        ("empty_batch_groups", (0, 8), spatial, 16, 3, 2, {"padding": 1}),
    ]
    if dims == 2:
        rows += [
            ("flat_filter", (2, 8), (11, 9), 8, (1, 5), 1, {"padding": (0, 2), "stride": (2, 1)}),
            ("uneven", (2, 8), (11, 13), 8, (3, 2), 1, {"padding": (2, 1), "stride": (1, 3), "dilation": (2, 1)}),
            ("filter_of_image", (2, 8), (7, 7), 16, 7, 1, {}),
            ("first_layer", (2, 3), (32, 32), 16, 7, 1, {"padding": 3, "stride": 2}),
            ("wide", (4, 64), (14, 14), 128, 3, 1, {"padding": 1}),
            ("many_images", (130, 8), (7, 7), 8, 3, 1, {"padding": 1}),
            ("long_rows", (1, 4), (3, 3000), 4, 3, 1, {"padding": 1}),
        ]
    return rows


def convolutions(torch, dims):
    function = getattr(torch.nn.functional, f"conv{dims}d")
    cases = []
    for name, (n, c), spatial, k, taps, groups, arguments in _geometries(dims):
        taps = taps if isinstance(taps, tuple) else (taps,) * dims
        x, w, b = _randn(torch, n, c, *spatial), _filter(torch, k, c // groups, *taps), _randn(torch, k)

        def convolve(x, w, b=None, arguments=arguments, groups=groups):
            return function(x, w, b, groups=groups, **arguments)

        cases.append(Case(name, convolve, [x, w, b], twice=n > 0))
        if name in ("plain", "groups", "depthwise"):
            cases.append(Case(name + "_without_bias", convolve, [x, w], twice=True))
            cases.append(Case(name + "_unbatched", convolve, [x[0], w, b]))
    return cases


def transposed(torch, dims):
    function = getattr(torch.nn.functional, f"conv_transpose{dims}d")
    spatial = {1: (9,), 2: (6, 7), 3: (4, 3, 5)}[dims]
    rows = [
        ("plain", (2, 8), 16, 3, 1, {}),
        ("padded", (2, 8), 16, 3, 1, {"padding": 1}),
        ("strided", (2, 8), 16, 3, 1, {"padding": 1, "stride": 2}),
        ("output_padding", (2, 8), 16, 3, 1, {"padding": 1, "stride": 2, "output_padding": 1}),
        ("twice_the_size", (2, 16), 8, 2, 1, {"stride": 2}),
        ("dilated", (2, 8), 4, 3, 1, {"padding": 2, "dilation": 2}),
        ("one_tap", (2, 8), 4, 1, 1, {}),
        ("one_channel", (2, 1), 1, 3, 1, {"stride": 2}),
        ("groups", (2, 8), 12, 3, 2, {"padding": 1, "stride": 2}),
        ("depthwise", (2, 8), 8, 3, 8, {"padding": 1, "stride": 2}),
        ("empty_batch", (0, 8), 16, 3, 1, {"padding": 1}),
    ]
    cases = []
    for name, (n, c), k, taps, groups, arguments in rows:
        x, w = _randn(torch, n, c, *spatial), _filter(torch, c, k // groups, *(taps,) * dims)

        def convolve(x, w, b=None, arguments=arguments, groups=groups):
            return function(x, w, b, groups=groups, **arguments)

        cases.append(Case(name, convolve, [x, w, _randn(torch, k)], twice=n > 0))
    return cases


def layouts(torch):
    """Tensors with gaps and either memory format, on either side of a convolution."""
    functional, last = torch.nn.functional, torch.channels_last
    x, w, b = _randn(torch, 3, 8, 12, 10), _filter(torch, 16, 8, 3, 3), _randn(torch, 16)

    def case(name, function, *inputs, **more):
        return Case(name, function, [*inputs] or [x, w, b], twice=True, **more)

    def convolve(x, w, b=None, **arguments):
        return functional.conv2d(x, w, b, padding=1, **arguments)

    cases = [
        case("input_last", lambda x, w, b: convolve(x.contiguous(memory_format=last), w, b)),
        case("filter_last", lambda x, w, b: convolve(x, w.contiguous(memory_format=last), b)),
        case("both_last", lambda x, w, b: convolve(x.contiguous(memory_format=last), w.contiguous(memory_format=last), b)),
        case("output_last", lambda x, w, b: convolve(x, w, b).contiguous(memory_format=last) * 2),
        case("transposed_images", lambda x, w, b: convolve(x.transpose(2, 3), w, b)),
        case("every_other_pixel", lambda x, w, b: convolve(x[:, :, ::2, ::2], w, b)),
        case("part_of_channels", lambda x, w, b: convolve(x[:, 2:6], w[:, 2:6], b)),
        case("part_of_rows", lambda x, w, b: convolve(x[:, :, 1:, 3:], w, b)),
        case("odd_address", lambda x, w, b: convolve(x.flatten()[1:1 + 2 * 8 * 12 * 10].view(2, 8, 12, 10), w, b)),
        case("flipped", lambda x, w, b: convolve(x.flip(3), w.flip(2, 3), b)),
        case("one_image_for_all", lambda x, w, b: convolve(x[:1].expand(4, -1, -1, -1), w, b)),
        case("one_filter_for_all", lambda x, w, b: convolve(x, w[:1].expand(6, -1, -1, -1), b[:6])),
        case("one_tap_for_all", lambda x, w, b: convolve(x, w[:, :, :1, :1].expand(-1, -1, 3, 3), b)),
        case("transposed_filter", lambda x, w: convolve(x, w.transpose(0, 1)), x, _filter(torch, 8, 16, 3, 3)),
        case("groups_last", lambda x, w: convolve(x.contiguous(memory_format=last), w, groups=2), x, _filter(torch, 16, 4, 3, 3)),
        case("depthwise_last", lambda x, w: convolve(x.contiguous(memory_format=last), w, groups=8), x, _filter(torch, 8, 1, 3, 3)),
        case("transposed_last", lambda x, w: functional.conv_transpose2d(x.contiguous(memory_format=last), w, stride=2),
             x, _filter(torch, 8, 4, 3, 3)),
        case("one_pixel_last", lambda x, w: functional.conv2d(x.contiguous(memory_format=last), w), x[:, :, :1, :1],
             _filter(torch, 4, 8, 1, 1)),
        case("one_channel_last", lambda x, w: convolve(x[:, :1].contiguous(memory_format=last), w), x, _filter(torch, 4, 1, 3, 3)),
        case("shared_filter", lambda x, w: convolve(convolve(x, w), w), x, _filter(torch, 8, 8, 3, 3)),
        case("sum_of_two", lambda x, w, b: convolve(x, w, b) + convolve(x * x, w, b)),
    ]
    x3, w3 = _randn(torch, 2, 4, 5, 6, 7), _filter(torch, 8, 4, 3, 3, 3)
    last3 = torch.channels_last_3d
    cases += [
        case("volumes_last", lambda x, w: functional.conv3d(x.contiguous(memory_format=last3), w, padding=1), x3, w3),
        case("volumes_transposed", lambda x, w: functional.conv3d(x.transpose(2, 4), w, padding=1), x3, w3),
    ]
    return cases


def modules(torch):
    """torch.nn's modules, whose padding modes are copies before the convolution."""
    cases = []
    for dims, mode in itertools.product((1, 2, 3), ("zeros", "reflect", "replicate", "circular")):
        module = getattr(torch.nn, f"Conv{dims}d")(4, 6, 3, padding=2, stride=2, padding_mode=mode, dtype=torch.float64)
        x = _randn(torch, 2, 4, *(9, 8, 7)[:dims])

        def call(x, w, b, module=module):
            return torch.func.functional_call(module, {"weight": w, "bias": b}, (x,))

        cases.append(Case(f"conv{dims}d_{mode}", call, [x, module.weight.detach(), module.bias.detach()], twice=True))
    for size in ((13, 13), (14, 13)):
        module = torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, dtype=torch.float64)

        def up(x, w, b, module=module, size=size):
            return torch.nn.functional.conv_transpose2d(x, w, b, stride=2, padding=1,
                                                        output_padding=module._output_padding(x, list(size), (2, 2), (1, 1), (3, 3), 2))

        cases.append(Case(f"conv_transpose2d_to_{size[0]}x{size[1]}", up,
                          [_randn(torch, 2, 4, 7, 7), module.weight.detach(), module.bias.detach()]))
    return cases


def fused(torch):
    """cuDNN's convolutions with bias, addition and relu in one call, which the JIT's fusions make."""
    functional, cases = torch.nn.functional, []
    for name, c, groups, stride, dilation in (("plain", 8, 1, 1, 1), ("strided", 8, 1, 2, 1), ("groups", 8, 4, 1, 1), ("dilated", 4, 1, 1, 2)):
        x, w, b = _randn(torch, 2, c, 10, 9), _filter(torch, 16, c // groups, 3, 3), _randn(torch, 16)
        arguments = [[stride] * 2, [1, 1], [dilation] * 2, groups]
        exact = functional.conv2d(x, w, b, *arguments)
        z = torch.randn_like(exact)
        types = ("float32", "float16", "bfloat16")
        cases.append(Case(f"relu_{name}", lambda x, w, b, a=arguments: torch.cudnn_convolution_relu(x, w, b, *a).detach(), [x, w, b],
                          exact=lambda x, w, b, a=arguments: functional.conv2d(x, w, b, *a).relu(), types=types))
        cases.append(Case(f"add_relu_{name}", lambda x, w, z, b, a=arguments: torch.cudnn_convolution_add_relu(x, w, z, 0.5, b, *a).detach(),
                          [x, w, z, b], exact=lambda x, w, z, b, a=arguments: (functional.conv2d(x, w, b, *a) + 0.5 * z).relu(), types=types))
    return cases


def _norm_inputs(torch, shape):
    c = shape[1]
    return [_randn(torch, *shape) * 2 + 1, torch.rand(c, dtype=torch.float64) + 0.5, _randn(torch, c)]


def batch_norm(torch):
    functional = torch.nn.functional
    shapes = {"2d": (4, 6, 9, 7), "1d": (8, 5, 11), "rows": (16, 10), "3d": (2, 4, 3, 5, 6), "one_image": (1, 8, 6, 6), "one_channel": (5, 1, 8, 8),
              "many_channels": (3, 1000, 4, 4), "large_images": (4, 16, 70, 64), "many_images": (300, 8, 3, 3)}
    cases = []

    def add(name, shape, function, **more):
        cases.append(Case(name, function, _norm_inputs(torch, shape), keeps_float32=(1, 2), **more))

    for name, shape in shapes.items():
        c = shape[1]
        mean, variance = _randn(torch, c), torch.rand(c, dtype=torch.float64) + 0.5

        def statistics(x, mean=mean, variance=variance):
            kind = torch.float64 if x.dtype == torch.float64 else torch.float32
            return mean.to(x.device, kind, copy=True), variance.to(x.device, kind, copy=True)

        def train(x, w, b, statistics=statistics):
            mean, variance = statistics(x)
            return functional.batch_norm(x, mean, variance, w, b, True, 0.3, 1e-3), mean, variance

        def evaluate(x, w, b, statistics=statistics):
            return functional.batch_norm(x, *statistics(x), w, b, False, 0.3, 1e-3)

        add(f"train_{name}", shape, train, twice=True)
        add(f"eval_{name}", shape, evaluate, twice=True)
    shape = shapes["2d"]
    last = torch.channels_last
    add("no_statistics", shape, lambda x, w, b: functional.batch_norm(x, None, None, w, b, True))
    add("no_scale", shape, lambda x, w, b: functional.batch_norm(x, None, None, None, None, True))
    add("channels_last", shape, lambda x, w, b: functional.batch_norm(x.contiguous(memory_format=last), None, None, w, b, True), twice=True)
    add("gaps", shape, lambda x, w, b: functional.batch_norm(x[:, :, ::2, 1:], None, None, w, b, True))
    add("transposed", shape, lambda x, w, b: functional.batch_norm(x.transpose(2, 3), None, None, w, b, True))
    add("far_from_zero", shape, lambda x, w, b: functional.batch_norm(x + 100, None, None, w, b, True), types=("float64", "float32"))
    add("large_epsilon", shape, lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, 0.1, 1.0))
    cases += [_module_norm(torch, momentum, affine, tracks)
              for momentum, affine, tracks in itertools.product((None, 0.0, 0.1, 1.0), (True, False), (True, False))]
    return cases


def _module_norm(torch, momentum, affine, tracks):
    """Three steps of a module, then one in evaluation; statistics as they are then."""

    def run(x, w, b):
        module = torch.nn.BatchNorm2d(w.numel(), momentum=momentum, affine=affine, track_running_stats=tracks).to(x.device, w.dtype)
        parameters = {"weight": w, "bias": b} if affine else {}
        results = [torch.func.functional_call(module, parameters, (x * (i + 1) + i,)) for i in range(3)]
        module.eval()
        results.append(torch.func.functional_call(module, parameters, (x,)))
        return (*results, *([module.running_mean, module.running_var] if tracks else []))

    name = f"momentum_{momentum}{'' if affine else '_not_affine'}{'' if tracks else '_untracked'}"
    return Case(name, run, _norm_inputs(torch, (4, 6, 5, 7)), keeps_float32=(1, 2))


def other(torch):
    """Instance normalisation, which is batch normalisation of another shape; samplers of images."""
    functional = torch.nn.functional
    cases = [Case("instance_norm", lambda x, w, b: functional.instance_norm(x, None, None, w, b, True), _norm_inputs(torch, (3, 5, 8, 9)),
                  keeps_float32=(1, 2)),
             Case("instance_norm_3d", lambda x: functional.instance_norm(x), [_randn(torch, 2, 3, 4, 5, 6)])]
    for mode, corners in itertools.product(("zeros", "border", "reflection"), (True, False)):
        cases.append(Case(f"grid_sample_{mode}{'_corners' if corners else ''}",
                          lambda x, grid, mode=mode, corners=corners: functional.grid_sample(x, grid, "bilinear", mode, corners),
                          [_randn(torch, 2, 4, 7, 6), torch.rand(2, 5, 8, 2, dtype=torch.float64) * 2.4 - 1.2], types=("float64", "float32")))
    theta = _randn(torch, 3, 2, 3)
    cases.append(Case("affine_grid", lambda theta: functional.affine_grid(theta, [3, 2, 6, 5], align_corners=True), [theta],
                      types=("float64", "float32")))
    cases.append(Case("affine_grid_generator", lambda theta: torch.cudnn_affine_grid_generator(theta, 3, 2, 6, 5), [theta],
                      exact=lambda theta: functional.affine_grid(theta, [3, 2, 6, 5], align_corners=True), types=("float64", "float32")))
    return cases


def pooling(torch):
    """PyTorch pools by kernels of its own; beside convolutions all the same."""
    functional = torch.nn.functional
    x, w = _randn(torch, 2, 4, 12, 11), _filter(torch, 8, 4, 3, 3)
    pools = {"max": lambda y: functional.max_pool2d(y, 3, 2, 1), "average": lambda y: functional.avg_pool2d(y, 3, 2, 1),
             "ceil": lambda y: functional.max_pool2d(y, 2, 2, ceil_mode=True), "adaptive_max": lambda y: functional.adaptive_max_pool2d(y, (3, 4)),
             "adaptive_average": lambda y: functional.adaptive_avg_pool2d(y, (3, 4)), "norm": lambda y: functional.lp_pool2d(y.relu() + 1, 2, 3)}
    return [Case(name, lambda x, w, pool=pool: pool(functional.conv2d(x, w, padding=1)), [x, w]) for name, pool in pools.items()]


def samples(torch, names):
    """What PyTorch's own tests ask of an operator (torch.testing), with any further derivative that they take."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils import _pytree

    cases = []
    for op in op_db:
        if op.name not in names or op.variant_test_name:
            continue
        for i, sample in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=True)):
            leaves, form = _pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            places = [j for j, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 and leaf.requires_grad]
            if not places:
                continue

            def call(*tensors, op=op, leaves=leaves, form=form, places=places):
                # Tensors that are not differentiated (running statistics) may be written to.
                full = [leaf.detach().clone().to(tensors[0].device, tensors[0].dtype if leaf.is_floating_point() else leaf.dtype)
                        if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
                for place, tensor in zip(places, tensors):
                    full[place] = tensor
                first, args, kwargs = _pytree.tree_unflatten(full, form)
                return op.op(first, *args, **kwargs)

            cases.append(Case(f"{op.name.split('.')[-1]}_{i}", call, [leaves[j].detach() for j in places], twice=op.supports_gradgrad,
                              types=("float64", "float32")))
    return cases


# Families that one process has: about as much to compile as each other.
TOGETHER = [["conv1d", "conv2d"], ["conv3d", "fused", "pooling"], ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"],
            ["layouts", "op_db_conv"], ["batch_norm", "op_db_norm", "other", "modules"], *sequence_cases.TOGETHER]
FAMILIES = {
    "conv1d": lambda torch: convolutions(torch, 1),
    "conv2d": lambda torch: convolutions(torch, 2),
    "conv3d": lambda torch: convolutions(torch, 3),
    "conv_transpose1d": lambda torch: transposed(torch, 1),
    "conv_transpose2d": lambda torch: transposed(torch, 2),
    "conv_transpose3d": lambda torch: transposed(torch, 3),
    "layouts": layouts,
    "modules": modules,
    "fused": fused,
    "batch_norm": batch_norm,
    "other": other,
    "pooling": pooling,
    "op_db_conv": lambda torch: samples(torch, [f"nn.functional.conv{t}{d}d" for t in ("", "_transpose") for d in (1, 2, 3)]),
    "op_db_norm": lambda torch: samples(torch, ["nn.functional.batch_norm", "nn.functional.instance_norm"]),
    **sequence_cases.FAMILIES,
}
