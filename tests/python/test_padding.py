"""Sizes that are no multiples of 128: weights, tokens and y keep the model's, the kernel has its own."""

import cases
import megamoe
import numpy as np
import pytest

E, K, H, I = 4, 2, 320, 96  # noqa: E741
WIDE, TALL = 384, 128


def model_weights(rng, precision: str) -> dict:
    if precision == "bf16":
        return {
            "w1": megamoe.to_bf16(rng.standard_normal((E, 2 * I, H)) / 16),
            "w2": megamoe.to_bf16(rng.standard_normal((E, H, I)) / 11),
            "b1": rng.standard_normal((E, 2 * I)).astype("f4"),
            "b2": rng.standard_normal((E, H)).astype("f4"),
        }
    if precision == "fp8":
        return {
            "w1": cases.codes(rng, (E, 2 * I, H)),
            "w2": cases.codes(rng, (E, H, I)),
            "w1_scales": rng.uniform(0.05, 0.1, (E, 2, 3)).astype("f4"),
            "w2_scales": rng.uniform(0.05, 0.1, (E, 3, 1)).astype("f4"),
        }
    return {
        "w1": rng.integers(0, 256, (E, 2 * I, H // 2), dtype=np.uint8),
        "w2": rng.integers(0, 256, (E, H, I // 2), dtype=np.uint8),
        "w1_scales": rng.integers(119, 124, (E, 2 * I, H // 32), dtype=np.uint8),
        "w2_scales": rng.integers(119, 124, (E, H, I // 32), dtype=np.uint8),
    }


def logical_rows(w1: np.ndarray) -> np.ndarray:
    """[E, 2I, ...] in the kernel's order as [E, gate or up, I, ...]."""
    split = w1.reshape(w1.shape[0], -1, 2, 8, *w1.shape[2:])
    return np.moveaxis(split, 2, 1).reshape(w1.shape[0], 2, -1, *w1.shape[2:])


@pytest.mark.parametrize("precision", ["fp8", "bf16", "mxfp4"])
def test_padded_weights_by_element(precision):
    arrays = model_weights(np.random.default_rng(5), precision)
    made = megamoe.prepare_weights(precision, **arrays)
    assert (made.hidden, made.intermediate, made.num_experts) == (WIDE, TALL, E)
    w1, w2, w1_scales, w2_scales, b1, b2 = made.arrays
    half = 2 if precision == "mxfp4" else 1
    rows = logical_rows(w1)
    assert np.array_equal(rows[:, :, :I, : H // half], arrays["w1"].reshape(E, 2, I, H // half))
    assert not rows[:, :, I:].any() and not rows[..., H // half :].any()
    assert np.array_equal(w2[:, :H, : I // half], arrays["w2"])
    assert not w2[:, H:].any() and not w2[..., I // half :].any()
    if precision == "mxfp4":
        scales, given = logical_rows(w1_scales), arrays["w1_scales"].reshape(E, 2, I, H // 32)
        assert np.array_equal(scales[:, :, :I, : H // 32], given)
        assert np.array_equal(scales[:, :, :I, H // 32 :], np.repeat(given[..., -1:], 2, axis=3))
        assert np.array_equal(
            scales[:, :, I:, : H // 32], np.repeat(given[:, :, -1:], TALL - I, axis=2)
        )
        assert np.array_equal(w2_scales[:, :H, : I // 32], arrays["w2_scales"])
        assert np.array_equal(w2_scales[:, :H, I // 32 :], arrays["w2_scales"][..., -1:])
    elif precision == "bf16":
        assert np.array_equal(logical_rows(b1)[:, :, :I], arrays["b1"].reshape(E, 2, I))
        assert not logical_rows(b1)[:, :, I:].any()
        assert np.array_equal(b2[:, :H], arrays["b2"]) and not b2[:, H:].any()
    else:
        assert w1_scales is arrays["w1_scales"] and w2_scales is arrays["w2_scales"]


def plain_layer(arrays, hidden_states, idx, weights) -> np.ndarray:
    """A BF16 layer without any padding, in double; the activation is rounded to BF16."""
    x = megamoe.from_bf16(hidden_states).astype(float)
    out = np.zeros((len(x), H))
    for token, slot in np.ndindex(idx.shape):
        e = idx[token, slot]
        if e < 0:
            continue
        both = megamoe.from_bf16(arrays["w1"][e]).astype(float) @ x[token] + arrays["b1"][e]
        gate, up = both[:I], both[I:]
        act = megamoe.from_bf16(megamoe.to_bf16(gate / (1 + np.exp(-gate)) * up)).astype(float)
        o = megamoe.from_bf16(arrays["w2"][e]).astype(float) @ act + arrays["b2"][e]
        out[token] += weights[token, slot] * o
    return out


def staged_case():
    rng = np.random.default_rng(6)
    arrays = model_weights(rng, "bf16")
    p = cases.problem(1, "bf16", experts=E, hidden=WIDE, intermediate=TALL)
    hidden_states = megamoe.to_bf16(rng.standard_normal((9, H)))
    idx = np.stack([rng.permutation(E)[:K] for _ in range(9)]).astype(np.int64)
    weights = rng.uniform(0.1, 1, (9, K)).astype("f4")
    layer = megamoe.Group(p).layer(0)
    layer.stage(hidden_states, idx, weights)
    assert not layer.inputs.x[:9, H:].any()
    return layer, arrays, plain_layer(arrays, hidden_states, idx, weights)


def test_y_of_the_models_size():
    layer, arrays, expected = staged_case()
    prepared = megamoe.prepare_weights("bf16", **arrays)
    y = np.zeros((9, H), np.uint16)
    layer.forward(y, prepared)
    difference = np.linalg.norm(megamoe.from_bf16(y) - expected) / np.linalg.norm(expected)
    assert difference < 4e-3, difference
    strided = np.full((9, WIDE), 0x7FC0, np.uint16)
    layer.forward(strided[:, :H], prepared)
    assert np.array_equal(strided[:, :H], y)
    assert not strided[:, H:].any(), "written in place: the padding is zero"
    all_ranks = np.zeros((9, H), np.uint16)
    layer.group.forward([all_ranks], [prepared])
    assert np.array_equal(all_ranks, y)
    with pytest.raises(megamoe.Error, match="y has shape"):
        layer.forward(np.zeros((9, 128), np.uint16), prepared)


def test_refused():
    arrays = model_weights(np.random.default_rng(5), "mxfp4")
    with pytest.raises(megamoe.Error, match="in_place with hidden = 320 and intermediate = 96"):
        megamoe.prepare_weights("mxfp4", **arrays, in_place=True)
    with pytest.raises(megamoe.Error, match=r"w2 has shape \[4, 320, 64\]; needed: \[4, 320, 48\]"):
        megamoe.prepare_weights("mxfp4", **(arrays | {"w2": np.zeros((4, 320, 64), np.uint8)}))
    with pytest.raises(megamoe.Error, match="hidden = 328"):
        megamoe.prepare_weights("mxfp4", **(arrays | {"w1": np.zeros((4, 2 * I, 164), np.uint8)}))
