"""The kernel's order of weights, byte for byte, against plain NumPy."""

import cases
import megamoe
import numpy as np
import pytest


def order_by_rows(rows: np.ndarray) -> np.ndarray:
    """[E, 2I, ...] in the kernel's order, one row after the other."""
    half = rows.shape[1] // 2
    picked = []
    for channel in range(0, half, 8):
        picked += [*range(channel, channel + 8), *range(half + channel, half + channel + 8)]
    return rows[:, picked]


@pytest.mark.parametrize("precision", ["fp8", "bf16", "mxfp4"])
@pytest.mark.parametrize("in_place", [False, True])
def test_prepare_weights(precision, in_place):
    rng = np.random.default_rng(5)
    arrays = cases.checkpoint_weights(rng, precision, 3)
    arrays["b1"] = rng.standard_normal((3, 2 * cases.I)).astype("f4")
    before = {name: array.copy() for name, array in arrays.items()}
    w1, w2, w1_scales, w2_scales, b1, b2 = megamoe.prepare_weights(
        precision, **arrays, in_place=in_place
    ).arrays
    assert np.array_equal(w1, order_by_rows(before["w1"]))
    assert np.array_equal(b1, order_by_rows(before["b1"]))
    assert w2 is arrays["w2"] and np.array_equal(w2, before["w2"])
    assert w2_scales is arrays.get("w2_scales") and b2 is None
    if precision == "mxfp4":
        assert np.array_equal(w1_scales, order_by_rows(before["w1_scales"]))
    else:
        assert w1_scales is arrays.get("w1_scales")
    assert (w1 is arrays["w1"]) == in_place
    if not in_place:
        assert np.array_equal(arrays["w1"], before["w1"])


def test_to_bf16_rounds_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, np.inf, np.nan], np.float32)
    assert [hex(v) for v in megamoe.to_bf16(values)] == [
        "0x3f80",
        "0x3f80",
        "0x3f82",
        "0xc020",
        "0x7f80",
        "0x7fc0",
    ]
    assert np.array_equal(megamoe.from_bf16(megamoe.to_bf16(values[:4])), [1, 1, 1.015625, -2.5])
