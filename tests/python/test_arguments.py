"""What wrong arguments get: an Error that names them, before anything changed."""

import cases
import megamoe
import numpy as np
import pytest

RNG = np.random.default_rng(2)


@pytest.fixture(scope="module")
def group():
    return megamoe.Group(cases.problem())


@pytest.fixture(scope="module")
def weights():
    return megamoe.prepare_weights("fp8", **cases.checkpoint_weights(RNG, "fp8", 4))


def refused(match: str):
    return pytest.raises(megamoe.Error, match=match)


def y_of(rows: int = 2) -> np.ndarray:
    return np.zeros((rows, cases.H), np.uint16)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"experts": 7}, "7"),
        ({"hidden": 200}, "200"),
        ({"top_k": 17}, "17"),
        ({"ranks": 73}, "73"),
        ({"max_tokens_per_rank": -1}, "-1"),
        ({"precision": "fp4"}, "'fp4'; known: fp8, bf16, mxfp4, mxfp8_mxfp4"),
        ({"shared_experts": 9}, "9"),
    ],
)
def test_problem(changes, match):
    with refused(match):
        cases.problem(**changes)


def test_activation_kind():
    with refused("'gelu'; known: swiglu, swiglu-oai, situ"):
        megamoe.Activation("gelu")


def test_memory_kinds():
    with refused("memory = 'gpu'; known: host, "):
        megamoe.Group(cases.problem(), "gpu")
    for kind in ("cuda_virtual", "cuda_peers"):
        devices, reason = megamoe._core.find_devices()
        if not devices:
            with refused("no CUDA" if "no CUDA" in reason else ""):
                megamoe.Group(cases.problem(), kind, devices=[0, 1])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"w1": np.zeros((4, 256), np.uint8)}, "w1 has 2 dimensions"),
        ({"w1": np.zeros((4, 256, 200), np.uint8)}, "hidden = 200|w2 has shape"),
        ({"w1": None}, "w1 is None"),
        ({"w1": "text"}, "w1 is str"),
        ({"w1": np.zeros((4, 256, 256), np.float32)}, "w1 has elements of float32"),
        ({"w2": None}, "w2 is None"),
        (
            {"w2": np.zeros((4, 128, 256), np.uint8)},
            r"w2 has shape \[4, 128, 256\]; needed: \[4, 256, 128\]",
        ),
        ({"w2": np.zeros((4, 128, 256), np.uint8).swapaxes(1, 2)}, "w2 is not contiguous"),
        ({"w1_scales": None}, "w1_scales or w2_scales is None"),
        ({"w1_scales": np.zeros((4, 2, 2), np.float64)}, "w1_scales has elements of float64"),
        ({"w2_scales": np.zeros((4, 2, 2), np.float32)}, r"needed: \[4, 2, 1\]"),
        ({"b1": np.zeros((4, 128), np.float32)}, r"b1 has shape"),
        ({"precision": "bf16"}, "w1 has elements of uint8"),
    ],
)
def test_weights(change, match):
    arrays = {"precision": "fp8"} | cases.checkpoint_weights(RNG, "fp8", 4) | change
    with refused(match):
        megamoe.Weights(**arrays)
    with refused(match):
        megamoe.prepare_weights(**arrays)


def test_bf16_has_no_scales():
    arrays = cases.checkpoint_weights(RNG, "bf16", 4)
    with refused("bf16 has none"):
        megamoe.Weights("bf16", **arrays, w1_scales=np.zeros((4, 2, 2), np.float32))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"hidden_states": np.zeros((2, 128), np.uint16)}, "hidden_states has shape"),
        ({"hidden_states": np.zeros((2, cases.H), np.float32)}, "hidden_states has elements"),
        ({"topk_idx": np.zeros((2, cases.K), np.int16)}, "topk_idx has elements of int16"),
        ({"topk_idx": np.zeros((3, cases.K), np.int64)}, "topk_idx has shape"),
        ({"topk_weights": np.zeros((2, cases.K))}, "topk_weights has elements of float64"),
        ({"topk_weights": None}, "topk_weights is None"),
    ],
)
def test_stage(group, change, match):
    layer = group.layer(0)
    before = [view.copy() for view in layer.inputs]
    good = cases.tokens(RNG, 2)
    arguments = vars(good) | change
    with refused(match):
        layer.stage(**arguments)
    assert all(np.array_equal(a, b) for a, b in zip(before, layer.inputs))


def test_too_many_tokens(group, weights):
    many = cases.tokens(RNG, cases.CAPACITY + 1)
    with refused("41 is outside 0..max_tokens_per_rank = 40"):
        group.layer(0).stage(**vars(many))
    with refused("41 is more than max_tokens_per_rank = 40"):
        group.layer(0).forward(y_of(41), weights)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"deadline": 0.0}, "deadline = 0"),
        ({"num_sms": -1}, "num_sms = -1"),
        ({"reserved_sms": -2}, "reserved_sms = -2"),
        ({"global_num_tokens": 81}, "global_num_tokens = 81 is outside 0..80"),
        ({"block_rows": 24}, "24"),
        ({"recv_stats": np.zeros(4, np.int32)}, "recv_stats has elements of int32"),
        ({"recv_stats": np.zeros(8, np.int64)}, "recv_stats has shape"),
        ({"shared": "w"}, "weights is str"),
    ],
)
def test_forward_options(group, weights, options, match):
    with refused(match):
        group.layer(0).forward(y_of(), weights, **options)
    assert group.layer(0).check().epoch == 0


def test_forward_arrays(group, weights):
    layer = group.layer(0)
    with refused("y has elements of float32"):
        layer.forward(np.zeros((2, cases.H), np.float32), weights)
    with refused("y has shape"):
        layer.forward(np.zeros((2, 128), np.uint16), weights)
    with refused("weights is dict; needed: megamoe.Weights"):
        layer.forward(y_of(), {})
    frozen = y_of()
    frozen.flags.writeable = False
    with refused("y is ndarray; a writable array"):
        layer.forward(frozen, weights)
    few = megamoe.prepare_weights("fp8", **cases.checkpoint_weights(RNG, "fp8", 3))
    with refused("num_experts = 3, this rank needs 4"):
        layer.forward(y_of(), few)
    with refused("1 y, 1 weights, 0 shared weights for 2 local ranks"):
        group.forward([y_of()], [weights])
    with refused("3 streams; needed: 1, or one for each of 2 launches"):
        group.forward([y_of(), y_of()], [weights] * 2, streams=[0, 0, 0])


def test_virtual_ranks_need_the_group(weights):
    layer = megamoe.Group(cases.problem(), "host_virtual").layer(0)
    with refused("only Group::forward"):
        layer.forward(y_of(), weights)


def test_destroyed(weights):
    group = megamoe.Group(cases.problem())
    layer = group.layer(0)
    with refused("local_rank = 2 is outside 0..1"):
        group.layer(2)
    layer.destroy()
    with refused("this Layer was destroyed"):
        layer.check()
    other = group.layer(1)
    group.destroy()
    group.destroy()
    with refused("this Group was destroyed"):
        other.forward(y_of(), weights)


def test_reference_arguments(weights):
    p = cases.problem()
    with refused("1 inputs, 1 weights, 0 shared weights; 2 ranks need 2, 2, 0"):
        megamoe.reference(p, [(None,) * 4], [weights])
    group = megamoe.Group(p)
    inputs = [cases.staged(layer, 1) for layer in group.layers]
    inputs[1] = (inputs[1][0], inputs[1][1][:, :1].copy(), *inputs[1][2:])
    with refused("x_scales has shape"):
        megamoe.reference(p, inputs, [weights] * 2)
    with refused("hidden_states has"):
        megamoe.quantize(np.zeros((2, 100), np.uint16))


def test_error_keeps_code_and_text():
    with pytest.raises(megamoe.Error) as caught:
        cases.problem(experts=7)
    assert caught.value.code == "invalid_argument"
    assert isinstance(caught.value, RuntimeError)
    assert "8" in str(caught.value)
