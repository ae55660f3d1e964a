"""How the ranks of a buffer meet: in threads of this process, or as processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from .. import Error, Group, Problem
from ._state import cuda, refuse


class LocalGroup:
    """Ranks that are all driven by this process: on its CPU, or one on each GPU of `devices`.

    `seats[r]` stands for rank r wherever a process group is asked for.
    """

    def __init__(self, size: int, devices: Sequence[int] = ()) -> None:
        if devices and len(devices) != size:
            raise refuse(f"{len(devices)} devices for {size} ranks")
        self.devices = tuple(devices)
        self.seats = tuple(Seat(self, rank, size) for rank in range(size))
        self._lock = threading.Lock()
        self._made: dict[int, tuple[Group, int]] = {}  # nth buffer: its group, seats still to come

    def take(self, rank: int, count: int, problem: Problem) -> Group:
        """The group of a seat's buffer number `count`, made by the first seat that comes."""
        with self._lock:
            if count not in self._made:
                memory = "cuda_peers" if self.devices else "host"
                group = Group(problem, memory, devices=self.devices)
                self._made[count] = (group, len(self.seats))
            group, missing = self._made.pop(count)
            if missing > 1:
                self._made[count] = (group, missing - 1)
            if group.problem != problem:
                raise Error(
                    "disagreement", f"rank {rank} asks for {problem}, another for {group.problem}"
                )
            return group


class Seat:
    """One rank of a LocalGroup."""

    def __init__(self, local: LocalGroup, rank: int, size: int) -> None:
        self._local, self._rank, self._size = local, rank, size
        self._taken = 0

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def join(self, problem: Problem) -> Group:
        self._taken += 1
        return self._local.take(self._rank, self._taken - 1, problem)


class OnCpu:
    """A torch.distributed group whose ranks run on the CPU backend, also where there are GPUs."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.all_gather_bytes = gather_function(group)

    def rank(self) -> int:
        return int(self._group.rank())

    def size(self) -> int:
        return int(self._group.size())


def size_of(group: Any) -> int:
    return 1 if group is None else int(group.size())


def gather_function(group: Any) -> Any:
    """An all-gather of bytes: the group's own `all_gather_bytes`, else torch.distributed's."""
    if hasattr(group, "all_gather_bytes"):
        return group.all_gather_bytes
    torch = sys.modules.get("torch")
    if torch is None:
        raise refuse(f"group is {type(group).__name__}; needed: torch.distributed's, or a Seat")

    def all_gather(text: bytes) -> list[bytes]:
        found: list[Any] = [None] * int(group.size())
        torch.distributed.all_gather_object(found, text, group=group)
        return found

    return all_gather


def join(group: Any, problem: Problem) -> tuple[Group, int]:
    """(the Group, the local rank that `group` stands for). Collective."""
    if isinstance(group, Seat):
        return group.join(problem), group.rank()
    on_gpu = None if isinstance(group, OnCpu) else cuda()
    devices = [] if on_gpu is None else [int(on_gpu.current_device())]
    if size_of(group) == 1:
        # The one rank of a GPU has a launch of its own, as cuda_peers gives it.
        return Group(problem, "cuda_peers" if devices else "host", devices=devices), 0
    memory = "cuda_processes" if devices else "shared"
    gather = gather_function(group)
    return Group(problem, memory, devices=devices, rank=int(group.rank()), all_gather=gather), 0
