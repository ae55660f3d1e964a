"""Signatures of megamoe.deep_gemm, its casts and its orders of weights, byte for byte."""

import inspect

import cases
import megamoe
import numpy as np
import pytest
from megamoe import deep_gemm
from megamoe.deep_gemm import utils
from test_weights import order_by_rows

SIZES = "num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden, "
TAIL = "num_shared_experts=0, use_fp8_dispatch=None, mma_type='fp8xfp4', activation='swiglu'"
CALL = (
    "y, l1_weights, l2_weights, sym_buffer, shared_l1_weights=None, shared_l2_weights=None, "
    "cumulative_local_expert_recv_stats=None, "
)
FORM = "activation='swiglu', activation_alpha=1.0, activation_up_bias=0.0, activation_clamp=None, "
HINT = "fast_math=True, *, global_num_tokens=None"
STAGE = "x, topk_idx, topk_weights, buf_x, buf_x_sf, buf_topk_idx, buf_topk_weights, "
SIGNATURES = {
    "get_symm_buffer_for_mega_moe": f"group, {SIZES}{TAIL}",
    "get_symm_buffer_for_sm90_mega_moe": f"group, {SIZES}{TAIL}",
    "get_symm_buffer_size_for_mega_moe": f"num_ranks, {SIZES}{TAIL}",
    "get_symm_buffer_size_for_sm90_mega_moe": f"num_ranks, {SIZES}{TAIL}",
    "fp8_mega_moe": f"{CALL}recipe=(128, 128, 128), {FORM}{HINT}",
    "fp8_mega_moe_sm90": f"{CALL}recipe=(128, 128, 128), {FORM}{HINT}",
    "fp8_fp4_mega_moe": f"{CALL}recipe=(1, 1, 32), {FORM}activation_beta=None, "
    f"activation_linear_beta=None, {HINT}, **refused",
    "bf16_mega_moe": f"{CALL}{FORM}{HINT}",
    "transform_weights_for_mega_moe": "l1, l2, activation='swiglu'",
    "transform_weights_for_mega_moe_sm90": "l1, l2",
    "mega_moe_pre_dispatch_sm90": f"{STAGE}*, num_tokens, group_size=128, routed_scaling_factor=1.0",
    "mega_moe_pre_dispatch": f"{STAGE}num_tokens, group_size=32, mma_type='fp8xfp4', buf_x_scales=None",
    "get_num_sms": "",
    "set_num_sms": "num_sms",
    "get_token_alignment_for_mega_moe": "",
    "get_token_alignment_for_sm90_mega_moe": "",
    "get_block_m_for_mega_moe": "num_ranks, num_experts, num_max_tokens_per_rank, num_tokens, num_topk, "
    "mma_type='fp8xfp4', global_num_tokens=None",
    "transform_sf_into_required_layout": "sf, mn, k, recipe=None, num_groups=None, is_sfa=False, "
    "disable_ue8m0_cast=False",
}


def without_annotations(function) -> str:
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty
    parameters = [p.replace(annotation=empty) for p in signature.parameters.values()]
    return str(inspect.Signature(parameters))[1:-1]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert without_annotations(getattr(deep_gemm, name)) == SIGNATURES[name]


def test_names():
    for name in deep_gemm.__all__:
        assert getattr(deep_gemm, name).__doc__, name
    for name, text in {
        "per_token_cast_to_fp8": "x, use_ue8m0, gran_k=128, use_packed_ue8m0=False",
        "per_block_cast_to_fp8": "x, use_ue8m0, gran_k=128",
    }.items():
        assert without_annotations(getattr(deep_gemm.utils, name)) == text
    for view in (
        "x_sf",
        "l2_acts_sf",
        "l1_topk_weights",
        "token_src_metadata",
        "shared_l1_acts_sf",
    ):
        assert view in deep_gemm.SymmBuffer.__doc__


@pytest.mark.parametrize("transform", ["for_mega_moe", "for_mega_moe_sm90"])
@pytest.mark.parametrize("flat", [False, True])
def test_fp8_weights(transform, flat):
    arrays = cases.checkpoint_weights(np.random.default_rng(5), "fp8", 1 if flat else 3)
    if flat:
        arrays = {name: array[0] for name, array in arrays.items()}
    l2 = (arrays["w2"], arrays["w2_scales"])
    function = getattr(deep_gemm, f"transform_weights_{transform}")
    (w1, scales), same = function((arrays["w1"], arrays["w1_scales"]), l2)
    wanted = order_by_rows(arrays["w1"][None])[0] if flat else order_by_rows(arrays["w1"])
    assert np.array_equal(w1, wanted) and w1.flags.c_contiguous
    assert scales is arrays["w1_scales"] and same is l2


def test_bf16_weights():
    arrays = cases.checkpoint_weights(np.random.default_rng(5), "bf16", 2)
    w1, w2 = deep_gemm.transform_weights_for_mega_moe(arrays["w1"], arrays["w2"])
    assert np.array_equal(w1, order_by_rows(arrays["w1"])) and w2 is arrays["w2"]
    with pytest.raises(megamoe.Error, match="'gelu'"):
        deep_gemm.transform_weights_for_mega_moe(arrays["w1"], arrays["w2"], "gelu")
    with pytest.raises(megamoe.Error, match="24 rows"):
        deep_gemm.transform_weights_for_mega_moe(arrays["w1"][:, :24], arrays["w2"])


def test_mxfp4_weights():
    arrays = cases.checkpoint_weights(np.random.default_rng(5), "mxfp4", 2)
    # Scales may come as FP32 powers of two, or packed already.
    scales = [
        np.ldexp(np.float32(1), arrays[n].astype(int) - 127) for n in ("w1_scales", "w2_scales")
    ]
    l1, l2 = deep_gemm.transform_weights_for_mega_moe(
        (arrays["w1"], scales[0].astype("f4")), (arrays["w2"], scales[1].astype("f4"))
    )
    packed = [arrays[n].view(np.int32) for n in ("w1_scales", "w2_scales")]
    again = deep_gemm.transform_weights_for_mega_moe(
        (arrays["w1"], packed[0]), (arrays["w2"], packed[1])
    )
    for (w1, s1), (w2, s2) in ((l1, l2), again):
        assert np.array_equal(w1, order_by_rows(arrays["w1"]))
        assert s1.dtype == np.int32
        assert np.array_equal(s1.view(np.uint8), order_by_rows(arrays["w1_scales"]))
        assert w2 is arrays["w2"] and np.array_equal(s2.view(np.uint8), arrays["w2_scales"])


def test_every_e4m3_code_and_the_middles_between_them():
    codes = np.arange(127, dtype=np.uint8)
    exponent, mantissa = (codes >> 3).astype(int), (codes & 7).astype(np.float64)
    values = np.where(
        exponent > 0, np.ldexp(1 + mantissa / 8, exponent - 7), np.ldexp(mantissa / 8, -6)
    ).astype(np.float32)
    assert np.array_equal(utils._to_e4m3(values), codes)
    assert np.array_equal(utils._to_e4m3(-values), codes | 0x80)
    middles = (values[:-1] + values[1:]) / 2
    even = np.where(codes[:-1] % 2 == 0, codes[:-1], codes[1:])
    assert np.array_equal(utils._to_e4m3(middles), even)
    special = np.array([500, np.inf, -np.inf, np.nan], np.float32)
    assert utils._to_e4m3(special).tolist() == [0x7E, 0x7E, 0xFE, 0x7F]


def test_per_token_cast():
    x = np.random.default_rng(1).standard_normal((5, 300)).astype("f4")
    x[2] = 0
    codes, scales = utils.per_token_cast_to_fp8(x, False)
    assert codes.shape == (5, 300) and scales.shape == (5, 3)
    assert np.all(scales[2] == np.float32(1e-4) / np.float32(448))
    for row in range(5):
        for group in range(3):
            part = slice(128 * group, min(128 * group + 128, 300))
            amax = max(np.abs(x[row, part]).max(), np.float32(1e-4))
            assert scales[row, group] == amax / np.float32(448)
            wanted = utils._to_e4m3(x[row, part] * (np.float32(1) / scales[row, group]))
            assert np.array_equal(codes[row, part], wanted)
    _, powers = utils.per_token_cast_to_fp8(x, True)
    assert np.all(np.frexp(powers)[0] == 0.5) and np.all((powers >= scales) & (powers < 2 * scales))
    wide = np.tile(x[:, :128], (1, 4))
    _, packed = utils.per_token_cast_to_fp8(wide, True, 32, use_packed_ue8m0=True)
    _, plain = utils.per_token_cast_to_fp8(wide, True, 32)
    assert packed.dtype == np.int32 and packed.shape == (5, 4)
    assert np.array_equal(np.ldexp(1.0, packed.view(np.uint8).astype(int) - 127), plain)
    bits = megamoe.to_bf16(x)
    assert np.array_equal(
        utils.per_token_cast_to_fp8(bits, False)[0],
        utils.per_token_cast_to_fp8(megamoe.from_bf16(bits), False)[0],
    )
    assert utils.per_token_cast_to_fp8(x[:0], False)[1].shape == (0, 3)


def test_per_block_cast():
    x = np.random.default_rng(1).standard_normal((200, 256)).astype("f4")
    codes, scales = utils.per_block_cast_to_fp8(x, False)
    assert codes.shape == (200, 256) and scales.shape == (2, 2)
    assert scales[1, 0] == np.abs(x[128:, :128]).max() / np.float32(448)
    wanted = utils._to_e4m3(x[128:, :128] * (np.float32(1) / scales[1, 0]))
    assert np.array_equal(codes[128:, :128], wanted)
    with pytest.raises(megamoe.Error, match="1 dimensions"):
        utils.per_block_cast_to_fp8(x[0], False)


def test_layout_of_scales():
    blocks = np.ones((3, 2, 4), np.float32)
    for recipe in ((128, 128), (1, 128, 128), (128, 128, 128)):
        out = deep_gemm.transform_sf_into_required_layout(blocks[:, ::1], 256, 512, recipe, 3)
        assert np.array_equal(out, blocks)
    rows = np.full((2, 256, 4), 0.25, np.float32)
    packed = deep_gemm.transform_sf_into_required_layout(rows, 256, 128, (1, 1, 32), 2)
    assert packed.shape == (2, 256, 1) and np.all(packed.view(np.uint8) == 125)
    for sf, recipe, match in (
        (rows, (1, 64), r"recipe = \(1, 64\)"),
        (rows, None, "recipe = None"),
        (rows[:1], (1, 32), r"sf has shape \(1, 256, 4\); needed: \(2, 256, 4\)"),
        (rows * 3, (1, 32), "not all powers of two"),
        (rows * 0, (1, 32), "not all powers of two"),
    ):
        with pytest.raises(megamoe.Error, match=match):
            deep_gemm.transform_sf_into_required_layout(sf, 256, 128, recipe, 2)
