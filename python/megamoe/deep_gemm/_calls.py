"""The layer's calls under the names that serving frameworks use."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from .. import _core
from .._arrays import dtype_name, is_torch
from .._layer import call_options
from ._buffer import SymmBuffer
from ._state import (
    BLOCK_RECIPES,
    FP4_RECIPE,
    activation_of,
    check_recipe,
    get_reserved_sms,
    launch_scope,
    refuse,
    requested_sms,
)

_NVFP4 = ("use_x_scales", "l1_alphas", "l2_alphas", "l2_act_scales")


@functools.lru_cache(maxsize=1024)
def _options_of(
    precision: str,
    activation: tuple[Any, ...],
    fast_math: bool,
    global_num_tokens: int | None,
    num_sms: int,
    reserved_sms: int | None,
) -> _core.CallOptions:
    """The library's options; equal ones are made once. activation: the arguments of activation_of,
    which are hashed faster than what it returns."""
    return call_options(
        global_num_tokens,
        num_sms,
        reserved_sms,
        30.0,
        None,
        fast_math,
        0,
        activation_of(*activation),
        precision,
    )


def _counts_beside(stats: Any, sym_buffer: SymmBuffer) -> Any:
    """Zeros of 64 bits beside statistics of 32 bits, in the same memory for every call."""
    torch = sys.modules["torch"] if is_torch(stats) else None
    counts = sym_buffer._counts
    if counts is None or any(
        getattr(counts, name, None) != getattr(stats, name, None) for name in ("shape", "device")
    ):
        if torch is None:
            counts = np.zeros(stats.shape, np.int64)
        else:
            counts = torch.zeros(stats.shape, dtype=torch.int64, device=stats.device)
            # Loads the kernel of the sum behind the call: loading waits for running kernels, and the
            # call's waits for ranks that this thread may not have started yet.
            stats += counts
        sym_buffer._counts = counts
    elif torch is None:
        counts.fill(0)
    else:
        counts.zero_()
    return counts


def _run(
    precision: str,
    y: Any,
    l1_weights: Any,
    l2_weights: Any,
    shared_l1: Any,
    shared_l2: Any,
    sym_buffer: SymmBuffer,
    stats: Any,
    activation: tuple[Any, ...],
    fast_math: bool,
    global_num_tokens: int | None,
) -> None:
    if not isinstance(sym_buffer, SymmBuffer):
        raise refuse(f"sym_buffer is {type(sym_buffer).__name__}; needed: megamoe's SymmBuffer")
    layer, most = sym_buffer._layer, sym_buffer._most_tokens
    if global_num_tokens is not None and not 0 <= global_num_tokens <= most:
        raise ValueError(f"global_num_tokens = {global_num_tokens} is outside 0..{most}")
    count = sym_buffer.num_shared_experts
    if (count > 0) != (shared_l1 is not None) or (shared_l1 is None) != (shared_l2 is None):
        raise refuse(
            f"shared_l1_weights is {'absent' if shared_l1 is None else 'given'}, shared_l2_weights "
            f"is {'absent' if shared_l2 is None else 'given'}; the buffer has {count} shared experts"
        )
    narrow = stats is not None and dtype_name(stats) == "int32"
    with launch_scope(sym_buffer._launch):
        options = _options_of(
            precision,
            activation,
            fast_math,
            global_num_tokens,
            requested_sms(),
            get_reserved_sms(),
        )
        made = sym_buffer._weights
        routed = made.get(precision, l1_weights, l2_weights)
        shared = made.get(precision, shared_l1, shared_l2, count) if count else None
        counts = _counts_beside(stats, sym_buffer) if narrow else stats
        layer._call(y, routed, shared, options, counts, None)
    if narrow:
        stats += counts


def fp8_mega_moe(
    y: Any,
    l1_weights: Any,
    l2_weights: Any,
    sym_buffer: SymmBuffer,
    shared_l1_weights: Any = None,
    shared_l2_weights: Any = None,
    cumulative_local_expert_recv_stats: Any = None,
    recipe: tuple[int, int, int] = (128, 128, 128),
    activation: str = "swiglu",
    activation_alpha: float = 1.0,
    activation_up_bias: float = 0.0,
    activation_clamp: float | None = None,
    fast_math: bool = True,
    *,
    global_num_tokens: int | None = None,
) -> None:
    """One call with FP8 weights, (e4m3, float32 scales of 128 x 128) for each matrix, in the order of
    transform_weights_for_mega_moe. The rows of y, BF16 [tokens, hidden], are the call's tokens. The
    rows received are added to cumulative_local_expert_recv_stats, int32 or int64 [experts per rank].
    global_num_tokens, 0 to ranks x capacity (else ValueError), never changes bits."""
    check_recipe(recipe, BLOCK_RECIPES)
    form = (activation, activation_alpha, activation_up_bias, activation_clamp)
    _run(
        "fp8",
        y,
        l1_weights,
        l2_weights,
        shared_l1_weights,
        shared_l2_weights,
        sym_buffer,
        cumulative_local_expert_recv_stats,
        form,
        fast_math,
        global_num_tokens,
    )


def fp8_mega_moe_sm90(
    y: Any,
    l1_weights: Any,
    l2_weights: Any,
    sym_buffer: SymmBuffer,
    shared_l1_weights: Any = None,
    shared_l2_weights: Any = None,
    cumulative_local_expert_recv_stats: Any = None,
    recipe: tuple[int, int, int] = (128, 128, 128),
    activation: str = "swiglu",
    activation_alpha: float = 1.0,
    activation_up_bias: float = 0.0,
    activation_clamp: float | None = None,
    fast_math: bool = True,
    *,
    global_num_tokens: int | None = None,
) -> None:
    """fp8_mega_moe under its other name."""
    fp8_mega_moe(
        y,
        l1_weights,
        l2_weights,
        sym_buffer,
        shared_l1_weights,
        shared_l2_weights,
        cumulative_local_expert_recv_stats,
        recipe,
        activation,
        activation_alpha,
        activation_up_bias,
        activation_clamp,
        fast_math,
        global_num_tokens=global_num_tokens,
    )


def fp8_fp4_mega_moe(
    y: Any,
    l1_weights: Any,
    l2_weights: Any,
    sym_buffer: SymmBuffer,
    shared_l1_weights: Any = None,
    shared_l2_weights: Any = None,
    cumulative_local_expert_recv_stats: Any = None,
    recipe: tuple[int, int, int] = (1, 1, 32),
    activation: str = "swiglu",
    activation_alpha: float | None = 1.0,
    activation_up_bias: float | None = 0.0,
    activation_clamp: float | None = None,
    activation_beta: float | None = None,
    activation_linear_beta: float | None = None,
    fast_math: bool = True,
    *,
    global_num_tokens: int | None = None,
    **refused: Any,
) -> None:
    """One call with MXFP4 weights: (packed e2m1 in 8 bits, UE8M0 scales of 32 packed in int32) for
    each matrix, in the order of transform_weights_for_mega_moe. On a Hopper buffer (e4m3, float32)
    weights with a recipe of 128 run as fp8_mega_moe. Else as fp8_mega_moe."""
    for name in refused:
        if name not in _NVFP4:
            raise TypeError(f"fp8_fp4_mega_moe() got an unexpected keyword argument {name!r}")
        raise refuse(f"{name} belongs to NVFP4, which is not offered", "unsupported")
    check_recipe(recipe, (*BLOCK_RECIPES, FP4_RECIPE))
    form = (
        activation,
        activation_alpha,
        activation_up_bias,
        activation_clamp,
        activation_beta,
        activation_linear_beta,
    )
    _run(
        "mxfp4" if tuple(recipe) == FP4_RECIPE else "fp8",
        y,
        l1_weights,
        l2_weights,
        shared_l1_weights,
        shared_l2_weights,
        sym_buffer,
        cumulative_local_expert_recv_stats,
        form,
        fast_math,
        global_num_tokens,
    )


def bf16_mega_moe(
    y: Any,
    l1_weights: Any,
    l2_weights: Any,
    sym_buffer: SymmBuffer,
    shared_l1_weights: Any = None,
    shared_l2_weights: Any = None,
    cumulative_local_expert_recv_stats: Any = None,
    activation: str = "swiglu",
    activation_alpha: float = 1.0,
    activation_up_bias: float = 0.0,
    activation_clamp: float | None = None,
    fast_math: bool = True,
    *,
    global_num_tokens: int | None = None,
) -> None:
    """One call with BF16 weights, one array for each matrix. Else as fp8_mega_moe."""
    form = (activation, activation_alpha, activation_up_bias, activation_clamp)
    _run(
        "bf16",
        y,
        l1_weights,
        l2_weights,
        shared_l1_weights,
        shared_l2_weights,
        sym_buffer,
        cumulative_local_expert_recv_stats,
        form,
        fast_math,
        global_num_tokens,
    )
