"""Weights and tokens put into the form that calls take."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .. import quantize
from .._arrays import dtype_name, is_torch, raw
from .._weights import interleaved
from ._buffer import address_of, buffer_of_view
from ._state import activation_of, precision_of, refuse
from .utils import transform_sf_into_required_layout


def _ordered_pair(l1: Any) -> Any:
    if not isinstance(l1, (tuple, list)):
        return interleaved(l1)
    weights, scales = l1
    # Scales of blocks of 128 rows stay; those of single rows go with their rows.
    by_row = scales.shape[-2] == weights.shape[-2]
    return interleaved(weights), interleaved(_packed(weights, scales)) if by_row else scales


def _packed(weights: Any, scales: Any) -> Any:
    if dtype_name(scales) == "int32":
        return scales
    rows, columns = weights.shape[-2], 2 * weights.shape[-1]
    groups = scales.shape[0] if len(scales.shape) == 3 else None
    return transform_sf_into_required_layout(scales, rows, columns, (1, 32), groups)


def transform_weights_for_mega_moe(l1: Any, l2: Any, activation: str = "swiglu") -> tuple[Any, Any]:
    """(l1, l2) as calls take them, from a checkpoint's order: routed experts [experts, rows, columns]
    or a shared one [rows, columns]; (weights, scales), or BF16 weights alone.

    The rows of l1 are interleaved, 8 of the gate, 8 of the up projection, and so on. FP32 scales of
    128 x 128 blocks stay, and FP8 and BF16 l2 is returned as it came. Scales of MXFP4 become UE8M0,
    four in an int32, and those of l1 go with their rows. Every result is expert-major and
    contiguous."""
    activation_of(activation)
    if isinstance(l2, (tuple, list)) and l2[1].shape[-2] == l2[0].shape[-2]:
        l2 = (l2[0], _packed(*l2))
    return _ordered_pair(l1), l2


def transform_weights_for_mega_moe_sm90(l1: Any, l2: Any) -> tuple[Any, Any]:
    """transform_weights_for_mega_moe under its other name."""
    return transform_weights_for_mega_moe(l1, l2)


def _on_host(array: Any) -> np.ndarray:
    array = raw(array)
    if not is_torch(array):
        return array
    if array.is_cuda:
        raise refuse("buf_x is no view of a SymmBuffer; on a GPU tokens are staged into one")
    torch = sys.modules["torch"]
    return array.view(torch.uint16).numpy() if array.dtype == torch.bfloat16 else array.numpy()


def mega_moe_pre_dispatch_sm90(
    x: Any,
    topk_idx: Any,
    topk_weights: Any,
    buf_x: Any,
    buf_x_sf: Any,
    buf_topk_idx: Any,
    buf_topk_weights: Any,
    *,
    num_tokens: int,
    group_size: int = 128,
    routed_scaling_factor: float = 1.0,
) -> None:
    """Quantises the first num_tokens rows of x, BF16, into a buffer's views, with their expert ids
    (int32 or int64) and weights (times routed_scaling_factor); the rest of the rows gets -1 and 0."""
    rows = buf_topk_idx.shape[0]
    if not 0 <= num_tokens <= min(rows, x.shape[0]):
        raise refuse(
            f"num_tokens = {num_tokens} is outside 0..{min(rows, x.shape[0])} (rows of x: "
            f"{x.shape[0]}, of the buffer: {rows})"
        )
    if group_size != 128:
        raise refuse(f"group_size = {group_size}; 128 runs on Hopper", "unsupported")
    tokens = (x[:num_tokens], topk_idx[:num_tokens], topk_weights[:num_tokens])
    buffer = buffer_of_view(buf_x)
    if buffer is not None:
        mine = (buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
        given = (buf_x_sf, buf_topk_idx, buf_topk_weights)
        if any(address_of(a) != address_of(b) for a, b in zip(mine, given)):
            raise refuse("buf_x and the other views are not of the same SymmBuffer")
        buffer._layer.stage(*tokens, routed_scaling=routed_scaling_factor)
        return
    codes, scales = quantize(_on_host(tokens[0]))
    _on_host(buf_x)[:num_tokens] = codes
    _on_host(buf_x_sf)[:num_tokens] = scales
    ids, weights = _on_host(buf_topk_idx), _on_host(buf_topk_weights)
    ids[:num_tokens], ids[num_tokens:] = _on_host(tokens[1]), -1
    weights[:num_tokens] = _on_host(tokens[2]) * np.float32(routed_scaling_factor)
    weights[num_tokens:] = 0


def mega_moe_pre_dispatch(
    x: Any,
    topk_idx: Any,
    topk_weights: Any,
    buf_x: Any,
    buf_x_sf: Any,
    buf_topk_idx: Any,
    buf_topk_weights: Any,
    num_tokens: int,
    group_size: int = 32,
    mma_type: str = "fp8xfp4",
    buf_x_scales: Any = None,
) -> None:
    """mega_moe_pre_dispatch_sm90 for a group_size of 128; that of later GPUs, 32, is refused."""
    precision_of(mma_type)
    if buf_x_scales is not None:
        raise refuse("buf_x_scales belongs to NVFP4, which is not offered", "unsupported")
    mega_moe_pre_dispatch_sm90(
        x,
        topk_idx,
        topk_weights,
        buf_x,
        buf_x_sf,
        buf_topk_idx,
        buf_topk_weights,
        num_tokens=num_tokens,
        group_size=group_size,
    )
