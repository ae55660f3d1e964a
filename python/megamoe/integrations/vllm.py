"""vLLM: a backend for FP8 on Hopper behind its factory get_deep_gemm_mega_moe_backend.

from megamoe.integrations import vllm
vllm.install()            # in a plug-in, before models are built
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from .. import Error, deep_gemm
from .._arrays import is_torch
from ._patch import Patch, use_layer_functions

FACTORY = "get_deep_gemm_mega_moe_backend"
HOME = "vllm.model_executor.layers.fused_moe.deep_gemm_mega_moe"


def install() -> Patch:
    """Replaces the factory, in its home and where it was imported by name, by one that gives
    Hopper GPUs this library's backend and others what vLLM has; and gives the deep_gemm module that
    vLLM uses this library's fused layer while the current GPU is a Hopper. `undo()` of what it
    returns takes it back."""
    home = importlib.import_module(HOME)
    original = getattr(home, FACTORY)
    backend = make_backend(home)

    def factory(device: Any, hidden_size: int, intermediate_size: int) -> Any:
        if not is_hopper(device):
            return original(device, hidden_size, intermediate_size)
        if hidden_size % 128 != 0 or intermediate_size % 128 != 0:
            raise ValueError(
                f"hidden_size = {hidden_size}, intermediate_size = {intermediate_size}; megamoe needs "
                "multiples of 128"
            )
        return backend()

    patch = Patch()
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm") and getattr(module, FACTORY, None) is original:
            patch.set(module, FACTORY, factory)
    if is_hopper(None):
        for name in ("vllm.third_party.deep_gemm", "deep_gemm"):
            if name in sys.modules and sys.modules[name] is not deep_gemm:
                use_layer_functions(patch, sys.modules[name])
    return patch


def is_hopper(device: Any) -> bool:
    """Whether this torch device, None: the current one, has compute capability 9."""
    torch = sys.modules["torch"]
    return torch.cuda.is_available() and torch.cuda.get_device_capability(device)[0] == 9


def interleaved_part(parameter: Any, half: int) -> Any:
    """The gate (half 0) or up (1) rows of an interleaved matrix [2 I, columns], as a view [I / 8, 8,
    columns]."""
    return parameter.reshape(-1, 2, 8, parameter.shape[-1])[:, half]


def load_shard(dst: Any, src: Any, shard_id: str, is_scale: bool) -> None:
    """Writes a checkpoint's matrix w1 (gate), w3 (up) or w2, or its 128 x 128 scales, of one expert
    into this library's order."""
    if shard_id not in ("w1", "w2", "w3"):
        raise ValueError(f"shard_id = {shard_id!r}; known: w1, w2, w3")
    rows = dst.shape[0] // (1 if shard_id == "w2" else 2)
    if tuple(src.shape) != (rows, dst.shape[1]):
        raise ValueError(
            f"{shard_id} {'scales' if is_scale else 'weights'} have shape {tuple(src.shape)}; needed: "
            f"({rows}, {dst.shape[1]})"
        )
    half = 0 if shard_id == "w1" else 1
    if shard_id == "w2":
        dst[:] = src
    elif is_scale:
        dst[half * rows : (half + 1) * rows] = src
    else:
        interleaved_part(dst, half)[:] = src.reshape(-1, 8, src.shape[-1])


def expert_views(*arrays: Any) -> list[Any]:
    """Views [experts, bytes or elements of one] for load balancing, which moves experts as they lie."""
    return [array.reshape(array.shape[0], -1) for array in arrays]


def stage_tokens(
    buffer: Any, hidden_states: Any, topk_ids: Any, topk_weights: Any, padding: Any = None
) -> None:
    """Quantises tokens into a buffer. `padding`, bool [tokens], marks rows that only fill a captured
    graph's size: they visit no expert, and their rows of y are zero."""
    if padding is not None:
        if tuple(padding.shape) != (topk_ids.shape[0],):
            raise Error(
                "invalid_argument",
                f"padding has shape {tuple(padding.shape)}; needed: ({topk_ids.shape[0]},)",
            )
        hidden = padding[:, None]
        if is_torch(topk_ids):
            topk_ids = topk_ids.masked_fill(hidden, -1)
        else:
            topk_ids = np.where(hidden, np.asarray(-1, topk_ids.dtype), topk_ids)
    views = (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    count = hidden_states.shape[0]
    deep_gemm.mega_moe_pre_dispatch_sm90(
        hidden_states, topk_ids, topk_weights, *views, num_tokens=count
    )


class BufferCache:
    """One buffer for all layers of the same geometry: the group, the capacity, experts, top-k, hidden,
    intermediate, the kind of products and the shared experts. The SM count is no part of it."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Any] = {}

    def get(
        self,
        group: Any,
        num_experts: int,
        capacity: int,
        top_k: int,
        hidden: int,
        intermediate: int,
        mma_type: str = "fp8xfp8",
        num_shared_experts: int = 0,
    ) -> Any:
        """Collective where the buffer is not there yet."""
        sizes = (num_experts, capacity, top_k, hidden, intermediate)
        key = (group, *sizes, mma_type, num_shared_experts)
        if key not in self._found:
            self._found[key] = deep_gemm.get_symm_buffer_for_mega_moe(
                group, *sizes, num_shared_experts, mma_type=mma_type
            )
        return self._found[key]

    def clear(self) -> None:
        """Destroys all buffers."""
        for buffer in self._found.values():
            buffer.destroy()
        self._found.clear()


class HopperBackend:
    """What a backend does; make_backend joins it to vLLM's class. FP8 weights with 128 x 128 scales,
    activations with a scale per 128 channels."""

    mma_type = "fp8xfp8"

    def create_weights(
        self,
        layer: Any,
        *,
        num_local_experts: int,
        hidden_size: int,
        intermediate_size: int,
        num_shared_experts: int,
    ) -> None:
        torch = sys.modules["torch"]
        if num_shared_experts:
            raise Error(
                "unsupported",
                f"num_shared_experts = {num_shared_experts}; vLLM runs shared experts itself",
            )
        e, h, i = num_local_experts, hidden_size, intermediate_size
        shapes = {
            "w13_weight": ((e, 2 * i, h), torch.float8_e4m3fn),
            "w13_weight_scale": ((e, 2 * i // 128, h // 128), torch.float32),
            "w2_weight": ((e, h, i), torch.float8_e4m3fn),
            "w2_weight_scale": ((e, h // 128, i // 128), torch.float32),
        }
        for name, (shape, dtype) in shapes.items():
            data = torch.zeros(*shape, dtype=dtype)
            layer.register_parameter(name, torch.nn.Parameter(data, requires_grad=False))

    def load_weight(self, dst: Any, src: Any, shard_id: str, is_scale: bool) -> None:
        load_shard(dst, src, shard_id, is_scale)

    def transform_weights(
        self,
        *,
        w13_weight: Any,
        w13_weight_scale: Any,
        w2_weight: Any,
        w2_weight_scale: Any,
        num_local_experts: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str | None = None,
    ) -> tuple[Any, Any]:
        return deep_gemm.transform_weights_for_mega_moe(
            (w13_weight, w13_weight_scale), (w2_weight, w2_weight_scale), activation or "swiglu"
        )

    def run_mega_moe(
        self,
        *,
        y: Any,
        l1_weights: Any,
        l2_weights: Any,
        symm_buffer: Any,
        activation_clamp: float | None,
        fast_math: bool,
        activation: str | None = None,
        activation_alpha: float | None = None,
        activation_beta: float | None = None,
        shared_l1_weights: Any = None,
        shared_l2_weights: Any = None,
    ) -> None:
        deep_gemm.fp8_fp4_mega_moe(
            y,
            l1_weights,
            l2_weights,
            symm_buffer,
            shared_l1_weights,
            shared_l2_weights,
            recipe=(128, 128, 128),
            activation=activation or "swiglu",
            activation_alpha=activation_alpha,
            activation_beta=activation_beta,
            activation_clamp=activation_clamp,
            fast_math=fast_math,
        )


def make_backend(home: Any) -> type:
    """The backend class, derived from that of vLLM's module."""
    quantisations = sys.modules[home.QuantKey.__module__]
    members = {"hidden_quant": quantisations.kFp8Dynamic128Sym}
    return type("MegamoeBackend", (HopperBackend, home.DeepGemmMegaMoEBackend), members)
