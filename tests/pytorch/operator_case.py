"""One case of operators.py."""
import dataclasses
import typing


@dataclasses.dataclass
class Case:
    name: str
    function: typing.Callable  # of tensors, to a tensor or several
    inputs: list  # float64 tensors on the CPU, of which the function is differentiated
    twice: bool = False  # second derivatives, too
    exact: typing.Callable = None  # what `function` should be, on the CPU, where that has no such function
    keeps_float32: tuple = ()  # inputs that are not converted to 16 bits
    types: tuple = ("float64", "float32", "float16", "bfloat16")
    keeps_layout: bool = False  # inputs of four dimensions are no images
    is_random: bool = False  # another run has other results
    has_kinks: bool = False  # whose slopes differ by far where an intermediate is a rounding away
    rounds_to: str = None  # the type that it computes in itself, where that is not its inputs'
