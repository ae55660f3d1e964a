"""Groups of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from . import _core
from ._arrays import Array, raw, stream_handle, widened
from ._core import Problem
from ._error import Error
from ._layer import Layer, call_options
from ._weights import Weights, core_of


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
        ones. Other arguments as for Layer.forward.
        """
        core = self._open()
        options = call_options(
            global_num_tokens,
            num_sms,
            reserved_sms,
            deadline,
            first_deadline,
            fast_math,
            block_rows,
        )
        outputs = [widened(raw(array), core.problem.hidden) for array in y]
        if streams is not None and core.device(0) >= 0 and any(b is not None for _, b in outputs):
            raise Error("invalid_argument", "y is narrower than hidden and streams are given")
        for layer, *given in zip(self._layers, y, weights, shared or [None] * len(y)):
            layer._last = (*given, recv_stats)
        captured = core.forward_all(
            [out for out, _ in outputs],
            [core_of(w) for w in weights],
            [core_of(w) for w in shared],
            options,
            raw(recv_stats),
            self._streams(streams),
        )
        if captured:
            for layer in self._layers:
                layer._keep()
        for out, back in outputs:
            if back is not None:
                back[...] = out[:, : back.shape[1]]

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
