"""One rank of a group: staging and calls."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core
from ._arrays import (
    Array,
    pad_columns,
    plain_address,
    raw,
    stream_handle,
    to_framework,
    widened,
)
from ._core import Problem
from ._error import Error
from ._weights import Weights, core_of

if TYPE_CHECKING:
    from ._group import Group


class Inputs(NamedTuple):
    """The input region of one rank: views of its memory.

    x             uint8 (e4m3 codes) [capacity, hidden], or uint16 (BF16 bits)
    x_scales      float32 [capacity, hidden / 128]; mxfp8_mxfp4: uint8 [capacity, hidden / 32]; bf16: None
    topk_idx      int64 [capacity, top_k], -1 = no expert
    topk_weights  float32 [capacity, top_k]
    """

    x: Any
    x_scales: Any
    topk_idx: Any
    topk_weights: Any


@dataclass(frozen=True)
class CallReport:
    """What the last finished call of a Layer did."""

    epoch: int  #: calls finished since creation or reset
    config: str  #: the configuration that ran, readable
    rows_received: int  #: token-expert pairs computed here, shared experts excluded
    bad_id: tuple[int, int, int] | None  #: (token, slot, value) of the first invalid expert id


@dataclass(frozen=True)
class MemoryReport:
    """Bytes that a Layer holds."""

    symmetric_bytes: int
    local_bytes: int
    map: str  #: one line per buffer: offset, bytes, name, shape


class Layer:
    """One local rank of a Group; `Group.layer` and `Group.layers` give it."""

    def __init__(self, group: Group, local_rank: int) -> None:
        self._group: Group | None = group
        self._index = local_rank
        core = group._open()
        self._device = core.device(local_rank)
        self._hidden = core.problem.hidden
        self._experts = core.problem.experts_per_rank
        self._last: tuple[Any, ...] = ()
        self._captured: dict[int, Any] = {}
        self._copies_back = False

    def _open(self) -> _core.Group:
        return self.group._open()

    @property
    def group(self) -> Group:
        if self._group is None:
            raise Error("invalid_argument", "this Layer was destroyed")
        return self._group

    @property
    def rank(self) -> int:
        return self._open().rank(self._index)

    @property
    def device(self) -> int:
        """The rank's GPU; -1: host memory."""
        self._open()
        return self._device

    @property
    def problem(self) -> Problem:
        return self._open().problem

    @property
    def inputs(self) -> Inputs:
        """Views of the input region: what `stage` fills, and a caller may fill instead."""
        device = self.device
        return Inputs(*(to_framework(v, device) for v in self._open().inputs(self._index)))

    def stage(
        self,
        hidden_states: Array,
        topk_idx: Array,
        topk_weights: Array,
        *,
        routed_scaling: float = 1.0,
        stream: Any = None,
    ) -> None:
        """Quantises BF16 hidden states [tokens, hidden] into the input region, with their expert ids
        [tokens, top_k] (int32 or int64) and weights [tokens, top_k] (FP32, times routed_scaling). The
        rest of the capacity gets id -1. On a GPU in the order of `stream`. Hidden states of a size
        that the problem's is padded from (2880 for 2944) are copied with zeros behind."""
        core = self._open()
        core.stage(
            self._index,
            pad_columns(raw(hidden_states), self._hidden),
            raw(topk_idx),
            raw(topk_weights),
            routed_scaling,
            stream_handle(stream, self._device),
        )

    def forward(
        self,
        y: Array,
        weights: Weights,
        *,
        shared: Weights | None = None,
        global_num_tokens: int | None = None,
        num_sms: int = 0,
        reserved_sms: int | None = None,
        deadline: float = 30.0,
        first_deadline: float | None = None,
        fast_math: bool = False,
        block_rows: int = 0,
        recv_stats: Array | None = None,
        stream: Any = None,
    ) -> None:
        """This rank's part of one call; every rank must call. The rows of `y`, BF16 [tokens, hidden],
        are the tokens of the call.

        On the CPU it returns when the call has ended, and raises its fault. On a GPU it starts the
        call in the order of `stream`, may be captured into a graph, and leaves faults to check().
          shared             weights of the shared experts, when the problem has some
          global_num_tokens  tokens that the whole group brings, for the choice of tiles
          num_sms            most SMs to use; 0: the default
          reserved_sms       SMs left free for other kernels; None: as MEGAMOE_RESERVED_SMS says, else 0
                             on Hopper and 2 on later GPUs
          deadline           seconds that any wait of the call may last, up to 360000
          first_deadline     the same for the first call; None: on a GPU at least 60
          fast_math          faster exponential and reciprocal in the activation
          block_rows         rows of a block: 8, 16, 32, 64, 128; 0: chosen
          recv_stats         int64 [experts per rank], to which the rows received are added

        y may have the model's size that the problem's is padded from: with the padded size as the
        stride of its rows it is written in place, else through an array that is allocated.
        What the last call was given is held until the next; weights, shared and recv_stats of
        captured calls as long as this Layer.
        """
        options = call_options(
            global_num_tokens,
            num_sms,
            reserved_sms,
            deadline,
            first_deadline,
            fast_math,
            block_rows,
        )
        self._call(y, weights, shared, options, recv_stats, stream)

    def run(
        self,
        y: Array,
        hidden_states: Array,
        topk_idx: Array,
        topk_weights: Array,
        weights: Weights,
        *,
        parts: int = 1,
        routed_scaling: float = 1.0,
        stream: Any = None,
        **options: Any,
    ) -> None:
        """stage and forward, in `parts` calls one after another: the way to bring more tokens than
        the capacity. Every rank must give the same number of parts. options: those of forward;
        global_num_tokens is that of all parts together."""
        count, most = int(y.shape[0]), self._open().problem.max_tokens_per_rank
        if parts < 1 or -(-count // parts) > most:
            needed = max(1, -(-count // most)) if most > 0 else 1
            raise Error(
                "invalid_argument",
                f"{count} tokens in {parts} parts; max_tokens_per_rank = {most} needs at least "
                f"{needed}, and the same number on every rank",
            )
        for name, array in (
            ("hidden_states", hidden_states),
            ("topk_idx", topk_idx),
            ("topk_weights", topk_weights),
        ):
            if int(array.shape[0]) != count:
                raise Error("invalid_argument", f"{name} has {array.shape[0]} rows; y has {count}")
        if options.get("global_num_tokens") is not None:
            options["global_num_tokens"] = -(-options["global_num_tokens"] // parts)
        for part in range(parts):
            rows = slice(count * part // parts, count * (part + 1) // parts)
            self.stage(
                hidden_states[rows],
                topk_idx[rows],
                topk_weights[rows],
                routed_scaling=routed_scaling,
                stream=stream,
            )
            self.forward(y[rows], weights, stream=stream, **options)

    def _call(
        self,
        y: Array,
        weights: Weights,
        shared: Weights | None,
        options: _core.CallOptions,
        recv_stats: Array | None,
        stream: Any,
    ) -> None:
        core, device = self._open(), self._device
        handle = stream_handle(stream, device)
        routed = core_of(weights)
        beside = None if shared is None else core_of(shared)
        self._last = (y, weights, shared, recv_stats)
        place = plain_address(y, "bfloat16", 2, self._hidden, device)
        counts: int | None = 0
        if recv_stats is not None:
            counts = plain_address(recv_stats, "int64", 1, self._experts, device)
        if place is not None and counts is not None:
            captured = core.forward_at(
                self._index, place, y.shape[0], routed, beside, options, counts, handle
            )
        else:
            captured = self._call_arrays(y, routed, beside, options, recv_stats, stream, handle)
        if captured:
            self._keep()

    def _call_arrays(
        self,
        y: Array,
        weights: _core.Weights,
        shared: _core.Weights | None,
        options: _core.CallOptions,
        recv_stats: Array | None,
        stream: Any,
        handle: int,
    ) -> bool:
        """The call through DLPack, which says what is wrong with an array."""
        out, back = widened(raw(y), self._hidden)
        if back is not None and self._device >= 0:
            if stream is not None:
                raise Error(
                    "invalid_argument",
                    f"y has {back.shape[1]} channels of {self._hidden} and a stream is given; "
                    f"needed: rows of stride {self._hidden}, or the current stream",
                )
            if not self._copies_back:
                # Loads the kernel of the copy behind the call: loading waits for running kernels, and
                # the call's waits for ranks that this thread may not have started yet.
                back[...] = out[:, : back.shape[1]]
                self._copies_back = True
        captured = self._open().forward(
            self._index, out, weights, shared, options, raw(recv_stats), handle
        )
        if back is not None:
            back[...] = out[:, : back.shape[1]]
        return captured

    def _keep(self) -> None:
        """Keeps what the last call was given for the graph that has captured it, but y, which is the
        graph's memory or that of whoever captures."""
        for held in self._last[1:]:
            self._captured[id(held)] = held

    def check(self) -> CallReport:
        """Raises the recorded fault, if any; otherwise says what the last finished call did. Waits
        for nothing: on a GPU call synchronize() first."""
        return CallReport(**self._open().check(self._index))

    def synchronize(self) -> None:
        """Waits until the last call and staging of this rank are over."""
        self._open().synchronize_layer(self._index)

    def set_deadlines(self, deadline: float, first_deadline: float) -> None:
        """Deadlines in seconds of captured calls, from their next replay on."""
        self._open().set_deadlines(self._index, deadline, first_deadline)

    def abort(self) -> None:
        """Releases every peer that waits for this rank."""
        self._open().abort(self._index)

    def reset(self) -> None:
        """Group.reset."""
        self.group.reset()

    def memory_report(self) -> MemoryReport:
        return MemoryReport(*self._open().memory_report(self._index))

    def destroy(self) -> None:
        """Ends this handle; the memory goes with the Group. May be called again."""
        self._group = None
        self._last, self._captured = (), {}

    def __enter__(self) -> Layer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()


@functools.lru_cache(maxsize=256)
def call_options(
    global_num_tokens: int | None,
    num_sms: int,
    reserved_sms: int | None,
    deadline: float,
    first_deadline: float | None,
    fast_math: bool,
    block_rows: int,
    activation: _core.Activation | None = None,
    precision: str | None = None,
) -> _core.CallOptions:
    """The library's options; equal ones are made once."""
    return _core.CallOptions(
        global_num_tokens=global_num_tokens,
        num_sms=num_sms,
        reserved_sms=reserved_sms,
        deadline=deadline,
        first_deadline=first_deadline,
        fast_math=fast_math,
        block_rows=block_rows,
        activation=activation,
        precision=precision,
    )
