"""Expert weights in the kernel's order."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _core
from ._arrays import Array, is_torch, raw
from ._error import Error


class Weights:
    """One rank's experts in the kernel's order, as arrays that stay where they are; their contents
    may change between calls. E experts, I intermediate, H hidden:

      field      fp8                          bf16           mxfp4
      w1         8 bits [E, 2I, H]            BF16           2 codes a byte [E, 2I, H/2]
      w1_scales  float32 [E, 2I/128, H/128]   None           8 bits (UE8M0) [E, 2I, H/32]
      w2         8 bits [E, H, I]             BF16           2 codes a byte [E, H, I/2]
      w2_scales  float32 [E, H/128, I/128]    None           8 bits [E, H, I/32]
      b1, b2     float32 [E, 2I], [E, H], or None

    The rows of w1 are interleaved: 8 of the gate, the 8 of the up projection of the same channels,
    and so on; so are the rows of mxfp4's w1_scales, and b1. `prepare_weights` does that. Raises Error
    naming the array, what came and what is needed.
    """

    def __init__(
        self,
        precision: str,
        w1: Array,
        w2: Array,
        w1_scales: Array | None = None,
        w2_scales: Array | None = None,
        *,
        b1: Array | None = None,
        b2: Array | None = None,
    ) -> None:
        #: (w1, w2, w1_scales, w2_scales, b1, b2) as they were given; held for the library
        self.arrays = (w1, w2, w1_scales, w2_scales, b1, b2)
        self._core = _core.Weights(precision, *(raw(array) for array in self.arrays))

    @property
    def precision(self) -> str:
        return self._core.precision

    @property
    def num_experts(self) -> int:
        return self._core.num_experts

    @property
    def hidden(self) -> int:
        return self._core.hidden

    @property
    def intermediate(self) -> int:
        return self._core.intermediate


def core_of(weights: Weights) -> _core.Weights:
    """The library's object; raises Error for what is no Weights."""
    if not isinstance(weights, Weights):
        raise Error(
            "invalid_argument", f"weights is {type(weights).__name__}; needed: megamoe.Weights"
        )
    return weights._core


def interleaved(array: Any) -> Any:
    """`array` [..., 2I, columns], or [..., 2I, bytes], with its rows (the last dimension but one) in
    the kernel's order, bit for bit, in new memory of the same framework."""
    rows, columns = array.shape[-2:]
    if rows % 16 != 0:
        raise Error("invalid_argument", f"{rows} rows to interleave; needed: a multiple of 16")
    lead = tuple(array.shape[:-2])
    if is_torch(array):
        torch = sys.modules["torch"]
        octets = array.view(torch.uint8) if array.element_size() == 1 else array
        octets = octets.reshape(*lead, 2, rows // 16, 8, columns)
        return octets.transpose(-4, -3).reshape(*lead, rows, columns).view(array.dtype)
    if not isinstance(array, np.ndarray):
        split = array.reshape(*lead, 2, rows // 16, 8, columns)
        return split.swapaxes(-4, -3).reshape(*lead, rows, columns)
    source = np.ascontiguousarray(array)
    out = np.empty_like(source)
    count = int(np.prod(lead, dtype=np.int64))
    width = columns * source.itemsize
    _core.interleave(
        source.view(np.uint8).reshape(count, rows, width),
        out.view(np.uint8).reshape(count, rows, width),
        rows // 2,
    )
    return out


def prepare_weights(
    precision: str,
    w1: Array,
    w2: Array,
    w1_scales: Array | None = None,
    w2_scales: Array | None = None,
    *,
    b1: Array | None = None,
    b2: Array | None = None,
    in_place: bool = False,
) -> Weights:
    """Weights from arrays in a checkpoint's order (all gate rows of w1, then all up rows), of the
    shapes and types that Weights states.

    w1, and what belongs to its rows, is copied into the kernel's order; with in_place, NumPy arrays
    are reordered where they are, once. Everything else is used as it is.
    """
    _core.Weights(precision, *(raw(array) for array in (w1, w2, w1_scales, w2_scales, b1, b2)))
    by_row = w1_scales is not None and precision.startswith("mxf")
    b1_rows = None if b1 is None else _order(raw(b1)[..., None], in_place)[..., 0]
    return Weights(
        precision,
        _order(w1, in_place),
        w2,
        _order(w1_scales, in_place) if by_row else w1_scales,
        w2_scales,
        b1=b1_rows,
        b2=b2,
    )


def _order(array: Any, in_place: bool) -> Any:
    if not in_place:
        return interleaved(array)
    if not isinstance(array, np.ndarray):
        raise Error(
            "invalid_argument", f"in_place with {type(array).__name__}; needed: NumPy arrays"
        )
    octets = array.view(np.uint8)
    _core.interleave(octets, octets, array.shape[1] // 2)
    return array
