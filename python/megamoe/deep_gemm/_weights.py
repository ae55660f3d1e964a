"""The weights of calls, as the library takes them: made once for the same arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .. import Weights, _core
from .._arrays import dtype_name, is_torch
from ._state import refuse

_MOST = 512  # routed and shared weights of a large model's layers, some times over


class WeightsCache:
    """Weights by pointer, shape, stride and type of their arrays, which it keeps alive, also those
    that were copied: else others could come to lie where they were. The oldest go first. One for each
    buffer, and gone with it."""

    def __init__(self) -> None:
        self._found: dict[Any, tuple[Weights, tuple[Any, ...]]] = {}

    def get(self, precision: str, l1: Any, l2: Any, shared: int = 0) -> Weights:
        """shared: the number of shared experts that these are; 0: routed ones."""
        if precision == "bf16":
            arrays = (l1, l2)
        else:
            arrays = (*_pair("l1_weights", l1), *_pair("l2_weights", l2))
        key = (precision, shared, key_of(arrays))
        if shared > 1 and len(getattr(arrays[0], "shape", ())) == 2:
            key = (*key, *[version_of(array) for array in arrays])
        found = self._found.get(key)
        if found is not None:
            return found[0]
        made = make_weights(precision, arrays, shared)
        if None not in key:
            if len(self._found) >= _MOST:
                del self._found[next(iter(self._found))]
            self._found[key] = (made, arrays)
        return made


def key_of(arrays: tuple[Any, ...]) -> Any:
    """What tells arrays apart whose contents may change."""
    return _core.array_key(*arrays) or tuple(described(array) for array in arrays)


def described(array: Any) -> Any:
    """The same, of an array that takes Python to look at."""
    if is_torch(array):
        return array.data_ptr(), array.shape, array.stride(), array.dtype, array.get_device()
    if isinstance(array, np.ndarray):
        place = array.__array_interface__["data"]
        return place, array.shape, array.strides, array.dtype.str
    return id(array)


def version_of(array: Any) -> int | None:
    """A number that changes with a tensor's contents; None where there is none. Only arrays that
    are copied need it."""
    try:
        return int(array._version)
    except (AttributeError, RuntimeError):
        return None


def make_weights(precision: str, arrays: tuple[Any, ...], shared: int) -> Weights:
    """arrays: (w1, w2), or (w1, w1_scales, w2, w2_scales)."""
    names = ("w1", "w2") if len(arrays) == 2 else ("w1", "w1_scales", "w2", "w2_scales")
    given = dict(zip(names, arrays))
    if precision == "mxfp4":
        for name in ("w1_scales", "w2_scales"):
            given[name] = _packed_bytes(given[name])
    if shared > 0:
        by_row = precision == "mxfp4"
        given = {name: _expert_major(a, name, shared, by_row) for name, a in given.items()}
    return Weights(precision, **given)


def _pair(name: str, pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise refuse(f"{name} is {type(pair).__name__}; needed: (weights, scales)")
    return pair[0], pair[1]


def _packed_bytes(scales: Any) -> Any:
    """UE8M0 scales, four in an int32, as bytes."""
    if dtype_name(scales) != "int32":
        return scales
    return scales.view(sys.modules["torch"].uint8 if is_torch(scales) else np.uint8)


def _expert_major(array: Any, name: str, shared: int, scales_by_row: bool) -> Any:
    """Shared experts may come as one matrix, several side by side: a wide expert whose intermediate
    channels are those of the first expert, then of the second, and so on."""
    if array is None or len(array.shape) != 2:
        return array
    if shared == 1:
        return array[None]
    rows, columns = array.shape
    if name in ("w1", "w1_scales") and rows % (2 * shared) == 0:
        if name == "w1" or scales_by_row:
            return array.reshape(shared, rows // shared, columns)
        # 128 x 128 scales are not interleaved: first all gate rows.
        return _contiguous(array.reshape(2, shared, rows // (2 * shared), columns), 0, 1).reshape(
            shared, rows // shared, columns
        )
    if name in ("w2", "w2_scales") and columns % shared == 0:
        return _contiguous(array.reshape(rows, shared, columns // shared), 0, 1)
    raise refuse(
        f"{name} of {shared} shared experts has shape {list(array.shape)}; needed: [{shared}, rows, "
        "columns], or one matrix of all"
    )


def _contiguous(array: Any, first: int, second: int) -> Any:
    """A copy with two axes exchanged."""
    if is_torch(array):
        octets = array.view(sys.modules["torch"].uint8) if array.element_size() == 1 else array
        return octets.transpose(first, second).contiguous().view(array.dtype)
    return np.ascontiguousarray(np.swapaxes(array, first, second))
