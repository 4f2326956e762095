"""cudnn-frontend and PyTorch tensors on a GPU, on a libcudnn.so.9 named on the command line: every case of
cases.py, the flows of flow.py, and larger convolutions and products against float64 on the CPU.

    python frontend_gpu.py --cudnn lib/libcudnn.so.9 [unittest's arguments]

Needs torch (with CUDA), numpy and nvidia-cudnn-frontend. PyTorch keeps the cuDNN that it came with: the
library under test serves the frontend alone.
"""

import argparse
import ctypes
import os
import sys
import unittest

_parser = argparse.ArgumentParser(add_help=False)
_parser.add_argument("--cudnn", required=True)
_arguments, _rest = _parser.parse_known_args()
if not os.path.exists(_arguments.cudnn):
    raise SystemExit(f"there is no library {_arguments.cudnn}")

# The cases are compared as exact products of f32 are; by default heuristics may offer TF32.
os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")

import torch  # noqa: E402

torch.cuda.init()
# NOTE: import cudnn takes the wheel's libcudnn where PyTorch's wheels are installed; ours is put in its place
# before the first call, as functions are looked up at their first call.
import cudnn  # noqa: E402

_library = ctypes.CDLL(os.path.abspath(_arguments.cudnn), mode=os.RTLD_NOW | os.RTLD_LOCAL)
cudnn._pybind_module._set_dlhandle_cudnn(_library._handle)

import numpy as np  # noqa: E402

import flow  # noqa: E402
import reference  # noqa: E402
from builder import Builder, Node, channels_last  # noqa: E402
from cases import CASES, FLOATS  # noqa: E402
from memory import TorchMemory  # noqa: E402

_handle = None


def setUpModule():
    global _handle
    _handle = cudnn.create_handle()
    cudnn.set_stream(_handle, torch.cuda.current_stream().cuda_stream)


def tearDownModule():
    cudnn.destroy_handle(_handle)


def new_builder(**options):
    return Builder(_handle, TorchMemory(), **options)


class Cases(unittest.TestCase):
    """One method for each entry of CASES."""


def _add(name, make):
    def test(self):
        make(new_builder).run()

    setattr(Cases, "test_" + name, test)


for _name, _make in CASES.items():
    _add(_name, _make)


class Flow(flow.Flow, unittest.TestCase):
    new_builder = staticmethod(new_builder)

    @property
    def handle(self):
        return _handle


def _linear(function, a, b, length):
    """A contraction by PyTorch in f64 on the CPU, with the bound of reference.py."""
    a, b = (torch.from_numpy(np.ascontiguousarray(o.ref.value)) for o in (a, b))
    magnitudes = function(a.abs(), b.abs()).numpy()
    return reference.Ref(function(a, b).numpy(),
                         (4.0 * np.sqrt(length) + 4.0) * reference.EPS32 * magnitudes)


class Large(unittest.TestCase):
    """Extents of real layers, against PyTorch in f64."""

    def _conv(self, io, image, filters, pad, stride, groups=1):
        b = new_builder(io=io)
        x = b.input(image, strides=channels_last)
        w = b.input(filters, strides=channels_last)
        scale = b.input((1, filters[0], 1, 1), low=0.5, high=1.5, strides=channels_last)
        bias = b.input((1, filters[0], 1, 1), strides=channels_last)
        tensor = b.graph.conv_fprop(x.tensor, w.tensor, pre_padding=[pad] * 2, post_padding=[pad] * 2,
                                    stride=[stride] * 2, dilation=[1, 1])
        ref = _linear(
            lambda a, f: torch.nn.functional.conv2d(a, f, padding=pad, stride=stride, groups=groups), x, w,
            filters[1] * filters[2] * filters[3])
        y = b.pointwise("bias", b.pointwise("scale", Node(tensor, ref), scale), bias)
        b.output(b.pointwise("relu", y))
        b.run()

    def _matmul(self, io, batch, m, n, k):
        b = new_builder(io=io)
        x = b.input((batch, m, k))
        w = b.input((batch, k, n), strides=(k * n, 1, k))
        bias = b.input((1, 1, n))
        product = Node(b.graph.matmul(x.tensor, w.tensor), _linear(torch.matmul, x, w, k))
        b.output(b.pointwise("gelu", b.pointwise("add", product, bias)))
        b.run()

    def _softmax(self, io, rows, columns):
        b = new_builder(io=io)
        x = b.input((1, rows, columns), low=-4, high=4)
        e = b.pointwise("exp", b.pointwise("sub", x, b.reduce(x, "MAX", [2])))
        b.output(b.pointwise("div", e, b.reduce(e, "ADD", [2])))
        b.run()

    def test_convolutions(self):
        for name, io in FLOATS.items():
            with self.subTest(io=name):
                self._conv(io, (8, 64, 56, 56), (64, 64, 3, 3), 1, 1)
                self._conv(io, (4, 3, 224, 224), (64, 3, 7, 7), 3, 2)
                self._conv(io, (8, 256, 14, 14), (512, 256, 1, 1), 0, 2)
                self._conv(io, (4, 128, 28, 28), (128, 4, 3, 3), 1, 1, groups=32)

    def test_products(self):
        for name, io in FLOATS.items():
            with self.subTest(io=name):
                self._matmul(io, 1, 1024, 1536, 768)
                self._matmul(io, 12, 257, 255, 127)

    def test_softmax(self):
        for name, io in FLOATS.items():
            with self.subTest(io=name):
                self._softmax(io, 4096, 5000)


class Streams(unittest.TestCase):
    """Executions go to the handle's stream and can be captured into a CUDA graph."""

    def test_capture_and_replay(self):
        b = new_builder(io=cudnn.data_type.HALF)
        x = b.input((8, 64, 56, 56), strides=channels_last)
        b.output(b.pointwise("relu", b.pointwise("tanh", x)))
        b.plan()
        pack = b.pointers()
        workspace = b.workspace(b.graph.get_workspace_size())
        captured = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(captured):
                cudnn.set_stream(_handle, torch.cuda.current_stream().cuda_stream)
                b.graph.execute(pack, workspace, handle=_handle)
        finally:
            cudnn.set_stream(_handle, torch.cuda.current_stream().cuda_stream)
        captured.replay()
        torch.cuda.synchronize()
        b.compare()


    def test_native_graphs(self):
        """The library puts its launches into an empty graph as nodes, and other pointers into these."""
        runtime = ctypes.CDLL(None)
        runtime = runtime if hasattr(runtime, "cudaGraphCreate") else ctypes.CDLL("libcudart.so.12")
        check = lambda status: self.assertEqual(status, 0)  # noqa: E731
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        b = new_builder(io=cudnn.data_type.HALF)
        x = b.input((8, 64, 56, 56), strides=channels_last)
        b.output(b.pointwise("relu", b.pointwise("tanh", x)))
        b.plan()
        for fill in ("populate_cuda_graph", "update_cuda_graph"):
            pack = b.pointers(key=lambda tensor: tensor.get_uid())
            workspace = b.workspace(b.graph.get_workspace_size())
            if not graph:
                check(runtime.cudaGraphCreate(ctypes.byref(graph), 0))
            getattr(b.graph, fill)(_handle, pack, workspace, graph.value)
            check(runtime.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)))
            check(runtime.cudaGraphLaunch(executable, stream))
            torch.cuda.synchronize()
            b.compare()
            check(runtime.cudaGraphExecDestroy(executable))
        check(runtime.cudaGraphDestroy(graph))


if __name__ == "__main__":
    print(f"{_arguments.cudnn}: cuDNN {cudnn.backend_version()}, frontend {cudnn.__version__}, "
          f"{torch.cuda.get_device_name()}", flush=True)
    unittest.main(argv=[sys.argv[0], *_rest])
