"""Symmetric buffers under the names that serving frameworks use."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from .. import Error, Problem, _core
from .._arrays import stream_handle, to_framework
from ._join import join, size_of
from ._state import (
    TOKEN_ALIGNMENT,
    activation_of,
    device_major,
    launch_policy,
    precision_of,
    refuse,
)
from ._views import INPUTS, POOLS, TESTS, slice_inputs, slicer_of, snapshot_views
from ._weights import WeightsCache

_by_address: weakref.WeakValueDictionary[int, SymmBuffer] = weakref.WeakValueDictionary()


def address_of(array: Any) -> int:
    return int(array.data_ptr()) if hasattr(array, "data_ptr") else int(array.ctypes.data)


def buffer_of_view(x: Any) -> SymmBuffer | None:
    """The buffer whose view `x` is, from its first row."""
    return _by_address.get(address_of(x))


def _problem(
    num_ranks: int,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    num_shared_experts: int | bool,
    use_fp8_dispatch: bool | str | None,
    mma_type: str,
    activation: str,
) -> Problem:
    if isinstance(num_shared_experts, bool):
        # The older form: (..., use_fp8_dispatch, activation) as 7th and 8th argument.
        if isinstance(use_fp8_dispatch, str):
            activation = use_fp8_dispatch
        use_fp8_dispatch, num_shared_experts = num_shared_experts, 0
    precision = precision_of(mma_type)
    if use_fp8_dispatch is not None and bool(use_fp8_dispatch) != (precision != "bf16"):
        raise refuse(
            f"use_fp8_dispatch = {use_fp8_dispatch} with mma_type = {mma_type!r}; tokens travel in "
            "the format of the activations"
        )
    return Problem(
        ranks=num_ranks,
        experts=num_experts,
        top_k=num_topk,
        hidden=hidden,
        intermediate=intermediate_hidden,
        max_tokens_per_rank=-(-num_max_tokens_per_rank // TOKEN_ALIGNMENT) * TOKEN_ALIGNMENT,
        precision=precision,
        activation=activation_of(activation),
        shared_experts=num_shared_experts,
    )


class SymmBuffer:
    """One rank's symmetric buffer. It serves all layers of a model, in stream order.

    Attributes: group, buffer (bytes; .nbytes), handle.buffer_ptrs (each rank's address here),
    num_experts, num_max_tokens_per_rank (rounded up), num_topk, hidden, intermediate_hidden,
    mma_type. P = num_max_tokens_per_rank, K = num_topk, H = hidden, I = intermediate_hidden, R = the
    rows that the last dispatch_only brought (0 before the first). NumPy has e4m3 as uint8, BF16 as
    uint16.

      view                   dtype    shape          meaning
      x                      e4m3     [P, H]         tokens; BF16 for bf16xbf16
      x_sf                   float32  [P, H / 128]   their scales; none for bf16xbf16
      topk_idx               int64    [P, K]         experts, -1 = skip
      topk_weights           float32  [P, K]         their weights
      l1_acts                e4m3     [R, H]         rows by local expert, then source rank, then token
      l1_acts_sf             float32  [R, H / 128]   their scales
      l2_acts                e4m3     [R, I]         zeros: a dispatch computes nothing
      l2_acts_sf             float32  [R, I / 128]   zeros
      l1_topk_weights        float32  [R]            weight of each row
      expert_recv_count_sum  int64    [experts per rank]  rows of each local expert
      l1_arrival_count       int32    [blocks]       rows that arrived in each block of an expert
      token_src_metadata     int32    [R, 3]         source rank, token, slot of each row

    The first four are the buffer's memory; the others, of which GPUs from sm_100 on have the first
    four only, are copies. shared_l1_acts_sf is a place like x_sf that callers may write and nothing
    reads: shared experts take the scales of x_sf.
    """

    def __init__(self, group: Any, problem: Problem, mma_type: str) -> None:
        self.group = group
        self.num_experts = problem.experts
        self.num_max_tokens_per_rank = problem.max_tokens_per_rank
        self.num_topk = problem.top_k
        self.hidden = problem.hidden
        self.intermediate_hidden = problem.intermediate
        self.mma_type = mma_type
        self.num_shared_experts = problem.shared_experts
        self._group: Any
        self._group, self._local_rank = join(group, problem)
        self._most_tokens = problem.ranks * problem.max_tokens_per_rank
        self._launch = launch_policy()
        self._weights = WeightsCache()
        self._rank_layer = self._group.layer(self._local_rank)
        self._counts: Any = None  #: of calls with statistics in 32 bits
        core, device = self._group._open(), self._layer.device
        self.buffer = to_framework(core.region(self._local_rank), device)
        pointers = core.region_addresses(self._local_rank)
        self.handle = SimpleNamespace(buffer_ptrs=pointers)
        self.x, self.x_sf, self.topk_idx, self.topk_weights = slice_inputs(problem, self.buffer)
        self.shared_l1_acts_sf = self.x_sf.clone() if device >= 0 else self.x_sf.copy()
        self._show(None, TOKEN_ALIGNMENT)
        _by_address[address_of(self.x)] = self

    @property
    def _layer(self) -> Any:
        if self._group is None:
            raise Error("invalid_argument", "this SymmBuffer was destroyed")
        return self._rank_layer

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views: 12 on Hopper, 8 on later GPUs."""
        return (*INPUTS, *POOLS, *(() if device_major() >= 10 else TESTS))

    def _show(self, rows: Any, block_rows: int) -> None:
        device = self._layer.device
        for name, view in snapshot_views(self._layer.problem, rows, block_rows).items():
            if name in self.view_names:
                if device >= 0 and "torch" in sys.modules:
                    torch = sys.modules["torch"]
                    view = torch.from_numpy(view.copy()).to(f"cuda:{device}")
                setattr(self, name, view)

    def check(self) -> Any:
        """Layer.check: raises the recorded fault, if any."""
        return self._layer.check()

    def reset(self) -> None:
        """Group.reset, collective."""
        self._layer.reset()

    def destroy(self) -> None:
        """Ends the buffer; may be called again. Its views must not be used afterwards."""
        if self._group is None:
            return
        for name in (*self.view_names, "buffer", "shared_l1_acts_sf"):
            setattr(self, name, None)
        self._group = self._rank_layer = self._counts = None
        self._weights = WeightsCache()


def get_symm_buffer_for_mega_moe(
    group: Any,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    num_shared_experts: int = 0,
    use_fp8_dispatch: bool | None = None,
    mma_type: str = "fp8xfp4",
    activation: str = "swiglu",
) -> SymmBuffer:
    """The buffer of this rank. Collective: every rank of `group` calls with the same values.

    group: torch.distributed's process group, a Seat of a LocalGroup, or None for one rank. Where torch
    has a GPU, ranks are on GPUs, but those of OnCpu(group) and of a LocalGroup without devices. On
    Hopper 'fp8xfp4' takes FP8 weights as well: the call decides.
    """
    sizes = (num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden)
    problem = _problem(
        size_of(group), *sizes, num_shared_experts, use_fp8_dispatch, mma_type, activation
    )
    return SymmBuffer(group, problem, mma_type)


def get_symm_buffer_for_sm90_mega_moe(
    group: Any,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    num_shared_experts: int = 0,
    use_fp8_dispatch: bool | None = None,
    mma_type: str = "fp8xfp4",
    activation: str = "swiglu",
) -> SymmBuffer:
    """get_symm_buffer_for_mega_moe under its other name."""
    sizes = (num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden)
    return get_symm_buffer_for_mega_moe(
        group, *sizes, num_shared_experts, use_fp8_dispatch, mma_type, activation
    )


def get_symm_buffer_size_for_mega_moe(
    num_ranks: int,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    num_shared_experts: int = 0,
    use_fp8_dispatch: bool | None = None,
    mma_type: str = "fp8xfp4",
    activation: str = "swiglu",
) -> tuple[int, Callable[[Any], tuple[Any, ...]]]:
    """(bytes, slicer): `slicer(buffer)` gives the views of SymmBuffer, in its order, from a buffer of
    so many bytes; those that are no part of it have no rows."""
    sizes = (num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden)
    problem = _problem(
        num_ranks, *sizes, num_shared_experts, use_fp8_dispatch, mma_type, activation
    )
    return _core.layout(problem)["bytes"], slicer_of(problem, device_major())


def get_symm_buffer_size_for_sm90_mega_moe(
    num_ranks: int,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    num_shared_experts: int = 0,
    use_fp8_dispatch: bool | None = None,
    mma_type: str = "fp8xfp4",
    activation: str = "swiglu",
) -> tuple[int, Callable[[Any], tuple[Any, ...]]]:
    """get_symm_buffer_size_for_mega_moe under its other name."""
    sizes = (num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden)
    return get_symm_buffer_size_for_mega_moe(
        num_ranks, *sizes, num_shared_experts, use_fp8_dispatch, mma_type, activation
    )


def get_token_alignment_for_mega_moe() -> int:
    """What num_max_tokens_per_rank is rounded up to a multiple of."""
    return TOKEN_ALIGNMENT


def get_token_alignment_for_sm90_mega_moe() -> int:
    """get_token_alignment_for_mega_moe under its other name."""
    return TOKEN_ALIGNMENT


def get_block_m_for_mega_moe(
    num_ranks: int,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_tokens: int,
    num_topk: int,
    mma_type: str = "fp8xfp4",
    global_num_tokens: int | None = None,
) -> int:
    """Rows of a block in a call that brings num_tokens to this rank."""
    if num_tokens < 0:
        raise refuse(f"num_tokens = {num_tokens} is negative")
    precision = precision_of(mma_type)
    problem = Problem(
        ranks=num_ranks,
        experts=num_experts,
        top_k=num_topk,
        hidden=128,
        intermediate=128,
        max_tokens_per_rank=max(num_max_tokens_per_rank, 1),
        precision=precision,
    )
    tokens = num_tokens * num_ranks if global_num_tokens is None else global_num_tokens
    return _core.block_rows(problem, tokens)


def dispatch_only(buffers: Sequence[SymmBuffer], num_tokens: Sequence[int]) -> None:
    """Brings what is staged to its experts' ranks and computes nothing: fills the pool views and the
    test views of `buffers`, those of all ranks of this process. Every rank must dispatch; it waits
    for the end. For tests."""
    if not buffers or len(buffers) != len(num_tokens):
        raise refuse(f"{len(buffers)} buffers, {len(num_tokens)} token counts")
    ordered = sorted(range(len(buffers)), key=lambda i: buffers[i]._local_rank)
    first = buffers[0]._layer.group
    if any(b._layer.group is not first for b in buffers) or len(buffers) != len(first.layers):
        raise refuse(
            f"{len(buffers)} buffers; needed: those of all {len(first.layers)} local ranks"
        )
    core = first._open()
    streams = [stream_handle(None, core.device(i)) for i in range(len(buffers))]
    counts = [num_tokens[i] for i in ordered]
    found = core.dispatch(counts, _core.CallOptions(), streams if core.device(0) >= 0 else [])
    for i, rows in zip(ordered, found):
        block = _core.block_rows(first.problem, num_tokens[i] * first.problem.ranks)
        buffers[i]._show(rows, block)
