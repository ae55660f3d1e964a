"""megamoe: an expert-parallel Mixture-of-Experts layer in one launch per rank.

Arrays are of any framework that speaks DLPack: NumPy in host memory; torch, CuPy or JAX on GPUs. e4m3
and UE8M0 may come as uint8, BF16 as its bits in uint16, which NumPy needs. Failures raise Error.
"""

import atexit
import sys

from . import _core
from ._checkpoint import LoadedLayer, load_layer
from ._core import Activation, Problem
from ._core import version as _version
from ._error import Error
from ._group import Group
from ._layer import CallReport, Inputs, Layer, MemoryReport
from ._reference import Difference, compare, from_bf16, quantize, reference, to_bf16
from ._weights import Weights, prepare_weights

__version__ = _version()
__all__ = [
    "Activation",
    "CallReport",
    "Difference",
    "Error",
    "Group",
    "Inputs",
    "Layer",
    "LoadedLayer",
    "MemoryReport",
    "Problem",
    "Weights",
    "compare",
    "from_bf16",
    "load_layer",
    "prepare_weights",
    "quantize",
    "reference",
    "to_bf16",
]


@atexit.register
def _expect_leaks() -> None:
    """torch's operators keep modules beyond the interpreter's end, and so what this package caches: no
    fault of the binding, which is told of where torch is not there."""
    if "torch" in sys.modules:
        _core.set_leak_warnings(False)
