"""Casts and layouts of scales that callers import. NumPy arrays give e4m3 as uint8; BF16 comes as
its bits in uint16."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .. import Error, from_bf16
from .._arrays import dtype_name, is_torch

_LEAST_AMAX = 1e-4
_E4M3_MAX = 448.0


def _refuse(message: str) -> Error:
    return Error("invalid_argument", message)


def _floats(x: Any) -> Any:
    if is_torch(x):
        return x.float()
    return from_bf16(x) if dtype_name(x) == "uint16" else np.asarray(x, np.float32)


def _to_e4m3(values: np.ndarray) -> np.ndarray:
    """The nearest codes, ties to even; saturating, NaN becomes 0x7f."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    sign, magnitude = ((bits >> 24) & 0x80).astype(np.uint8), bits & 0x7FFFFFFF
    normal = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1) >> 20) - (120 << 3)
    # Next to 2^14 the spacing of FP32 is 2^-9, that of the subnormal codes: the sum rounds.
    small = (np.minimum(magnitude, 0x3C800000).view(np.float32) + np.float32(2**14)).view(np.uint32)
    code = np.where(magnitude >= 0x3C800000, normal, small - 0x46800000)
    code = np.where(magnitude >= 0x43E00000, 0x7E, code).astype(np.uint8) | sign
    return np.where(magnitude > 0x7F800000, np.uint8(0x7F), code)


def _power_of_two_up(scale: Any) -> Any:
    """The least powers of two that are not below the scales, exactly."""
    if is_torch(scale):
        torch = sys.modules["torch"]
        bits = scale.contiguous().view(torch.int32)
        return (((bits + 0x7FFFFF) >> 23) << 23).view(torch.float32)
    return (((scale.view(np.int32) + 0x7FFFFF) >> 23) << 23).view(np.float32)


def _quantized(groups: Any, amax: Any, use_ue8m0: bool) -> tuple[Any, Any]:
    scale = amax / _E4M3_MAX if is_torch(amax) else amax / np.float32(_E4M3_MAX)
    if use_ue8m0:
        scale = _power_of_two_up(scale)
    scaled = groups * (1.0 / scale)
    if is_torch(scaled):
        return scaled.to(sys.modules["torch"].float8_e4m3fn), scale
    return _to_e4m3(scaled), scale


def _padded(values: Any, rows: int, columns: int) -> Any:
    if tuple(values.shape) == (rows, columns):
        return values
    full = (
        values.new_zeros(rows, columns)
        if is_torch(values)
        else np.zeros((rows, columns), np.float32)
    )
    full[: values.shape[0], : values.shape[1]] = values
    return full


def _amax(values: Any, axis: Any) -> Any:
    if is_torch(values):
        return values.abs().amax(dim=axis, keepdim=True).clamp(_LEAST_AMAX)
    return np.maximum(np.abs(values).max(axis=axis, keepdims=True), np.float32(_LEAST_AMAX))


def _check_matrix(x: Any) -> tuple[int, int]:
    if len(x.shape) != 2:
        raise _refuse(f"x has {len(x.shape)} dimensions; needed: [rows, columns]")
    return int(x.shape[0]), int(x.shape[1])


def per_token_cast_to_fp8(
    x: Any, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> tuple[Any, Any]:
    """(e4m3 [rows, columns], scales [rows, columns / gran_k]) of a matrix: scale = max(amax, 1e-4) /
    448 of each gran_k columns, rounded up to a power of two with use_ue8m0. use_packed_ue8m0: the
    scales as UE8M0, four in an int32."""
    rows, columns = _check_matrix(x)
    padded = -(-columns // gran_k) * gran_k
    groups = _padded(_floats(x), rows, padded).reshape(rows, padded // gran_k, gran_k)
    if rows == 0:
        groups = groups.reshape(0, padded // gran_k, gran_k)
    codes, scales = _quantized(groups, _amax(groups, 2), use_ue8m0 or use_packed_ue8m0)
    codes, scales = codes.reshape(rows, padded)[:, :columns], scales[..., 0]
    return codes, pack_ue8m0(scales) if use_packed_ue8m0 else scales


def per_block_cast_to_fp8(x: Any, use_ue8m0: bool, gran_k: int = 128) -> tuple[Any, Any]:
    """(e4m3 [rows, columns], scales [rows / 128, columns / gran_k]) of a matrix, in blocks of 128
    rows and gran_k columns; else as per_token_cast_to_fp8."""
    rows, columns = _check_matrix(x)
    tall, wide = -(-rows // 128) * 128, -(-columns // gran_k) * gran_k
    blocks = _padded(_floats(x), tall, wide).reshape(tall // 128, 128, wide // gran_k, gran_k)
    codes, scales = _quantized(blocks, _amax(blocks, (1, 3)), use_ue8m0)
    return codes.reshape(tall, wide)[:rows, :columns], scales.reshape(tall // 128, wide // gran_k)


def pack_ue8m0(scales: Any) -> Any:
    """FP32 powers of two, or UE8M0 in 8 bits, [..., n], as UE8M0, four in an int32 [..., n / 4].
    Raises Error for other values, and where n is no multiple of 4."""
    if scales.shape[-1] % 4 != 0:
        raise _refuse(f"{scales.shape[-1]} scales in a row; needed: a multiple of 4")
    if dtype_name(scales) in ("uint8", "float8_e8m0fnu"):
        if is_torch(scales):
            return scales.contiguous().view(sys.modules["torch"].int32)
        return np.ascontiguousarray(scales).view(np.int32)
    if is_torch(scales):
        torch = sys.modules["torch"]
        bits = scales.contiguous().view(torch.int32)
        bad = bool(((bits & 0x7FFFFF) != 0).any() | (bits <= 0).any())
        codes = None if bad else (bits >> 23).to(torch.uint8).contiguous().view(torch.int32)
    else:
        found = np.ascontiguousarray(scales, np.float32).view(np.int32)
        bad = bool(np.any(found & 0x7FFFFF) or np.any(found <= 0))
        codes = None if bad else (found >> 23).astype(np.uint8).view(np.int32)
    if codes is None:
        raise _refuse("scales are not all powers of two; UE8M0 holds nothing else")
    return codes


def transform_sf_into_required_layout(
    sf: Any,
    mn: int,
    k: int,
    recipe: tuple[int, ...] | None = None,
    num_groups: int | None = None,
    is_sfa: bool = False,
    disable_ue8m0_cast: bool = False,
) -> Any:
    """Scales of [num_groups,] mn rows and k columns as calls take them: of 128 columns FP32 and
    contiguous, of 32 columns (recipe (1, 32), (1, 1, 32)) UE8M0, four in an int32."""
    columns = {(128, 128): 128, (1, 128): 128, (1, 128, 128): 128, (128, 128, 128): 128}
    columns |= {(1, 32): 32, (1, 1, 32): 32}
    key = None if recipe is None else tuple(recipe)
    if key not in columns:
        raise _refuse(f"recipe = {recipe}; known: {', '.join(map(str, columns))}")
    gran = columns[key]
    by_block = key[0] == 128 or (len(key) == 3 and key[1] == 128 and not is_sfa)
    rows = -(-mn // 128) if by_block else mn
    wanted = (*(() if num_groups is None else (num_groups,)), rows, -(-k // gran))
    if tuple(sf.shape) != wanted:
        raise _refuse(f"sf has shape {tuple(sf.shape)}; needed: {wanted}")
    if gran == 32 and not disable_ue8m0_cast:
        return pack_ue8m0(sf)
    return sf.contiguous() if is_torch(sf) else np.ascontiguousarray(sf)
