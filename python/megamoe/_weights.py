"""Expert weights in the kernel's order."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _core
from ._arrays import Array, is_torch, padded, raw, resized
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

    def to(self, device: Any) -> Weights:
        """A copy as torch tensors on `device`, such as 'cuda:0'. Needs torch."""
        arrays = [_to_torch(array, device) for array in self.arrays]
        return Weights(self.precision, *arrays[:4], b1=arrays[4], b2=arrays[5])

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

    Sizes that are no multiples of 128 (gpt-oss: 2880) are padded, NumPy arrays and torch tensors by
    copies: weights and biases with zeros, FP32 scales not at all (a block of less than 128 has one),
    UE8M0 scales with the nearest one of the same row, or of the last row. The result is exact. Such
    arrays are refused in_place.
    """
    arrays = {
        "w1": w1,
        "w2": w2,
        "w1_scales": w1_scales,
        "w2_scales": w2_scales,
        "b1": b1,
        "b2": b2,
    }
    arrays = _padded(precision, arrays, in_place)
    _core.Weights(precision, *(raw(array) for array in arrays.values()))
    by_row = w1_scales is not None and precision.startswith("mxf")
    b1 = arrays["b1"]
    arrays["w1"] = _order(arrays["w1"], in_place)
    if by_row:
        arrays["w1_scales"] = _order(arrays["w1_scales"], in_place)
    if b1 is not None:
        arrays["b1"] = _order(raw(b1)[..., None], in_place)[..., 0]
    return Weights(precision, **arrays)


def _is_matrix(array: Any, dimensions: int) -> bool:
    return len(getattr(array, "shape", ())) == dimensions


def _padded(precision: str, arrays: dict[str, Any], in_place: bool) -> dict[str, Any]:
    """`arrays` with hidden and intermediate padded. What does not look like weights stays, and is
    refused later by name."""
    w1, w2 = arrays["w1"], arrays["w2"]
    if not (_is_matrix(w1, 3) and _is_matrix(w2, 3)) or w1.shape[1] % 2 != 0:
        return arrays
    codes = 2 if precision.startswith("mxf") else 1  # in an element of w1 and w2
    hidden, intermediate = w1.shape[2] * codes, w1.shape[1] // 2
    wide, tall = padded(hidden), padded(intermediate)
    if (wide, tall) == (hidden, intermediate):
        return arrays
    if in_place:
        raise Error(
            "invalid_argument",
            f"in_place with hidden = {hidden} and intermediate = {intermediate}, which are padded to "
            f"{wide} and {tall}; needed: multiples of 128",
        )
    if codes == 2 and (hidden % 32 != 0 or intermediate % 32 != 0):
        raise Error(
            "invalid_argument",
            f"hidden = {hidden} and intermediate = {intermediate}; {precision} needs multiples of 32",
        )
    shapes = {"w1": (2 * intermediate, hidden // codes), "w2": (hidden, intermediate // codes)}
    if codes == 2:
        shapes |= {"w1_scales": (2 * intermediate, hidden // 32)}
        shapes |= {"w2_scales": (hidden, intermediate // 32)}
    for name, shape in shapes.items():
        array = arrays[name]
        if array is not None and tuple(array.shape[1:]) != shape:
            raise Error(
                "invalid_argument",
                f"{name} has shape {list(array.shape)}; needed: {[int(w1.shape[0]), *shape]}",
            )
    out = dict(arrays)
    out["w1"] = _pad_halves(w1, tall, wide // codes)
    out["w2"] = _pad_matrix(w2, wide, tall // codes)
    if codes == 2 and arrays["w1_scales"] is not None and arrays["w2_scales"] is not None:
        out["w1_scales"] = _pad_halves(arrays["w1_scales"], tall, wide // 32, repeat=True)
        out["w2_scales"] = _pad_matrix(arrays["w2_scales"], wide, tall // 32, repeat=True)
    if arrays["b1"] is not None and _is_matrix(arrays["b1"], 2):
        out["b1"] = _pad_halves(raw(arrays["b1"])[..., None], tall, 1)[..., 0]
    if arrays["b2"] is not None and _is_matrix(arrays["b2"], 2):
        out["b2"] = resized(raw(arrays["b2"]), 1, wide)
    return out


def _pad_matrix(array: Any, rows: int, columns: int, repeat: bool = False) -> Any:
    source = raw(array)
    out = resized(resized(source, source.ndim - 1, columns, repeat), source.ndim - 2, rows, repeat)
    return out.view(array.dtype) if out.dtype != array.dtype else out


def _pad_halves(array: Any, rows: int, columns: int, repeat: bool = False) -> Any:
    """The gate rows and the up rows of [E, 2 rows, columns], each padded."""
    experts, both, width = array.shape
    split = raw(array).reshape(experts, 2, both // 2, width)
    out = _pad_matrix(split, rows, columns, repeat).reshape(experts, 2 * rows, columns)
    return out.view(array.dtype) if out.dtype != array.dtype else out


def _to_torch(array: Any, device: Any) -> Any:
    if array is None:
        return None
    torch = sys.modules.get("torch")
    if torch is None:
        raise Error(
            "invalid_argument", "torch is not imported; needed: to bring weights to a device"
        )
    if is_torch(array):
        return array.to(device)
    source = np.ascontiguousarray(raw(array))
    if source.dtype == np.uint16:
        return torch.from_numpy(source.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(source).to(device)


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
