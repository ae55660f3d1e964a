"""A torch operator around one layer, for torch.compile and piecewise capture.

    from megamoe.integrations import torch_op
    torch_op.register()
    handle = torch_op.add(layer, weights)
    y = torch.ops.megamoe.layer(hidden_states, topk_idx, topk_weights, handle)

The operator stages the tokens and starts the call, in the order of the current stream. Its shape
function knows sizes and types alone, so a compiler can trace it without a GPU.
"""

from __future__ import annotations

import itertools
from typing import Any

from .. import Error, Layer, Weights

_layers: dict[int, tuple[Layer, Weights, Weights | None, dict[str, Any]]] = {}
_next = itertools.count(1)
_operator: Any = None


def add(layer: Layer, weights: Weights, shared: Weights | None = None, **options: Any) -> int:
    """A handle for the operator's last argument. Keeps what it is given until remove. options: those
    of Layer.forward."""
    handle = next(_next)
    _layers[handle] = (layer, weights, shared, options)
    return handle


def remove(handle: int) -> None:
    """Forgets a handle; graphs that were captured with it must not be replayed afterwards."""
    _layers.pop(handle, None)


def register() -> Any:
    """Defines torch.ops.megamoe.layer, and returns it; may be called again. Needs torch."""
    global _operator
    if _operator is not None:
        return _operator
    import torch

    def run(
        hidden_states: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: int,
    ) -> torch.Tensor:
        if handle not in _layers:
            raise Error("invalid_argument", f"handle = {handle} is none that torch_op.add gave")
        layer, weights, shared, options = _layers[handle]
        y = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        layer.stage(hidden_states, topk_idx, topk_weights)
        layer.forward(y, weights, shared=shared, **options)
        return y

    def shape(
        hidden_states: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: int,
    ) -> torch.Tensor:
        return torch.empty_like(hidden_states, memory_format=torch.contiguous_format)

    # The annotations are strings in this module: the schema is given.
    schema = "(Tensor hidden_states, Tensor topk_idx, Tensor topk_weights, int handle) -> Tensor"
    operator = torch.library.custom_op("megamoe::layer", run, mutates_args=(), schema=schema)
    operator.register_fake(shape)
    _operator = operator
    return operator
