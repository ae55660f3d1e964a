"""The named views of a buffer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import Problem, _core
from .._arrays import is_torch

INPUTS = ("x", "x_sf", "topk_idx", "topk_weights")
POOLS = ("l1_acts", "l1_acts_sf", "l2_acts", "l2_acts_sf")
TESTS = ("l1_topk_weights", "expert_recv_count_sum", "l1_arrival_count", "token_src_metadata")

_TORCH_TYPES = {"<u2": "bfloat16", "<f4": "float32", "<i8": "int64", "<i4": "int32", "|u1": "uint8"}


def torch_type(dtype: np.dtype, e4m3: bool) -> Any:
    torch = sys.modules["torch"]
    return torch.float8_e4m3fn if e4m3 else getattr(torch, _TORCH_TYPES[dtype.str])


def slice_inputs(problem: Problem, buffer: Any) -> tuple[Any, ...]:
    """The four input views of a buffer of bytes (1-D, uint8, of any framework with views)."""
    offsets = _core.layout(problem)
    rows, hidden, slots = problem.max_tokens_per_rank, problem.hidden, problem.top_k
    bf16, mx = problem.precision == "bf16", problem.precision == "mxfp8_mxfp4"
    scales = (rows, 0) if bf16 else (rows, hidden // (32 if mx else 128))
    shapes = {
        "x": ("u2" if bf16 else "u1", (rows, hidden)),
        "x_scales": ("u1" if mx else "f4", scales),
        "topk_idx": ("i8", (rows, slots)),
        "topk_weights": ("f4", (rows, slots)),
    }
    views = []
    for name, (code, shape) in shapes.items():
        dtype = np.dtype(code)
        size = int(np.prod(shape)) * dtype.itemsize
        part = buffer[offsets[name] : offsets[name] + size]
        if is_torch(buffer):
            part = part.view(torch_type(dtype, name == "x" and not bf16))
        else:
            part = part.view(dtype)
        views.append(part.reshape(shape))
    return tuple(views)


def snapshot_views(
    problem: Problem, rows: dict[str, np.ndarray] | None, block_rows: int
) -> dict[str, Any]:
    """The pool views and the test views of one dispatch; without one, of no rows."""
    experts = problem.experts_per_rank
    hidden, intermediate = problem.hidden, problem.intermediate
    counts = (
        np.zeros(experts, np.int64) if rows is None else rows["rows_of"][:experts].astype(np.int64)
    )
    n = int(counts.sum())  # shared experts' rows come last, and are not shown
    bf16 = problem.precision == "bf16"
    code = np.uint16 if bf16 else np.uint8
    meta = np.zeros(0, np.uint64) if rows is None else rows["meta"][:n]
    index = (meta & np.uint64(0xFFFFFFFF)).astype(np.int32)
    contributions = problem.top_k + problem.shared_experts
    source = (meta >> np.uint64(32)).astype(np.int32)
    arrived = [
        min(block_rows, count - first)
        for count in counts.tolist()
        for first in range(0, count, block_rows)
    ]
    x = np.zeros((0, hidden), code) if rows is None else rows["x"][:n].view(code).reshape(n, hidden)
    scale_columns = 0 if bf16 else hidden // 128
    scales = np.zeros((n, scale_columns), np.float32)
    if rows is not None and not bf16:
        scales = rows["x_scales"][:n].copy().view(np.float32).reshape(n, scale_columns)
    return {
        "l1_acts": x,
        "l1_acts_sf": scales,
        "l2_acts": np.zeros((n, intermediate), code),
        "l2_acts_sf": np.zeros((n, 0 if bf16 else intermediate // 128), np.float32),
        "l1_topk_weights": np.zeros(0, np.float32) if rows is None else rows["weights"][:n].copy(),
        "expert_recv_count_sum": counts,
        "l1_arrival_count": np.array(arrived, np.int32),
        "token_src_metadata": np.stack([source, index // contributions, index % contributions], 1),
    }


def slicer_of(problem: Problem, major: int) -> Callable[[Any], tuple[Any, ...]]:
    """What get_symm_buffer_size returns beside the size."""

    def slicer(buffer: Any) -> tuple[Any, ...]:
        pools = snapshot_views(problem, None, 128)
        names = POOLS if major >= 10 else (*POOLS, *TESTS)
        return (*slice_inputs(problem, buffer), *(pools[name] for name in names))

    return slicer
