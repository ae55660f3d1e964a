"""The numbers of docs/adr/0002-combine-slots.md: memory of the forms that combine slots can have, and the
error that e4m3 slots would add. Usage: tools/python.sh bench/combine_slots.py
"""

from math import comb

import numpy as np

# name: hidden, intermediate, experts, top-k
MODELS = {
    "deepseek-v4-flash": (4096, 2048, 256, 6),
    "deepseek-v4-pro": (7168, 3072, 384, 6),
    "deepseek-v3": (7168, 2048, 256, 8),
}
TOKENS = 8192
RANKS = 8
MIB = 2**20


def distinct_ranks(experts: int, top_k: int) -> float:
    """Mean number of ranks among a token's experts, experts drawn without replacement."""
    missed = comb(experts - experts // RANKS, top_k) / comb(experts, top_k)
    return RANKS * (1 - missed)


def memory_rows() -> list[str]:
    rows = [
        "model              bf16  pre-summed    e4m3  2 waves  3 waves  distinct ranks  weights"
    ]
    for name, (hidden, intermediate, experts, top_k) in MODELS.items():
        bf16 = TOKENS * top_k * hidden * 2 / MIB
        pre_summed = TOKENS * RANKS * hidden * 2 / MIB
        e4m3 = TOKENS * top_k * (hidden + hidden // 128 * 4) / MIB
        weights = experts // RANKS * 3 * hidden * intermediate / MIB
        rows.append(
            f"{name:<17} {bf16:5.0f} {pre_summed:11.0f} {e4m3:7.1f} {bf16 / 2:8.0f} {bf16 / 3:8.1f}"
            f" {distinct_ranks(experts, top_k):15.2f} {weights:8.0f}"
        )
    return rows


def round_e4m3(x: np.ndarray) -> np.ndarray:
    """Nearest e4m3 value, ties to even; |x| <= 448."""
    _, exponent = np.frexp(x)
    step = np.exp2(np.maximum(exponent - 4, -9).astype(x.dtype))
    return np.rint(x / step) * step


def e4m3_error(top_k: int, tokens: int = 200, hidden: int = 7168) -> tuple[float, float]:
    """Difference of the whole output, and the worst row's relative L2, for normal contributions."""
    rng = np.random.default_rng(1)
    contributions = rng.standard_normal((tokens, top_k, hidden // 128, 128), dtype=np.float32)
    weights = rng.random((tokens, top_k, 1, 1), dtype=np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    scales = np.abs(contributions).max(axis=-1, keepdims=True) / 448
    stored = round_e4m3(contributions / scales) * scales
    a = (weights * contributions).sum(axis=1).reshape(tokens, -1).astype(np.float64)
    b = (weights * stored).sum(axis=1).reshape(tokens, -1).astype(np.float64)
    diff = 1 - 2 * (a * b).sum() / ((a * a).sum() + (b * b).sum())
    worst = (np.linalg.norm(a - b, axis=1) / np.linalg.norm(a, axis=1)).max()
    return float(diff), float(worst)


def main() -> None:
    print(f"MiB per rank, {TOKENS} tokens, {RANKS} ranks")
    print("\n".join(memory_rows()))
    for top_k in (6, 8):
        diff, worst = e4m3_error(top_k)
        print(f"e4m3 slots, top-{top_k}: diff {diff:.1e}, worst row {worst:.1e}")


if __name__ == "__main__":
    main()
