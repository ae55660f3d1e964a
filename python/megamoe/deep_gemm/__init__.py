"""The functions of DeepGEMM's fused MoE layer, by name and argument order, on megamoe.

    import megamoe.deep_gemm as deep_gemm

What runs: FP8 weights on Hopper; FP8, BF16 and MXFP4 weights on the CPU backend, with NumPy arrays.
What does not run raises megamoe.Error, which names what does.
"""

from . import utils
from ._buffer import (
    SymmBuffer,
    dispatch_only,
    get_block_m_for_mega_moe,
    get_symm_buffer_for_mega_moe,
    get_symm_buffer_for_sm90_mega_moe,
    get_symm_buffer_size_for_mega_moe,
    get_symm_buffer_size_for_sm90_mega_moe,
    get_token_alignment_for_mega_moe,
    get_token_alignment_for_sm90_mega_moe,
)
from ._calls import bf16_mega_moe, fp8_fp4_mega_moe, fp8_mega_moe, fp8_mega_moe_sm90
from ._join import LocalGroup, OnCpu, Seat
from ._prepare import (
    mega_moe_pre_dispatch,
    mega_moe_pre_dispatch_sm90,
    transform_weights_for_mega_moe,
    transform_weights_for_mega_moe_sm90,
)
from ._state import get_num_sms, get_reserved_sms, num_sms, set_num_sms, set_reserved_sms
from .utils import transform_sf_into_required_layout

__all__ = [
    "LocalGroup",
    "OnCpu",
    "Seat",
    "SymmBuffer",
    "bf16_mega_moe",
    "dispatch_only",
    "fp8_fp4_mega_moe",
    "fp8_mega_moe",
    "fp8_mega_moe_sm90",
    "get_block_m_for_mega_moe",
    "get_num_sms",
    "get_reserved_sms",
    "get_symm_buffer_for_mega_moe",
    "get_symm_buffer_for_sm90_mega_moe",
    "get_symm_buffer_size_for_mega_moe",
    "get_symm_buffer_size_for_sm90_mega_moe",
    "get_token_alignment_for_mega_moe",
    "get_token_alignment_for_sm90_mega_moe",
    "mega_moe_pre_dispatch",
    "mega_moe_pre_dispatch_sm90",
    "num_sms",
    "set_num_sms",
    "set_reserved_sms",
    "transform_sf_into_required_layout",
    "transform_weights_for_mega_moe",
    "transform_weights_for_mega_moe_sm90",
    "utils",
]
