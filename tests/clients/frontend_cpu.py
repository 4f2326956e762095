"""cudnn-frontend on Kiln's CPU device: every case of cases.py, and the frontend's way through engines, knobs,
plan names, notes, serialisation and errors. Run by frontend_test.sh in a venv of requirements.txt:

    KILN_DEVICE=cpu python frontend_cpu.py --cudnn LIBCUDNN --cudart LIBCUDART [unittest's arguments]
"""

import argparse
import sys
import unittest

import preload

_parser = argparse.ArgumentParser(add_help=False)
_parser.add_argument("--cudnn", required=True)
_parser.add_argument("--cudart", required=True)
_arguments, _rest = _parser.parse_known_args()
preload.load(_arguments.cudart, _arguments.cudnn)

import cudnn  # noqa: E402

import flow  # noqa: E402
import kinds  # noqa: E402
from builder import Builder  # noqa: E402
from cases import CASES  # noqa: E402
from memory import HostMemory  # noqa: E402

_handle = None


def setUpModule():
    global _handle
    _handle = cudnn.create_handle()


def tearDownModule():
    cudnn.destroy_handle(_handle)


def new_builder(**options):
    return Builder(_handle, HostMemory(), **options)


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


class Kinds(kinds.Kinds, unittest.TestCase):
    new_builder = staticmethod(new_builder)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *_rest])
