"""The reference: what a layer computes, in double precision on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import Array, raw
from ._core import Problem
from ._weights import Weights, core_of


class Difference(NamedTuple):
    """How far two outputs are from each other."""

    diff: float  #: |a - b|^2 / (|a|^2 + |b|^2) over everything
    worst_row_relative_l2: float  #: the largest |a - b| / |b| of a row
    worst_row: int  #: the row where that is


def reference(
    problem: Problem,
    inputs: Sequence[tuple[Array, Array | None, Array, Array]],
    weights: Sequence[Weights],
    *,
    shared: Sequence[Weights] = (),
    threads: int = 1,
) -> list[np.ndarray]:
    """y of every rank, BF16 bits as uint16 [tokens, hidden].

    inputs: for each rank (x, x_scales, topk_idx, topk_weights) of its tokens alone, as Inputs states
    them; weights, shared: those of each rank, in host memory. Raises Error for what does not fit.
    """
    given = [tuple(raw(array) for array in rank) for rank in inputs]
    return _core.reference(
        problem, given, [core_of(w) for w in weights], [core_of(w) for w in shared], threads
    )


def quantize(hidden_states: Array) -> tuple[np.ndarray, np.ndarray]:
    """(codes, scales) of BF16 hidden states [tokens, hidden] in host memory, as Layer.stage makes
    them for fp8: uint8 [tokens, hidden], float32 [tokens, hidden / 128]."""
    return _core.quantize_rows(raw(hidden_states))


def compare(y: Array, expected: Array) -> Difference:
    """The distance of y from what was expected, both BF16 [tokens, hidden] in host memory."""
    return Difference(*_core.compare(raw(y), raw(expected)))


def to_bf16(values: Any) -> np.ndarray:
    """FP32 values rounded to the nearest BF16, ties to even, as uint16 bits."""
    array = np.ascontiguousarray(values, dtype=np.float32)
    bits = array.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def from_bf16(bits: Any) -> np.ndarray:
    """BF16 bits (uint16) as float32."""
    return (np.asarray(bits).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
