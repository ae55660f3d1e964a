"""One layer's experts out of a model's checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _core
from ._core import Activation, Problem
from ._weights import Weights


@dataclass(frozen=True)
class LoadedLayer:
    """One rank's experts of one layer, in host memory and in the kernel's order."""

    family: str  #: such as 'deepseek-v3'
    layer: int  #: index in the checkpoint
    hidden: int  #: the model's own size; Weights has the padded one
    intermediate: int  #: the same
    experts: int  #: routed experts of the whole layer
    top_k: int
    first_expert: int  #: global index of this rank's first
    activation: Activation
    routed_scaling: float
    routed: Weights
    shared: Weights | None  #: the same on every rank

    def problem(self, ranks: int, max_tokens_per_rank: int) -> Problem:
        """The Problem of this layer on so many ranks. Raises Error where shared experts have another
        precision than the routed ones, which one layer cannot run, and what Problem raises."""
        return Problem(
            ranks=ranks,
            experts=self.experts,
            top_k=self.top_k,
            hidden=self.routed.hidden,
            intermediate=self.routed.intermediate,
            max_tokens_per_rank=max_tokens_per_rank,
            precision=self.routed.precision,
            activation=self.activation,
            shared_experts=0 if self.shared is None else self.shared.num_experts,
        )


def load_layer(
    path: str | os.PathLike[str],
    layer: int,
    *,
    ranks: int = 1,
    rank: int = 0,
    precision: str | None = None,
    pad: bool = True,
    shared: bool = True,
    progress: Callable[[float], None] | None = None,
) -> LoadedLayer:
    """The experts of `layer` that belong to `rank` of `ranks`, from a folder with config.json and
    safetensors, or one of its files: the Hugging Face layouts of DeepSeek-V3 and V4, Kimi K2 and K3,
    Qwen3-MoE, GLM, MiniMax, Mixtral and gpt-oss.

    precision: the format wanted; None: the checkpoint's. pad: pads hidden and intermediate to multiples
    of 128 with zeros, else other sizes are refused. shared: also the shared experts. progress: told
    the part that is done. Weights.to brings the result to a GPU. Raises Error: invalid_file for
    what is missing or malformed, naming file and tensor.
    """
    found = _core.load_layer(os.fspath(path), layer, ranks, rank, precision, pad, shared, progress)
    return LoadedLayer(**(found | {name: _weights(found[name]) for name in ("routed", "shared")}))


def _weights(arrays: dict[str, Any] | None) -> Any:
    return None if arrays is None else Weights(**arrays)
