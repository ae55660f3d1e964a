"""FlashInfer: a kernel for its MoEEpMegaLayer, by the name that MegamoeConfig has.

from megamoe.integrations import flashinfer
flashinfer.register()
config = flashinfer.MegamoeConfig(intermediate_size=2048, top_k=8)
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from .. import Error, deep_gemm

CORE = "flashinfer.moe_ep.core.kernel"
NAME = "megamoe_fp8"


@dataclass
class MegamoeConfig:
    """What one layer needs beside FlashInfer's FleetParams."""

    intermediate_size: int
    top_k: int
    activation: str = "swiglu"
    activation_clamp: float | None = None
    fast_math: bool = True
    kernel_name: str = NAME


def _refuse(what: str, found: Any, needed: Any) -> Error:
    return Error("invalid_argument", f"{what} is {found}; needed: {needed}")


def prepare(weights: Any) -> tuple[Any, Any]:
    """(l1, l2) as the kernel takes them from a MoEWeightPack with FP8 w13 and w2 [experts, rows,
    columns] and 128 x 128 scales."""
    for name in ("w13_scale", "w2_scale"):
        if getattr(weights, name, None) is None:
            raise _refuse(name, None, "FP8 weights with float32 scales of 128 x 128")
    l1, l2 = (weights.w13, weights.w13_scale), (weights.w2, weights.w2_scale)
    return deep_gemm.transform_weights_for_mega_moe(l1, l2)


def check_weights(transformed: Any, experts: int, hidden: int, intermediate: int) -> None:
    """Raises Error unless `transformed` is what prepare gives for this layer."""
    (w1, s1), (w2, s2) = transformed
    wanted = {
        "w1": (w1, (experts, 2 * intermediate, hidden)),
        "w1 scales": (s1, (experts, 2 * intermediate // 128, hidden // 128)),
        "w2": (w2, (experts, hidden, intermediate)),
        "w2 scales": (s2, (experts, hidden // 128, intermediate // 128)),
    }
    for name, (array, shape) in wanted.items():
        if tuple(array.shape) != shape:
            raise _refuse(f"the shape of {name}", tuple(array.shape), shape)


def stage(tensors: Any, workspace: Any, quantize_input: bool) -> None:
    """Puts the tokens of a MoEEpTensors into the buffer; its further rows get no expert."""
    count = tensors.hidden_states.shape[0]
    if quantize_input:
        deep_gemm.mega_moe_pre_dispatch_sm90(
            tensors.hidden_states,
            tensors.topk_ids,
            tensors.topk_weights,
            workspace.x,
            workspace.x_sf,
            workspace.topk_idx,
            workspace.topk_weights,
            num_tokens=count,
        )
        return
    if tensors.scales is None:
        raise _refuse("scales", None, "float32 [tokens, hidden / 128] beside FP8 hidden states")
    workspace.x[:count] = tensors.hidden_states
    workspace.x_sf[:count] = tensors.scales
    workspace.topk_idx[:count], workspace.topk_idx[count:] = tensors.topk_ids, -1
    workspace.topk_weights[:count] = tensors.topk_weights


class Kernel:
    """What the kernel does; register joins it to FlashInfer's class."""

    def __init__(self, config: MegamoeConfig) -> None:
        super().__init__(config)
        self._config = config

    @classmethod
    def kernel_name(cls) -> str:
        return NAME

    def validate_init(self, bootstrap: Any, fleet_params: Any) -> None:
        deep_gemm.get_symm_buffer_size_for_mega_moe(
            bootstrap.world_size, *self._sizes(fleet_params), mma_type="fp8xfp8"
        )

    def _sizes(self, fleet_params: Any) -> tuple[int, ...]:
        return (
            fleet_params.num_experts,
            fleet_params.max_tokens_per_rank,
            self._config.top_k,
            fleet_params.token_hidden_size,
            self._config.intermediate_size,
        )

    def preprocess_weights(self, weights: Any, fleet_params: Any) -> Any:
        return prepare(weights)

    def validate_transformed_weights(
        self, transformed_weights: Any, bootstrap: Any, fleet_params: Any
    ) -> None:
        experts = fleet_params.num_experts // bootstrap.world_size
        hidden = fleet_params.token_hidden_size
        check_weights(transformed_weights, experts, hidden, self._config.intermediate_size)

    def _allocate_workspace(self, fleet_params: Any) -> Any:
        return deep_gemm.get_symm_buffer_for_mega_moe(
            self.ep_comm_group, *self._sizes(fleet_params), mma_type="fp8xfp8"
        )

    def validate_forward(self, t: Any, fleet_params: Any, *, quantize_input: bool) -> None:
        count, most = t.hidden_states.shape[0], fleet_params.max_tokens_per_rank
        if count > most:
            raise _refuse("the number of tokens", count, f"at most {most}")

    def stage_inputs(self, t: Any, workspace: Any, *, quantize_input: bool) -> None:
        stage(t, workspace, quantize_input)

    def compute(self, workspace: Any, transformed_weights: Any, *, output: Any) -> Any:
        deep_gemm.fp8_mega_moe(
            output,
            *transformed_weights,
            workspace,
            activation=self._config.activation,
            activation_clamp=self._config.activation_clamp,
            fast_math=self._config.fast_math,
        )
        return output

    def destroy(self, workspace: Any) -> None:
        if workspace is not None:
            workspace.destroy()


def register() -> type:
    """Registers the kernel with FlashInfer, and returns its class; may be called again."""
    base = importlib.import_module(f"{CORE}.base").MegaKernelBackend
    registry = importlib.import_module(f"{CORE}.registry")
    return registry.register_mega_kernel(NAME)(type("MegamoeKernel", (Kernel, base), {}))
