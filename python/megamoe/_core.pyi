from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

class Activation:
    def __init__(
        self,
        kind: str = "swiglu",
        *,
        clamp: float = ...,
        alpha: float = 1.0,
        up_bias: float = 0.0,
        beta: float = 1.0,
        linear_beta: float = ...,
    ) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def clamp(self) -> float: ...
    @property
    def alpha(self) -> float: ...
    @property
    def up_bias(self) -> float: ...
    @property
    def beta(self) -> float: ...
    @property
    def linear_beta(self) -> float: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Problem:
    def __init__(
        self,
        *,
        ranks: int = 1,
        experts: int,
        top_k: int,
        hidden: int,
        intermediate: int,
        max_tokens_per_rank: int,
        precision: str = "fp8",
        activation: Activation = ...,
        shared_experts: int = 0,
    ) -> None: ...
    @property
    def ranks(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def top_k(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def intermediate(self) -> int: ...
    @property
    def max_tokens_per_rank(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def shared_experts(self) -> int: ...
    @property
    def experts_per_rank(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

class Weights:
    def __init__(
        self,
        precision: str,
        w1: Any,
        w2: Any,
        w1_scales: Any = None,
        w2_scales: Any = None,
        b1: Any = None,
        b2: Any = None,
    ) -> None: ...
    @property
    def precision(self) -> str: ...
    @property
    def num_experts(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def intermediate(self) -> int: ...

class CallOptions:
    def __init__(
        self,
        *,
        global_num_tokens: int | None = None,
        num_sms: int = 0,
        reserved_sms: int | None = None,
        deadline: float = 30.0,
        first_deadline: float | None = None,
        fast_math: bool = False,
        block_rows: int = 0,
        activation: Activation | None = None,
        precision: str | None = None,
    ) -> None: ...

class Joining:
    def __init__(
        self,
        *,
        name: str = "",
        rank: int = 0,
        deadline: float = 60.0,
        address: str = "",
        port: int = 0,
        all_gather: Callable[[bytes], Sequence[bytes]] | None = None,
        addresses: Sequence[int] = ...,
        bytes: int = 0,
    ) -> None: ...

class Group:
    def __init__(
        self,
        problem: Problem,
        memory: str,
        devices: Sequence[int],
        joining: Joining,
    ) -> None: ...
    @property
    def problem(self) -> Problem: ...
    @property
    def num_local_ranks(self) -> int: ...
    def device(self, local_rank: int) -> int: ...
    def rank(self, local_rank: int) -> int: ...
    def synchronize(self) -> None: ...
    def reset(self) -> None: ...
    def inputs(self, local_rank: int) -> tuple[Any, Any, Any, Any]: ...
    def region(self, local_rank: int) -> Any: ...
    def region_addresses(self, local_rank: int) -> list[int]: ...
    def stage(
        self,
        local_rank: int,
        hidden_states: Any,
        topk_idx: Any,
        topk_weights: Any,
        routed_scaling: float = 1.0,
        stream: int = 0,
    ) -> None: ...
    def forward(
        self,
        local_rank: int,
        y: Any,
        weights: Weights,
        shared: Weights | None,
        options: CallOptions,
        recv_stats: Any,
        stream: int = 0,
    ) -> bool: ...
    def forward_at(
        self,
        local_rank: int,
        y: int,
        rows: int,
        weights: Weights,
        shared: Weights | None,
        options: CallOptions,
        stats: int,
        stream: int,
    ) -> bool: ...
    def forward_all(
        self,
        y: list[Any],
        weights: list[Weights],
        shared: list[Weights],
        options: CallOptions,
        recv_stats: Any,
        streams: list[int],
    ) -> bool: ...
    def check(self, local_rank: int) -> dict[str, Any]: ...
    def synchronize_layer(self, local_rank: int) -> None: ...
    def set_deadlines(self, local_rank: int, deadline: float, first_deadline: float) -> None: ...
    def abort(self, local_rank: int) -> None: ...
    def memory_report(self, local_rank: int) -> tuple[int, int, str]: ...
    def dispatch(
        self, num_tokens: list[int], options: CallOptions, streams: list[int] = ...
    ) -> list[dict[str, np.ndarray]]: ...

def version() -> str: ...
def set_leak_warnings(value: bool) -> None: ...
def layout(problem: Problem) -> dict[str, int]: ...
def array_key(*arrays: Any) -> bytes | None: ...
def interleave(from_rows: Any, to_rows: Any, intermediate: int) -> None: ...
def find_devices() -> tuple[list[int], str]: ...
def launch_sms(arch: int, physical: int, current: int, reserve: int | None = None) -> int: ...
def environment_reserved_sms() -> int | None: ...
def reference(
    problem: Problem,
    inputs: list[Any],
    weights: list[Weights],
    shared: list[Weights],
    threads: int = 1,
) -> list[np.ndarray]: ...
def quantize_rows(hidden_states: Any) -> tuple[np.ndarray, np.ndarray]: ...
def compare(y: Any, reference: Any) -> tuple[float, float, int]: ...
def load_layer(
    path: str,
    layer: int,
    ranks: int = 1,
    rank: int = 0,
    precision: str | None = None,
    pad: bool = True,
    shared: bool = True,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]: ...
def block_rows(problem: Problem, global_num_tokens: int) -> int: ...
