"""Builds a graph through cudnn-frontend and, operation by operation, its f64 reference; runs it and compares.

    b = Builder(handle, HostMemory(), io=cudnn.data_type.HALF)
    x = b.input((4, 16, 8, 8), strides=channels_last)
    b.output(b.pointwise("relu", x))
    b.run()          # the frontend's whole flow with its heuristics' first choice, then the comparison
"""

import math

import cudnn
import numpy as np

import memory
import reference

_T = cudnn.data_type
_HEURISTICS = [cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK]


def packed(dims):
    return tuple(math.prod(dims[i + 1:]) for i in range(len(dims)))


def channels_last(dims):
    """Strides of N, C, spatial extents with C innermost."""
    strides = [0] * len(dims)
    step = 1
    for axis in [1, *range(len(dims) - 1, 1, -1), 0]:
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)


class Node:
    """A tensor of the graph with its reference."""

    def __init__(self, tensor, ref):
        self.tensor = tensor
        self.ref = ref


class Mismatch(AssertionError):
    """A result outside its bound."""


_NAN = {_T.HALF: np.float16(np.nan), _T.BFLOAT16: 0x7FC0, _T.FLOAT: np.float32(np.nan)}


class Builder:
    """One graph; see the top of the file."""

    def __init__(self, handle, space, io=_T.FLOAT, seed=1, **graph_options):
        wide = _T.DOUBLE if io == _T.DOUBLE else _T.FLOAT
        self.io = io
        self.handle = handle
        self.space = space
        self.rng = np.random.default_rng(seed)
        self.graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=wide, compute_data_type=wide,
                                   handle=handle, **graph_options)
        self._inputs = []  # tensor, words
        self._scalars = []  # tensor, host array
        self._outputs = []  # tensor, reference values and bound, data type
        self._layouts = {}  # of ragged outputs, by their number
        self._buffers = {}
        self._plan_buffers = None

    # --- tensors ------------------------------------------------------------------------------------------

    def input(self, dims, data_type=None, strides=packed, low=-1.0, high=1.0, values=None, poisoned=None):
        """`poisoned`: places that hold NaN, and count as 0 in the reference."""
        data_type = data_type or self.io
        strides = strides(dims) if callable(strides) else strides
        if values is None:
            values = self.rng.uniform(low, high, dims)
        values = memory.quantise(values, data_type)
        layout = memory.Layout(dims, strides)
        words = np.zeros(layout.elements, memory.STORAGE[data_type][0])
        layout.view(words)[...] = memory.encode(values, data_type)
        if poisoned is not None:
            layout.view(words)[np.broadcast_to(poisoned, dims)] = _NAN[data_type]
            values = np.where(poisoned, 0, values)
        tensor = self.graph.tensor(dim=list(dims), stride=list(strides), data_type=data_type)
        self._inputs.append((tensor, words))
        return Node(tensor, reference.Ref(values))

    def ragged_input(self, dims, strides, offsets, data_type=None, values=None, unit=1):
        """`offsets`: a node of batches + 1 integers, in `unit` elements. Batches end where the next one begins."""
        data_type = data_type or self.io
        values = self.rng.uniform(-1.0, 1.0, dims) if values is None else values
        layout = memory.RaggedLayout(dims, strides, offsets.ref.value.reshape(-1).astype(int) * unit)
        values = np.where(layout.inside, memory.quantise(values, data_type), 0)
        words = np.zeros(layout.elements, memory.STORAGE[data_type][0])
        layout.store(words, memory.encode(values, data_type))
        tensor = self.graph.tensor(dim=list(dims), stride=list(strides), data_type=data_type,
                                   ragged_offset=offsets.tensor)
        if unit != 1:
            tensor.set_ragged_offset_multiplier(unit)
        self._inputs.append((tensor, words))
        return Node(tensor, reference.Ref(values))

    def ragged_output(self, node, offsets, data_type=None, strides=None, unit=1):
        """Nothing may be written between batches."""
        self.output(node, data_type=data_type, strides=strides)
        node.tensor.set_ragged_offset(offsets.tensor)
        if unit != 1:
            node.tensor.set_ragged_offset_multiplier(unit)
        layout = memory.RaggedLayout(node.ref.shape, strides, offsets.ref.value.reshape(-1).astype(int) * unit)
        tensor, ref, data_type = self._outputs[-1]
        self._layouts[len(self._outputs) - 1] = layout
        self._outputs[-1] = (tensor, reference.Ref(ref.value, np.where(layout.inside, ref.err, math.inf)), data_type)

    def scalar(self, value, rank, data_type=_T.FLOAT):
        """A tensor by value: at execution the graph is given a host pointer."""
        ones = [1] * rank
        tensor = self.graph.tensor(dim=ones, stride=ones, data_type=data_type, is_pass_by_value=True)
        words = memory.encode(np.full(1, value), data_type)
        self._scalars.append((tensor, words))
        return Node(tensor, reference.Ref(memory.decode(words, data_type).reshape(ones)))

    def output(self, node, data_type=None, dims=None, strides=None):
        data_type = data_type or self.io
        node.tensor.set_output(True).set_data_type(data_type)
        if dims is not None:
            node.tensor.set_dim(list(dims))
        if strides is not None:
            shape = dims or node.ref.shape
            node.tensor.set_stride(list(strides(shape) if callable(strides) else strides))
        ref = node.ref
        self._outputs.append((node.tensor, ref, data_type))
        # A consumer may read the stored value or the one before rounding.
        roundoff = memory.STORAGE[data_type][1]
        node.ref = reference.Ref(ref.value, ref.err + roundoff * np.abs(ref.value))
        return node

    # --- operations ---------------------------------------------------------------------------------------

    def pointwise(self, name, *operands, **attributes):
        tensor = getattr(self.graph, name)(*[o.tensor for o in operands], **attributes)
        function = reference.POINTWISE[name]
        ref = reference.pointwise(lambda *v: function(*v, **attributes), *[o.ref for o in operands],
                                  cancelled=reference.CANCELLED.get(name))
        return Node(tensor, ref)

    def gen_index(self, x, axis):
        tensor = self.graph.gen_index(x.tensor, axis)
        tensor.set_data_type(_T.INT32)
        shape = [-1 if a == axis else 1 for a in range(len(x.ref.shape))]
        index = np.arange(x.ref.shape[axis], dtype=np.float64).reshape(shape)
        return Node(tensor, reference.Ref(np.broadcast_to(index, x.ref.shape)))

    def matmul(self, a, b):
        return Node(self.graph.matmul(a.tensor, b.tensor), reference.matmul(a.ref, b.ref))

    @staticmethod
    def _geometry(rank, pre=None, post=None, stride=None, dilation=None):
        pre = pre or [0] * rank
        return pre, post or pre, stride or [1] * rank, dilation or [1] * rank

    @staticmethod
    def _named(geometry):
        return dict(zip(("pre_padding", "post_padding", "stride", "dilation"), map(list, geometry)))

    def conv_fprop(self, x, w, flip=False, **geometry):
        geometry = self._geometry(len(x.ref.shape) - 2, **geometry)
        mode = cudnn._pybind_module.convolution_mode
        tensor = self.graph.conv_fprop(x.tensor, w.tensor, **self._named(geometry),
                                       convolution_mode=mode.CONVOLUTION if flip else mode.CROSS_CORRELATION)
        return Node(tensor, reference.conv_fprop(x.ref, w.ref, *geometry, flip))

    def conv_dgrad(self, dy, w, image_shape, strides=channels_last, **geometry):
        geometry = self._geometry(len(image_shape) - 2, **geometry)
        tensor = self.graph.conv_dgrad(dy.tensor, w.tensor, **self._named(geometry))
        tensor.set_dim(list(image_shape)).set_stride(list(strides(image_shape)))
        return Node(tensor, reference.conv_dgrad(dy.ref, w.ref, image_shape, *geometry))

    def conv_wgrad(self, x, dy, filter_shape, strides=channels_last, **geometry):
        geometry = self._geometry(len(filter_shape) - 2, **geometry)
        tensor = self.graph.conv_wgrad(x.tensor, dy.tensor, **self._named(geometry))
        tensor.set_dim(list(filter_shape)).set_stride(list(strides(filter_shape)))
        return Node(tensor, reference.conv_wgrad(x.ref, dy.ref, filter_shape, *geometry))

    def reduce(self, x, mode, axes):
        tensor = self.graph.reduction(x.tensor, mode=getattr(cudnn.reduction_mode, mode))
        dims = [1 if a in axes else d for a, d in enumerate(x.ref.shape)]
        tensor.set_dim(dims).set_stride(list(packed(dims)))
        return Node(tensor, reference.REDUCTIONS[mode](x.ref, tuple(axes)))

    def genstats(self, x):
        """Sum and sum of squares for each channel."""
        total, squares = self.graph.genstats(x.tensor)
        axes = tuple(a for a in range(len(x.ref.shape)) if a != 1)
        square = reference.pointwise(np.square, x.ref)
        return (Node(total, reference.REDUCTIONS["ADD"](x.ref, axes)),
                Node(squares, reference.REDUCTIONS["ADD"](square, axes)))

    # --- for operations that have no method here ----------------------------------------------------------

    @staticmethod
    def node(tensor, ref):
        return Node(tensor, ref)

    @staticmethod
    def concatenated(refs, axis):
        return reference.Ref(np.concatenate([r.value for r in refs], axis),
                             np.concatenate([r.err for r in refs], axis))

    @staticmethod
    def reshaped(ref, shape):
        return reference.Ref(ref.value.reshape(shape), ref.err.reshape(shape))

    # --- running ------------------------------------------------------------------------------------------

    def plan(self, policy=cudnn.build_plan_policy.HEURISTICS_CHOICE):
        """validate … build_plans, as programs do it."""
        self.graph.validate()
        self.graph.build_operation_graph()
        self.graph.create_execution_plans(_HEURISTICS)
        self.graph.check_support()
        self.graph.build_plans(policy)

    def pointers(self, key=lambda tensor: tensor):
        """A fresh copy of the inputs, poisoned outputs; what execute wants."""
        self._buffers = {}
        pack = {}
        for tensor, words in self._inputs:
            pack[key(tensor)] = self.space.allocate(words.view(np.uint8))
        for tensor, words in self._scalars:
            pack[key(tensor)] = words.ctypes.data
        for i, (tensor, _, data_type) in enumerate(self._outputs):
            layout = self._layouts.get(i) or memory.Layout(tensor.get_dim(), tensor.get_stride())
            poison = np.full(layout.elements * memory.STORAGE[data_type][0]().itemsize, 0x5A, np.uint8)
            pack[key(tensor)] = self.space.allocate(poison)
            self._buffers[tensor.get_uid()] = (pack[key(tensor)], layout, poison)
        return pack

    def workspace(self, size):
        return self.space.allocate(np.full(size, 0x77, np.uint8)) if size else 0

    def execute(self, graph=None, plan_index=None, extra=None):
        """One execution on fresh memory, compared. `graph`: another frontend graph with the same uids."""
        graph = graph or self.graph
        pack = self.pointers(key=lambda tensor: tensor.get_uid())
        pack.update(extra or {})
        if plan_index is None:
            graph.execute(pack, self.workspace(graph.get_workspace_size()), handle=self.handle)
        else:
            size = graph.get_workspace_size_plan_at_index(plan_index)
            graph.execute_plan_at_index(pack, self.workspace(size), plan_index, handle=self.handle)
        self.space.synchronize()
        self.compare()

    def run(self):
        self.plan()
        self.execute()

    def compare(self):
        damage = self.space.damage()
        if damage:
            raise Mismatch("; ".join(damage))
        for i, (tensor, ref, data_type) in enumerate(self._outputs):
            address, layout, poison = self._buffers[tensor.get_uid()]
            flat = self.space.read(address, poison.size).view(memory.STORAGE[data_type][0])
            got = memory.decode(layout.view(flat), data_type)
            _check(f"output {i} ({data_type.name}{list(layout.dims)})", got, ref, data_type)
            gaps = ~layout.used()
            if (flat[gaps] != poison.view(flat.dtype)[gaps]).any():
                raise Mismatch(f"output {i}: written between its elements")


def _check(name, got, ref, data_type):
    want = ref.value
    if got.shape != want.shape:
        raise Mismatch(f"{name}: the reference has extents {list(want.shape)}")
    _, roundoff, subnormal = memory.STORAGE[data_type]
    if roundoff == 0.0:
        bound = np.where(ref.err > 0, 1.0, 0.0)
        want = np.rint(want)
    else:
        bound = ref.err * (1.0 + roundoff) + 1.001 * roundoff * np.abs(want) + subnormal
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(got - want) <= bound) | (got == want) | (np.isnan(got) & np.isnan(want)))
        wrong &= ~np.isposinf(ref.err)  # anything may stand there
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Mismatch(f"{name}: {int(wrong.sum())} of {wrong.size} elements are wrong; at {at} it is "
                       f"{got[at]!r}, the reference {want[at]!r}, allowed {np.broadcast_to(bound, want.shape)[at]:.3g}")
