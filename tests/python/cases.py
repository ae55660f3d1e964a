"""Small layers with random weights and tokens, for all Python tests."""

from dataclasses import dataclass

import megamoe
import numpy as np

E, K, H, I = 8, 2, 256, 128  # noqa: E741
CAPACITY = 40


def problem(ranks: int = 2, precision: str = "fp8", **changes) -> megamoe.Problem:
    values = {
        "ranks": ranks,
        "experts": E,
        "top_k": K,
        "hidden": H,
        "intermediate": I,
        "max_tokens_per_rank": CAPACITY,
        "precision": precision,
    }
    return megamoe.Problem(**(values | changes))


def codes(rng, shape) -> np.ndarray:
    """Random finite e4m3 codes of magnitude up to 2."""
    return (rng.integers(0, 64, shape) | rng.choice([0, 128], shape)).astype(np.uint8)


def checkpoint_weights(rng, precision: str, experts: int) -> dict[str, np.ndarray | None]:
    """Arrays of `experts` experts in a checkpoint's order."""
    if precision == "bf16":
        values = [rng.standard_normal((experts, 2 * I, H)), rng.standard_normal((experts, H, I))]
        return {"w1": megamoe.to_bf16(values[0] / 16), "w2": megamoe.to_bf16(values[1] / 11)}
    if precision == "fp8":
        return {
            "w1": codes(rng, (experts, 2 * I, H)),
            "w2": codes(rng, (experts, H, I)),
            "w1_scales": rng.uniform(0.05, 0.1, (experts, 2 * I // 128, H // 128)).astype("f4"),
            "w2_scales": rng.uniform(0.05, 0.1, (experts, H // 128, I // 128)).astype("f4"),
        }
    return {
        "w1": rng.integers(0, 256, (experts, 2 * I, H // 2), dtype=np.uint8),
        "w2": rng.integers(0, 256, (experts, H, I // 2), dtype=np.uint8),
        "w1_scales": rng.integers(119, 124, (experts, 2 * I, H // 32), dtype=np.uint8),
        "w2_scales": rng.integers(119, 124, (experts, H, I // 32), dtype=np.uint8),
    }


@dataclass
class Tokens:
    hidden_states: np.ndarray  # BF16 bits
    topk_idx: np.ndarray
    topk_weights: np.ndarray


def tokens(rng, count: int, experts: int = E) -> Tokens:
    idx = np.stack([rng.permutation(experts)[:K] for _ in range(count)] or [[0] * K])[:count]
    idx = idx.astype(np.int64).reshape(count, K)
    idx[rng.random((count, K)) < 0.1] = -1
    return Tokens(
        megamoe.to_bf16(rng.standard_normal((count, H))),
        idx,
        rng.uniform(0.1, 1, (count, K)).astype(np.float32),
    )


def staged(layer: megamoe.Layer, count: int) -> tuple:
    """Copies of what lies staged, as the reference takes it."""
    return tuple(None if view is None else view[:count].copy() for view in layer.inputs)
