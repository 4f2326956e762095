"""A problem of the corpus as a graph, in both of Kiln's texts: the graph text (docs/text_language.md) and a line of a
case file (tests/support/cases.h). Called by graphs.py; tests/bench/corpus:texts_test holds one text against the other.
"""
import dataclasses
import math

STORED = {"tf32": "f32", "fp8": "e4m3"}  # data types of operands in memory


@dataclasses.dataclass
class Tensor:
    name: str
    dtype: str
    dims: tuple
    layout: str = "row"  # row, col, nhwc, pN…, sA.B…: cases.h
    is_virtual: bool = False
    value: str = ""  # by value
    fill: str = ""  # of a case: what its data are

    def strides(self):
        return strides_of(self.dims, self.layout)


@dataclasses.dataclass
class Node:
    operation: str  # as cases have it
    inputs: list  # of tensors, None where absent
    outputs: list
    attributes: dict


def strides_of(dims, layout):
    if layout.startswith("s"):
        return tuple(int(stride) for stride in layout[1:].split("."))
    rank = len(dims)
    order = {"row": list(range(rank)), "col": list(range(rank - 2)) + [rank - 1, rank - 2],
             "nhwc": [0] + list(range(2, rank)) + [1]}.get(layout) or [int(digit) for digit in layout[1:]]
    strides, step = [0] * rank, 1
    for dim in reversed(order):
        strides[dim] = step
        step *= dims[dim]
    return tuple(strides)


class Builder:
    """Tensors in the order of their first mention, and nodes."""

    def __init__(self):
        self.tensors, self.nodes = [], []

    def tensor(self, name, dtype, dims, layout="row", **more):
        tensor = Tensor(name, dtype, tuple(dims), layout, **more)
        self.tensors.append(tensor)
        return tensor

    def node(self, operation, inputs, outputs, **attributes):
        kept = {name: text for name, text in attributes.items() if text is not None}
        self.nodes.append(Node(operation, inputs, outputs, kept))
        return outputs[0]

    def maps(self, operation, inputs, name, like, **attributes):
        """A pointwise operation whose result is virtual f32 of the extents of `like`."""
        result = self.tensor(name, "f32", like.dims, like.layout, is_virtual=True)
        return self.node(operation, inputs, [result], **attributes)


# --- chains ----------------------------------------------------------------------------------------------------------
SIMPLE = {"relu": ("relu_fwd", {}), "relu6": ("relu_fwd", {"upper": "6"}), "silu": ("swish_fwd", {}),
          "sigmoid": ("sigmoid_fwd", {}), "tanh": ("tanh_fwd", {}), "gelu": ("gelu_fwd", {}),
          "gelu_tanh": ("gelu_approx_tanh_fwd", {})}


class Chain:
    """Operations behind a contraction, one of which writes the result."""

    def __init__(self, builder, first, result):
        self.builder, self.at, self.result, self.count = builder, first, result, 0

    def step(self, operation, others=(), **attributes):
        self.count += 1
        self.at = self.builder.maps(operation, [self.at, *others], f"t{self.count}", self.result, **attributes)

    def other(self, dims, dtype, name, layout="row", **more):
        return self.builder.tensor(f"{name}{self.count}", dtype, dims, layout, **more)

    def scalar(self, value):
        return self.other((1,) * len(self.result.dims), "f32", "k", value=value)

    def hardswish(self):
        x = self.at
        self.step("add", [self.scalar("3")])
        self.step("relu_fwd", upper="6")
        self.step("mul", [x])
        self.step("mul", [self.scalar("0.16666667")])

    def word(self, word, channel):
        dims, layout, dtype = self.result.dims, self.result.layout, self.result.dtype
        name, _, number = word.partition(":")
        if name == "bias":
            ones = [1] * len(dims)
            ones[channel] = dims[channel]
            self.step("add", [self.other(ones, dtype, "bias", "nhwc" if layout == "nhwc" else "row")])
        elif name in ("add", "mul"):
            self.step(name, [self.other(dims, dtype, "other", layout)])
        elif name == "descale":
            for _ in range(2):
                self.step("mul", [self.other((1,) * len(dims), "f32", "scale", fill="pos")])
        elif name == "hardswish":
            self.hardswish()
        elif name == "leaky_relu":
            self.step("relu_fwd", slope=number)
        else:
            operation, attributes = SIMPLE[name]
            self.step(operation, **attributes)

    def finish(self):
        """The last operation writes the result itself."""
        self.builder.tensors.remove(self.at)
        self.builder.tensors.append(self.result)
        self.builder.nodes[-1].outputs = [self.result]


def add_chain(builder, problem, product, result, channel):
    """The chain of a fused problem behind `product`, which is virtual; or nothing."""
    chain = Chain(builder, product, result)
    for word in problem.attribute("chain").split(","):
        chain.word(word, channel)
    chain.finish()


# --- kinds -----------------------------------------------------------------------------------------------------------
def list_of(text, rank, default):
    values = [int(value) for value in (text or str(default)).split(",")]
    return values * rank if len(values) == 1 else values


def convolved(problem):
    """Extents of y, which x and w determine."""
    x, w = problem.extents("x"), problem.extents("w")
    rank = len(x) - 2
    pad, stride, dilation = (list_of(problem.attribute(name), rank, default)
                             for name, default in (("pad", 0), ("stride", 1), ("dilation", 1)))
    return (x[0], w[0]) + tuple((x[d + 2] + 2 * pad[d] - dilation[d] * (w[d + 2] - 1) - 1) // stride[d] + 1
                                for d in range(rank))


def geometry(problem):
    return {name: problem.attribute(name) for name in ("pad", "stride", "dilation")}


def build_convolution(b, problem):
    dtype, layout = STORED.get(problem.dtype, problem.dtype), problem.layout
    dims = {"x": problem.extents("x"), "w": problem.extents("w"), "y": convolved(problem)}
    names = {"conv_fprop": ("x", "w", "y"), "conv_fused": ("x", "w", "y"), "conv_dgrad": ("y", "w", "x"),
             "conv_wgrad": ("x", "y", "w")}[problem.kind]
    spelled = {"conv_dgrad": ("dy", "w", "dx"), "conv_wgrad": ("x", "dy", "dw")}.get(problem.kind, names)
    first, second, result = (Tensor(name, dtype, dims[part], layout) for name, part in zip(spelled, names))
    b.tensors += [first, second]
    if problem.kind != "conv_fused":
        b.tensors.append(result)
        b.node(problem.kind, [first, second], [result], **geometry(problem))
        return
    product = b.maps("conv_fprop", [first, second], "t", result, **geometry(problem))
    add_chain(b, problem, product, result, 1)


def build_matmul(b, problem):
    dtype = STORED.get(problem.dtype, problem.dtype)
    (a_dims, b_dims), layouts = (problem.extents("a"), problem.extents("b")), problem.layout.split(",")
    left, right = b.tensor("a", dtype, a_dims, layouts[0]), b.tensor("b", dtype, b_dims, layouts[1])
    batch = max(a_dims[0], b_dims[0])
    result = Tensor("c", "bf16" if problem.dtype == "fp8" else dtype, (batch, a_dims[1], b_dims[2]))
    if problem.kind == "matmul":
        b.tensors.append(result)
        b.node("matmul", [left, right], [result])
        return
    product = b.maps("matmul", [left, right], "t", result)
    add_chain(b, problem, product, result, -1)


def build_moe(b, problem):
    dtype, layouts = STORED.get(problem.dtype, problem.dtype), problem.layout.split(",")
    t, w = problem.extents("t"), problem.extents("w")
    tokens, weights = b.tensor("t", dtype, t, layouts[0]), b.tensor("w", dtype, w, layouts[1])
    offsets = b.tensor("o", "i32", (w[0], 1, 1), fill="rising")
    b.node("moe", [tokens, weights, offsets], [b.tensor("y", dtype, (1, t[1], w[2]))])


def build_attention(b, problem):
    (q, k, v), layouts = (problem.extents(n) for n in "qkv"), problem.layout.split(",")
    dtype = problem.dtype
    inputs = [b.tensor(n, dtype, dims, layout) for n, dims, layout in zip("qkv", (q, k, v), layouts)]
    result, stats = q[:3] + v[3:], q[:3] + (1,)
    if problem.kind == "sdpa_bwd":
        inputs += [b.tensor("o", dtype, result, "p0213"), b.tensor("g", dtype, result, "p0213"),
                   b.tensor("m", "f32", stats)]
    inputs.append(b.tensor("s", "f32", (1, 1, 1, 1), value=f"{1 / math.sqrt(q[3]):.6g}"))
    if problem.attribute("bias"):
        bias = tuple(int(extent) for extent in problem.attribute("bias").split("x"))
        absent = 2 if problem.kind == "sdpa_bwd" else 4
        inputs += [None] * absent + [b.tensor("bias", dtype, bias)]
    if problem.kind == "sdpa_bwd":
        outputs = [b.tensor(f"d{n}", dtype, dims) for n, dims in zip("qkv", (q, k, v))]
    else:
        outputs = [b.tensor("o", dtype, result, "p0213")]
        outputs += [b.tensor("m", "f32", stats)] if problem.attribute("stats") else []
    b.node(problem.kind, inputs, outputs, right="0" if problem.attribute("causal") else None)


def norm_extents(problem):
    """Extents of the weights and of the statistics."""
    x, mode = problem.extents("x"), problem.attribute("mode")
    if mode in ("layer", "rms"):
        return (1, x[1]), (x[0], 1)
    weights = (1, x[1]) + (1,) * (len(x) - 2)
    if mode == "group":
        return weights, (x[0], int(problem.attribute("groups"))) + (1,) * (len(x) - 2)
    return weights, weights


def build_norm(b, problem):
    x_dims, mode, dtype, layout = problem.extents("x"), problem.attribute("mode"), problem.dtype, problem.layout
    weights, statistics = norm_extents(problem)
    has_mean, has_bias, is_batch = mode != "rms", mode != "rms", mode == "batch"
    x = b.tensor("x", dtype, x_dims, layout)
    if problem.kind == "norm_bwd":
        dy = b.tensor("dy", dtype, x_dims, layout)
        mean = b.tensor("m", "f32", statistics) if has_mean else None
        inputs = [x, dy, mean, b.tensor("v", "f32", statistics, fill="pos"), b.tensor("scale", "f32", weights)]
        outputs = [b.tensor("dx", dtype, x_dims, layout), b.tensor("ds", "f32", weights)]
        outputs += [b.tensor("db", "f32", weights)] if has_bias else []
        b.node("norm_backward", inputs, outputs, mode=mode)
        return
    inference = problem.attribute("inference")
    given = [b.tensor("m", "f32", statistics), b.tensor("v", "f32", statistics, fill="pos")] \
        if inference and is_batch else [None, None]
    inputs = [x, *given, b.tensor("scale", "f32", weights), b.tensor("bias", "f32", weights) if has_bias else None]
    ones = (1,) * len(x_dims)
    if not (inference and is_batch):
        inputs.append(b.tensor("eps", "f32", ones, value="1e-05"))
    if is_batch and not inference:
        inputs += [b.tensor("f", "f32", ones, value="0.1"), b.tensor("rm", "f32", weights),
                   b.tensor("rv", "f32", weights, fill="pos")]
    outputs = [b.tensor("y", dtype, x_dims, layout)]
    if not inference:
        outputs += [b.tensor("mean", "f32", statistics) if has_mean else None, b.tensor("inv", "f32", statistics)]
        outputs += [b.tensor("nm", "f32", weights), b.tensor("nv", "f32", weights)] if is_batch else []
    b.node("norm_forward", inputs, outputs, mode=mode, inference=inference)


def build_window(b, problem):
    mode, dtype, layout = problem.attribute("mode"), problem.dtype, problem.layout
    x_dims, y_dims = problem.extents("x"), problem.extents("y")
    options = {name: problem.attribute(name) for name in ("window", "stride", "pad", "post")}
    if mode == "nearest":
        options = {"unit": "2", "window": "2", "stride": "1", "pad": "1", "padding": "edge"}
    elif mode == "bilinear":
        options = {"unit": "2", "window": "4", "stride": "1", "pad": "1", "post": "2", "padding": "edge"}
    elif mode == "maxpool":
        options["padding"] = "neg_inf"
    if problem.kind == "resample_fwd":
        x = b.tensor("x", dtype, x_dims, layout)
        outputs = [b.tensor("y", dtype, y_dims, layout)]
        outputs += [b.tensor("i", "i8", y_dims, layout)] if problem.attribute("index") else []
        b.node(mode, [x], outputs, **options)
        return
    inputs = [b.tensor("dy", dtype, y_dims, layout)]
    if mode == "maxpool":
        inputs.append(b.tensor("i", "i8", y_dims, layout, fill="zeros"))
    b.node(f"{mode}_bwd", inputs, [b.tensor("dx", dtype, x_dims, layout)], **options)


def build_softmax(b, problem):
    dims = problem.extents("x")
    row = Tensor("row", "f32", (dims[0], 1))
    if problem.kind == "softmax_bwd":
        dy, y = b.tensor("dy", problem.dtype, dims), b.tensor("y", problem.dtype, dims)
        scaled = b.maps("mul", [dy, y], "p", dy)
        total = b.maps("reduce_add", [scaled], "s", row)
        centred = b.maps("sub", [dy, total], "d", dy)
        b.node("mul", [centred, y], [b.tensor("dx", problem.dtype, dims)])
        return
    x = b.tensor("x", problem.dtype, dims)
    most = b.maps("reduce_max", [x], "m", row)
    power = b.maps("exp", [b.maps("sub", [x, most], "d", x)], "e", x)
    total = b.maps("reduce_add", [power], "s", row)
    b.node("div", [power, total], [b.tensor("y", problem.dtype, dims)])


def build_reduction(b, problem):
    dims = list(problem.extents("x"))
    x = b.tensor("x", problem.dtype, dims, problem.layout)
    for axis in problem.attribute("axes").split(","):
        dims[int(axis)] = 1
    b.node(f"reduce_{problem.attribute('mode')}", [x], [b.tensor("y", problem.dtype, dims, problem.layout)])


BUILDERS = {"conv_fprop": build_convolution, "conv_dgrad": build_convolution, "conv_wgrad": build_convolution,
            "conv_fused": build_convolution, "matmul": build_matmul, "matmul_fused": build_matmul, "moe": build_moe,
            "sdpa_fwd": build_attention, "sdpa_bwd": build_attention, "norm_fwd": build_norm, "norm_bwd": build_norm,
            "resample_fwd": build_window, "resample_bwd": build_window, "softmax_fwd": build_softmax,
            "softmax_bwd": build_softmax, "reduction": build_reduction}


def build(problem):
    builder = Builder()
    BUILDERS[problem.kind](builder, problem)
    return builder


# --- the case line ---------------------------------------------------------------------------------------------------
def case_tensor(tensor, seen):
    if tensor is None:
        return "_"
    name = f"%{tensor.name}" if tensor.is_virtual else tensor.name
    if tensor.name in seen:
        return name
    seen.add(tensor.name)
    text = f"{name}:{tensor.dtype}[{','.join(map(str, tensor.dims))}]"
    text += f"@{tensor.layout}" if tensor.layout != "row" else ""
    text += f"={tensor.value}" if tensor.value else ""
    return text + (f"!{tensor.fill}" if tensor.fill else "")


def case_line(problem):
    """`name: operation(operands) -> results attributes; …`"""
    statements, seen = [], set()
    for node in build(problem).nodes:
        operands = ", ".join(case_tensor(tensor, seen) for tensor in node.inputs)
        results = ", ".join(case_tensor(tensor, seen) for tensor in node.outputs)
        attributes = "".join(f" {name}={text}" for name, text in node.attributes.items())
        statements.append(f"{node.operation}({operands}) -> {results}{attributes}")
    return f"{problem.name()}: {'; '.join(statements)}"


# --- the graph text --------------------------------------------------------------------------------------------------
NODES = {"maxpool": ("resample_fwd", "maxpool"), "avgpool": ("resample_fwd", "avgpool_include_padding"),
         "avgpool_exclude": ("resample_fwd", "avgpool_exclude_padding"), "nearest": ("resample_fwd", "nearest"),
         "bilinear": ("resample_fwd", "bilinear")}
PADDINGS = {"zero": "zero_pad", "neg_inf": "neg_inf_pad", "edge": "edge_val_pad"}


def bracketed(values):
    return f"[{','.join(map(str, values))}]"


def windows_text(attributes, rank, names):
    """Lists of spatial extents, one for each dim, with the graph's names; both paddings said."""
    attributes = dict(attributes)
    attributes["post"] = attributes.get("post", attributes.get("pad"))
    return "".join(f" {names[name]}={bracketed(list_of(attributes[name], rank, 0))}"
                   for name in names if attributes.get(name))


def node_text(node):
    """The operation and its attributes."""
    name, attributes = node.operation, node.attributes
    spatial_names = {"pad": "pre_padding", "post": "post_padding", "stride": "stride", "dilation": "dilation",
                     "window": "window", "unit": "unit"}
    rank = len(node.inputs[0].dims) - 2
    base = name.removesuffix("_bwd")
    if base in NODES:
        operation, mode = NODES[base]
        operation = "resample_bwd" if name.endswith("_bwd") else operation
        text = f" mode={mode} padding={PADDINGS[attributes.get('padding', 'zero')]}"
        text += " propagate_nan"
        return operation, text + windows_text(attributes, rank, spatial_names)
    if name.startswith("conv_"):
        return name, windows_text(attributes, rank, spatial_names)
    if name.startswith("reduce_"):
        return "reduction", f" mode={name.removeprefix('reduce_')}"
    if name == "moe":
        return "moe_grouped_matmul", ""
    if name.startswith(("norm_", "sdpa_", "matmul")):
        text = "".join(f" {key}={value}" for key, value in attributes.items() if key != "inference")
        return name, text + (" inference" if attributes.get("inference") else "")
    named = {"upper": "relu_upper", "slope": "relu_slope"}
    text = "".join(f" {named[key]}={value}" for key, value in attributes.items())
    return "pointwise", f" mode={name}{text} propagate_nan"


def graph_text(problem):
    """The problem as `kiln explain`, `tune` and `pack build` read it."""
    built = build(problem)
    lines, uid = [f"graph {problem.name()} {{"], 0
    for tensor in built.tensors:
        text = f"  tensor %{tensor.name}"
        if not tensor.is_virtual:
            uid += 1
            text += f" uid={uid}"
        text += f" {tensor.dtype} {bracketed(tensor.dims)} strides={bracketed(tensor.strides())}"
        text += " virtual" if tensor.is_virtual else ""
        lines.append(text + (" by_value" if tensor.value else ""))
    for node in built.nodes:
        names = [", ".join("_" if t is None else f"%{t.name}" for t in tensors) for tensors in (node.inputs, node.outputs)]
        operation, attributes = node_text(node)
        lines.append(f"  {names[1]} = {operation}({names[0]}) compute=f32{attributes}")
    return "\n".join(lines + ["}", ""])
