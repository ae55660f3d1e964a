"""Groups of ranks and their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from . import _core
from ._arrays import Array, raw, stream_handle, to_framework
from ._core import Problem
from ._error import Error
from ._weights import Weights, core_of


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


class Group:
    """A Problem on a set of ranks, with one Layer for each rank that lives in this process.

    memory: where the ranks are.
      host            all ranks on the CPU backend of this process (for tests)
      host_virtual    the same, all ranks of a call in one launch
      shared          one rank on the CPU of each process of one machine
      cuda_virtual    up to 8 virtual ranks on the GPU devices[0], or on the current one
      cuda_peers      one rank on each GPU of `devices`, all driven by this process
      cuda_processes  one rank in each process, on the GPU devices[0], or on the current one
      pointers        regions that the caller has mapped, one for each rank, at `addresses` and of
                      `bytes` bytes; devices[0] as above, -2: host memory
    Processes meet through `all_gather` (bytes in, the bytes of all ranks out), else over TCP where
    rank 0 listens (`address`, `port`), else in shared memory under `name`, the group's own; `rank`
    is this process's, `deadline` the seconds for each collective step.
    Collective. Raises Error, on all ranks, where they do not agree or one cannot run the problem.
    """

    def __init__(
        self,
        problem: Problem,
        memory: str = "host",
        *,
        devices: Sequence[int] = (),
        name: str = "",
        rank: int = 0,
        deadline: float = 60.0,
        address: str = "",
        port: int = 0,
        all_gather: Callable[[bytes], Sequence[bytes]] | None = None,
        addresses: Sequence[int] = (),
        bytes: int = 0,
    ) -> None:
        self._core: _core.Group | None = None
        self._one_launch = memory.endswith("_virtual")
        joining = _core.Joining(
            name=name,
            rank=rank,
            deadline=deadline,
            address=address,
            port=port,
            all_gather=all_gather,
            addresses=list(addresses),
            bytes=bytes,
        )
        self._core = _core.Group(problem, memory, list(devices), joining)
        self._layers = tuple(Layer(self, i) for i in range(self._core.num_local_ranks))

    def _open(self) -> _core.Group:
        if self._core is None:
            raise Error("invalid_argument", "this Group was destroyed")
        return self._core

    @property
    def problem(self) -> Problem:
        return self._open().problem

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the local ranks."""
        self._open()
        return self._layers

    def layer(self, local_rank: int) -> Layer:
        layers = self.layers
        if not 0 <= local_rank < len(layers):
            raise Error(
                "invalid_argument", f"local_rank = {local_rank} is outside 0..{len(layers) - 1}"
            )
        return layers[local_rank]

    def forward(
        self,
        y: Sequence[Array],
        weights: Sequence[Weights],
        *,
        shared: Sequence[Weights] = (),
        global_num_tokens: int | None = None,
        num_sms: int = 0,
        reserved_sms: int | None = None,
        deadline: float = 30.0,
        first_deadline: float | None = None,
        fast_math: bool = False,
        block_rows: int = 0,
        recv_stats: Array | None = None,
        streams: Sequence[Any] | None = None,
    ) -> None:
        """One call on all local ranks together, `y[i]` BF16 [tokens of local rank i, hidden].

        recv_stats: int64 [local ranks, experts per rank], to which the rows received are added.
        streams: one for each local rank (virtual ranks: one), or one for all; default: the current
        ones. Other arguments
        as for Layer.forward.
        """
        core = self._open()
        options = _core.CallOptions(
            global_num_tokens=global_num_tokens,
            num_sms=num_sms,
            reserved_sms=reserved_sms,
            deadline=deadline,
            first_deadline=first_deadline,
            fast_math=fast_math,
            block_rows=block_rows,
        )
        core.forward_all(
            [raw(array) for array in y],
            [core_of(w) for w in weights],
            [core_of(w) for w in shared],
            options,
            raw(recv_stats),
            self._streams(streams),
        )

    def _streams(self, streams: Sequence[Any] | None) -> list[int]:
        """A handle for each launch of a call: one for virtual ranks, none in host memory."""
        core = self._open()
        launches = 1 if self._one_launch else core.num_local_ranks
        given = list(streams) if streams is not None else [None] * launches
        if len(given) not in (1, launches):
            raise Error(
                "invalid_argument",
                f"{len(given)} streams; needed: 1, or one for each of {launches} launches",
            )
        if core.device(0) < 0:
            return []
        given *= launches // len(given)
        return [stream_handle(stream, core.device(i)) for i, stream in enumerate(given)]

    def synchronize(self) -> None:
        """Waits until the last calls and staging of all local ranks are over."""
        self._open().synchronize()

    def reset(self) -> None:
        """Makes the group usable again after a fault. Collective; no call may be starting."""
        self._open().reset()

    def destroy(self) -> None:
        """Ends this handle, not collectively; the memory goes when no view of it is left and
        this process's calls have ended. May be called again."""
        self._core = None

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()


class Layer:
    """One local rank of a Group; `Group.layer` and `Group.layers` give it."""

    def __init__(self, group: Group, local_rank: int) -> None:
        self._group: Group | None = group
        self._index = local_rank

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
        return self._open().device(self._index)

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
        rest of the capacity gets id -1. On a GPU in the order of `stream`."""
        self._open().stage(
            self._index,
            raw(hidden_states),
            raw(topk_idx),
            raw(topk_weights),
            routed_scaling,
            stream_handle(stream, self.device),
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
        """
        options = _core.CallOptions(
            global_num_tokens=global_num_tokens,
            num_sms=num_sms,
            reserved_sms=reserved_sms,
            deadline=deadline,
            first_deadline=first_deadline,
            fast_math=fast_math,
            block_rows=block_rows,
        )
        self._call(y, weights, shared, options, recv_stats, stream)

    def _call(
        self,
        y: Array,
        weights: Weights,
        shared: Weights | None,
        options: _core.CallOptions,
        recv_stats: Array | None,
        stream: Any,
    ) -> None:
        self._open().forward(
            self._index,
            raw(y),
            core_of(weights),
            None if shared is None else core_of(shared),
            options,
            raw(recv_stats),
            stream_handle(stream, self.device),
        )

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

    def __enter__(self) -> Layer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()
