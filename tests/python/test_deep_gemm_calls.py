"""megamoe.deep_gemm on the CPU backend: staging and calls, against the reference."""

import cases
import megamoe
import numpy as np
import pytest
from deep_gemm_case import P, expected_y, fp8_pair, make, on_threads, stage
from megamoe import deep_gemm


@pytest.mark.parametrize(
    ("function", "recipe"),
    [
        (deep_gemm.fp8_mega_moe, (128, 128, 128)),
        (deep_gemm.fp8_mega_moe_sm90, (1, 128, 128)),
        (deep_gemm.fp8_fp4_mega_moe, (1, 128, 128)),
    ],
)
def test_fp8(function, recipe):
    buffers, weights, expected = make(2)
    counts = [13, 100]
    rng = np.random.default_rng(4)
    for buffer, count in zip(buffers, counts):
        stage(buffer, cases.tokens(rng, count), count)
    y = [np.zeros((count, cases.H), np.uint16) for count in counts]
    stats = [np.full(4, 3, np.int32), np.full(4, 3, np.int64)]
    options = {"recipe": recipe, "fast_math": False, "activation_clamp": 0.75}

    def call(i):
        function(
            y[i],
            *weights[i],
            buffers[i],
            cumulative_local_expert_recv_stats=stats[i],
            global_num_tokens=sum(counts),
            **options,
        )

    on_threads([lambda i=i: call(i) for i in range(2)])
    clamp = {"activation": megamoe.Activation(clamp=0.75)}
    for mine, theirs in zip(y, expected_y(buffers, expected, counts, **clamp)):
        assert megamoe.compare(mine, theirs).diff < 3e-5
    rows = [b.check().rows_received for b in buffers]
    assert [int((s - 3).sum()) for s in stats] == rows and sum(rows) > 100
    assert [s.dtype for s in stats] == [np.int32, np.int64]


@pytest.mark.parametrize("precision", ["bf16", "mxfp4"])
def test_other_precisions(precision):
    mma_type = "bf16xbf16" if precision == "bf16" else "fp8xfp4"
    (buffer,), (weights,), expected = make(1, precision, mma_type=mma_type)
    brought = cases.tokens(np.random.default_rng(6), 21)
    y = np.zeros((21, cases.H), np.uint16)
    if precision == "bf16":
        buffer.x[:21] = brought.hidden_states
        buffer.topk_idx[:21], buffer.topk_weights[:21] = brought.topk_idx, brought.topk_weights
        deep_gemm.bf16_mega_moe(y, *weights, buffer, fast_math=False)
    else:
        stage(buffer, brought, 21)
        l1 = (weights[0][0], weights[0][1].view(np.int32))
        l2 = (weights[1][0].view(np.int8), weights[1][1].view(np.int32))
        deep_gemm.fp8_fp4_mega_moe(y, l1, l2, buffer, fast_math=False, activation_beta=None)
    (theirs,) = expected_y([buffer], expected, [21], precision)
    assert megamoe.compare(y, theirs).diff < (1e-5 if precision == "bf16" else 3e-5)
    assert np.any(y)


@pytest.mark.parametrize(
    ("arguments", "activation"),
    [
        (
            {"activation_alpha": 1.702, "activation_up_bias": 1.0, "activation_clamp": 7.0},
            megamoe.Activation("swiglu-oai", clamp=7, alpha=1.702, up_bias=1),
        ),
        (
            {"activation": "situ", "activation_beta": 4.0, "activation_linear_beta": 25.0},
            megamoe.Activation("situ", beta=4, linear_beta=25),
        ),
    ],
)
def test_activation_of_a_call(arguments, activation):
    (buffer,), (weights,), expected = make(1)
    stage(buffer, cases.tokens(np.random.default_rng(6), 9), 9)
    y, plain = np.zeros((2, 9, cases.H), np.uint16)
    deep_gemm.fp8_fp4_mega_moe(
        y, *weights, buffer, recipe=(128, 128, 128), fast_math=False, **arguments
    )
    (theirs,) = expected_y([buffer], expected, [9], activation=activation)
    assert megamoe.compare(y, theirs).diff < 3e-5
    # The next call has its own activation again.
    deep_gemm.fp8_mega_moe(plain, *weights, buffer, fast_math=False)
    (theirs,) = expected_y([buffer], expected, [9])
    assert megamoe.compare(plain, theirs).diff < 3e-5
    assert not np.array_equal(plain, y)


def test_shared_expert_as_a_matrix():
    (buffer,), (weights,), expected = make(1, num_shared_experts=1)
    arrays = cases.checkpoint_weights(np.random.default_rng(8), "fp8", 1)
    flat = {name: array[0] for name, array in arrays.items()}
    shared = deep_gemm.transform_weights_for_mega_moe(*fp8_pair(flat))
    stage(buffer, cases.tokens(np.random.default_rng(6), 9), 9)
    y = np.zeros((9, cases.H), np.uint16)
    deep_gemm.fp8_mega_moe(y, *weights, buffer, *shared, fast_math=False)
    p = cases.problem(1, max_tokens_per_rank=P, shared_experts=1)
    views = (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    inputs = [tuple(v[:9].copy() for v in views)]
    theirs = megamoe.reference(
        p, inputs, expected, shared=[megamoe.prepare_weights("fp8", **arrays)]
    )
    assert megamoe.compare(y, theirs[0]).diff < 3e-5
    with pytest.raises(megamoe.Error, match=r"shared_l1_weights is absent.*1 shared experts"):
        deep_gemm.fp8_mega_moe(y, *weights, buffer)


@pytest.mark.parametrize("precision", ["fp8", "bf16", "mxfp4"])
def test_shared_experts_as_one_wide_matrix(precision):
    """The intermediate channels of both, side by side, are one expert of twice the width."""
    mma_type = "bf16xbf16" if precision == "bf16" else "fp8xfp4"
    (buffer,), (weights,), expected = make(1, precision, num_shared_experts=2, mma_type=mma_type)
    one = cases.checkpoint_weights(np.random.default_rng(8), precision, 2)
    halves = {n: a.reshape(2, 2, -1, a.shape[2]) for n, a in one.items() if n.startswith("w1")}
    wide = {n: a.swapaxes(0, 1).reshape(-1, a.shape[3]) for n, a in halves.items()}
    wide |= {n: np.concatenate(list(a), axis=1) for n, a in one.items() if n.startswith("w2")}
    pair = (wide["w1"], wide["w2"]) if precision == "bf16" else fp8_pair(wide)
    shared = deep_gemm.transform_weights_for_mega_moe(*pair)
    brought = cases.tokens(np.random.default_rng(6), 9)
    options = {"fast_math": False}
    if precision == "bf16":
        call = deep_gemm.bf16_mega_moe
        buffer.x[:9] = brought.hidden_states
        buffer.topk_idx[:9], buffer.topk_weights[:9] = brought.topk_idx, brought.topk_weights
    else:
        call = deep_gemm.fp8_fp4_mega_moe
        options["recipe"] = (128, 128, 128) if precision == "fp8" else (1, 1, 32)
        stage(buffer, brought, 9)
    y = np.zeros((9, cases.H), np.uint16)
    call(y, *weights, buffer, *shared, **options)
    p = cases.problem(1, precision, max_tokens_per_rank=P, shared_experts=2)
    scales = None if precision == "bf16" else buffer.x_sf[:9].copy()
    inputs = [
        (
            buffer.x[:9].copy(),
            scales,
            *(v[:9].copy() for v in (buffer.topk_idx, buffer.topk_weights)),
        )
    ]
    prepared = [megamoe.prepare_weights(precision, **one)]
    (theirs,) = megamoe.reference(p, inputs, expected, shared=prepared)
    assert megamoe.compare(y, theirs).diff < 3e-5
    # What was copied follows its source: NumPy arrays do not say when they change.
    (shared[1] if precision == "bf16" else shared[1][0])[:] = 0
    call(y, *weights, buffer, *shared, **options)
    without = {n: a if n != "w2" else np.zeros_like(a) for n, a in one.items()}
    prepared = [megamoe.prepare_weights(precision, **without)]
    (theirs,) = megamoe.reference(p, inputs, expected, shared=prepared)
    assert megamoe.compare(y, theirs).diff < 3e-5
    odd = np.zeros((2 * cases.I + 2, cases.H), np.uint8)
    if precision == "fp8":
        with pytest.raises(megamoe.Error, match="w1 of 2 shared experts has shape"):
            call(y, *weights, buffer, (odd, shared[0][1]), shared[1], **options)


def test_weights_are_made_once():
    (buffer,), (weights,), _ = make(1)
    (w1, s1), (w2, s2) = weights
    cache = buffer._weights
    first = cache.get("fp8", (w1, s1), (w2, s2))
    assert cache.get("fp8", (w1[:], s1[:]), [w2, s2]) is first
    assert cache.get("fp8", (w1.copy(), s1), (w2, s2)) is not first
    assert cache.get("fp8", (w1[:4], s1[:4]), (w2[:4], s2[:4])).num_experts == 4
    for _ in range(600):
        cache.get("fp8", (w1[:1].copy(), s1[:1]), (w2[:1], s2[:1]))
    assert len(cache._found) <= 512
    buffer.destroy()
    assert not buffer._weights._found


def test_pre_dispatch_writes_every_row():
    (buffer,), _, _ = make(1)
    for view, value in ((buffer.x, 99), (buffer.x_sf, 7), (buffer.topk_idx, 5)):
        view.fill(value)
    buffer.topk_weights.fill(9)
    brought = cases.tokens(np.random.default_rng(6), 20)
    stage(buffer, brought, 20, routed_scaling_factor=2.5)
    plain = [
        np.full_like(v, 3) for v in (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    ]
    deep_gemm.mega_moe_pre_dispatch_sm90(
        brought.hidden_states,
        brought.topk_idx,
        brought.topk_weights,
        *plain,
        num_tokens=20,
        routed_scaling_factor=2.5,
    )
    codes, scales = megamoe.quantize(brought.hidden_states)
    for x, x_sf, ids, weights in (
        plain,
        (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights),
    ):
        assert np.array_equal(x[:20], codes) and np.array_equal(x_sf[:20], scales)
        assert np.array_equal(ids[:20], brought.topk_idx) and np.all(ids[20:] == -1)
        assert np.array_equal(weights[:20], brought.topk_weights * np.float32(2.5))
        assert np.all(weights[20:] == 0)
    deep_gemm.mega_moe_pre_dispatch(*vars(brought).values(), *plain, num_tokens=3, group_size=128)
    assert np.all(plain[2][3:] == -1)


def test_pre_dispatch_refuses():
    (buffer, other), _, _ = make(2)
    brought = cases.tokens(np.random.default_rng(6), 20)
    with pytest.raises(megamoe.Error, match=r"num_tokens = 21 is outside 0\.\.20"):
        stage(buffer, brought, 21)
    with pytest.raises(megamoe.Error, match="group_size = 64; 128 runs"):
        stage(buffer, brought, 3, group_size=64)
    with pytest.raises(megamoe.Error, match="not of the same SymmBuffer"):
        deep_gemm.mega_moe_pre_dispatch_sm90(
            *vars(brought).values(),
            buffer.x,
            buffer.x_sf,
            other.topk_idx,
            buffer.topk_weights,
            num_tokens=3,
        )
    views = (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    with pytest.raises(megamoe.Error, match="group_size = 32"):
        deep_gemm.mega_moe_pre_dispatch(*vars(brought).values(), *views, 3)
    with pytest.raises(megamoe.Error, match="NVFP4"):
        deep_gemm.mega_moe_pre_dispatch(*vars(brought).values(), *views, 3, buf_x_scales=1)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"recipe": (1, 1, 32)}, megamoe.Error, r"recipe = \(1, 1, 32\).*128.*128"),
        ({"recipe": (1, 2, 3)}, megamoe.Error, r"\(1, 128, 128\), \(128, 128, 128\), \(1, 1, 32\)"),
        ({"global_num_tokens": P + 1}, ValueError, f"{P + 1} is outside 0..{P}"),
        ({"global_num_tokens": -1}, ValueError, "-1"),
        ({"activation": "gelu"}, megamoe.Error, "'gelu'; known: swiglu, swiglu-oai, situ"),
        ({"sym_buffer": 3}, megamoe.Error, "sym_buffer is int"),
        ({"l1_weights": 3}, megamoe.Error, "l1_weights is int; needed"),
        ({"y": np.zeros((P + 1, cases.H), np.uint16)}, megamoe.Error, f"{P + 1} is more than"),
        ({"shared_l1_weights": (1, 2)}, megamoe.Error, "0 shared experts"),
        (
            {"cumulative_local_expert_recv_stats": np.zeros(3, np.int64)},
            megamoe.Error,
            "recv_stats",
        ),
    ],
)
def test_wrong_arguments(options, error, match):
    (buffer,), (weights,), _ = make(1)
    given = {
        "y": np.zeros((2, cases.H), np.uint16),
        "l1_weights": weights[0],
        "l2_weights": weights[1],
        "sym_buffer": buffer,
    }
    with pytest.raises(error, match=match):
        deep_gemm.fp8_mega_moe(**(given | options))
    assert buffer.check().epoch == 0


def test_nvfp4_is_refused_by_name():
    (buffer,), (weights,), _ = make(1)
    y = np.zeros((2, cases.H), np.uint16)
    for name in ("use_x_scales", "l1_alphas", "l2_alphas", "l2_act_scales"):
        with pytest.raises(megamoe.Error, match=f"{name} belongs to NVFP4") as caught:
            deep_gemm.fp8_fp4_mega_moe(y, *weights, buffer, **{name: 1})
        assert caught.value.code == "unsupported"
    with pytest.raises(TypeError, match="unknown"):
        deep_gemm.fp8_fp4_mega_moe(y, *weights, buffer, unknown=1)
    with pytest.raises(megamoe.Error, match="they belong to situ"):
        deep_gemm.fp8_fp4_mega_moe(y, *weights, buffer, activation_beta=4.0)


def test_precision_that_the_buffer_cannot_hold():
    (buffer,), _, _ = make(1)
    arrays = cases.checkpoint_weights(np.random.default_rng(1), "bf16", cases.E)
    with pytest.raises(megamoe.Error, match="precision = bf16 in a group of fp8"):
        deep_gemm.bf16_mega_moe(
            np.zeros((2, cases.H), np.uint16), arrays["w1"], arrays["w2"], buffer
        )
