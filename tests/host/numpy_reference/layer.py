"""The layer in NumPy, in float64 with every rounding of the kernels in its place.

The roundings "h" and "contribution" can be left out, so that the check can show that it would notice.
"""

import codecs_table as codecs
import numpy as np

GROUP = 128
MX_GROUP = 32
FLOAT_MAX = float(np.finfo(np.float32).max)


def quantise(values):
    """e4m3 codes and FP32 scales, per 128 of the last axis, of float32 values."""
    groups = values.astype(np.float32).reshape(*values.shape[:-1], values.shape[-1] // GROUP, GROUP)
    amax = np.fmax.reduce(np.abs(groups), axis=-1, initial=np.float32(0))
    m = np.maximum(amax, np.float32(2.0**-100))
    scale = m / np.float32(448)
    multiplier = np.float32(448) / m
    with np.errstate(invalid="ignore", over="ignore"):
        codes = codecs.to_e4m3(groups * multiplier[..., None])
    return codes.reshape(values.shape), scale


def quantise_mx(values):
    """e4m3 codes and UE8M0 scales, per 32 of the last axis; an infinite group has the NaN scale."""
    groups = values.astype(np.float32).reshape(
        *values.shape[:-1], values.shape[-1] // MX_GROUP, MX_GROUP
    )
    amax = np.fmax.reduce(np.abs(groups), axis=-1, initial=np.float32(0)).astype(np.float64)
    infinite = np.isinf(amax)
    m = np.where(infinite, 1.0, np.maximum(amax, 2.0**-100))
    exponent = np.ceil(np.log2(m / 448)).astype(np.int64)
    # log2 is inexact: settle the exponent by exact comparisons.
    exponent += m > np.ldexp(448.0, exponent)
    exponent -= m <= np.ldexp(448.0, exponent - 1)
    multiplier = np.where(infinite, 0.0, np.ldexp(1.0, -exponent)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        codes = codecs.to_e4m3(groups * multiplier[..., None])
    scale = np.where(infinite, 255, exponent + 127).astype(np.uint8)
    return codes.reshape(values.shape), scale


def dequantise(codes, scale):
    """float64 values of e4m3 codes with FP32 or (uint8) UE8M0 scales."""
    scale = codecs.from_ue8m0(scale) if scale.dtype == np.uint8 else scale.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return codecs.E4M3[codes] * np.repeat(scale, codes.shape[-1] // scale.shape[-1], axis=-1)


def expert_matrix(precision, codes, scales):
    """float64 [rows, cols] of one expert's stored matrix, except that fp8 is left to the caller."""
    if precision == "bf16":
        return codecs.from_bf16(codes)
    values = codecs.unpack_e2m1(codes)
    return values * np.repeat(codecs.from_ue8m0(scales), MX_GROUP, axis=-1)


def logical_rows(interleaved, intermediate):
    """Stored row of each logical row of w1: 8 gate rows, their 8 up rows, and so on."""
    rows = np.arange(2 * intermediate)
    if not interleaved:
        return rows
    stored = rows.reshape(-1, 2, 8)  # [channel block, gate or up, 8]
    return stored.transpose(1, 0, 2).reshape(-1)


def block_scaled(codes, scales):
    """fp8 weights: every 128x128 block has its scale; `codes` in logical order."""
    spread = np.repeat(np.repeat(scales.astype(np.float64), GROUP, axis=0), GROUP, axis=1)
    return codecs.E4M3[codes] * spread


def expert_weights(case, tensors, expert):
    """w1 (logical order), b1, w2, b2 of one expert in float64."""
    rows = logical_rows(case["interleaved"], case["intermediate"])
    (w1, w1_scales), (w2, w2_scales) = tensors["w1"], tensors["w2"]
    if case["precision"] == "fp8":
        first = block_scaled(w1[expert][rows], w1_scales[expert])
        second = block_scaled(w2[expert], w2_scales[expert])
    else:
        pick = [s[expert] if s is not None else None for s in (w1_scales, w2_scales)]
        first = expert_matrix(case["precision"], w1[expert], pick[0])[rows]
        second = expert_matrix(case["precision"], w2[expert], pick[1])
    b1 = tensors["b1"][expert][rows].astype(np.float64) if "b1" in tensors else 0.0
    b2 = tensors["b2"][expert].astype(np.float64) if "b2" in tensors else 0.0
    return first, b1, second, b2


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def activate(a, g, u):
    """The gated activation in float64, held inside the range of FP32."""
    limit = {k: np.inf if a[k] is None else np.float64(np.float32(a[k])) for k in a if k != "kind"}
    clamp = limit["clamp"]
    if a["kind"] == "swiglu":
        gate = np.minimum(g, clamp)
        h = gate * sigmoid(gate) * np.clip(u, -clamp, clamp)
    elif a["kind"] == "swiglu-oai":
        gate = np.minimum(g, clamp)
        up = np.clip(u, -clamp, clamp) + limit["up_bias"]
        h = gate * sigmoid(limit["alpha"] * gate) * up
    else:
        beta, linear = limit["beta"], limit["linear_beta"]
        up = u if np.isinf(linear) else linear * np.tanh(u / linear)
        h = beta * np.tanh(g / beta) * sigmoid(g) * up
    return np.clip(h, -FLOAT_MAX, FLOAT_MAX)


def round_h(precision, h, skip):
    """h as it enters the second matrix."""
    h = h.astype(np.float32)
    if "h" in skip:
        return h.astype(np.float64)
    if precision == "bf16":
        return codecs.from_bf16(codecs.to_bf16(h))
    codes, scale = quantise_mx(h) if precision == "mxfp8_mxfp4" else quantise(h)
    return dequantise(codes, scale)


def expert_outputs(case, tensors, expert, x, skip):
    """Contributions [tokens, hidden] of one expert to the tokens x, as float64."""
    w1, b1, w2, b2 = expert_weights(case, tensors, expert)
    gate_up = x @ w1.T + b1
    gate, up = np.split(gate_up, 2, axis=-1)
    h = round_h(case["precision"], activate(case["activation"], gate, up), skip)
    o = (h @ w2.T + b2).astype(np.float32)
    return o.astype(np.float64) if "contribution" in skip else codecs.from_bf16(codecs.to_bf16(o))


def fused_multiply_add(a, b, c):
    """float32 a * b + c: the product of 24 by 8 bits is exact in float64."""
    return (a.astype(np.float64) * b + c.astype(np.float64)).astype(np.float32)


def staged(case, tokens):
    """x and x_scales that staging must make of the hidden states."""
    hidden_states = codecs.from_bf16(tokens["hidden_states"]).astype(np.float32)
    if case["precision"] == "bf16":
        return tokens["hidden_states"], None
    return (
        quantise_mx(hidden_states)
        if case["precision"] == "mxfp8_mxfp4"
        else quantise(hidden_states)
    )


def gathered(case, field):
    """One field of all ranks' tokens, rank after rank."""
    return np.concatenate([tokens[field] for tokens in case["tokens"]])


def outputs(case, skip=()):
    """y BF16 [tokens, hidden] of all ranks' tokens, rank after rank."""
    if case["precision"] == "bf16":
        x = codecs.from_bf16(gathered(case, "x"))
    else:
        x = dequantise(gathered(case, "x"), gathered(case, "x_scales"))
    ids, weights = gathered(case, "topk_idx"), gathered(case, "topk_weights")
    contributions = np.zeros((case["top_k"], *x.shape))
    per_rank = case["experts"] // case["ranks"]
    for expert in range(case["experts"]):
        tokens, slots = np.nonzero(ids == expert)
        if tokens.size > 0:
            tensors = case["routed"][expert // per_rank]
            out = expert_outputs(case, tensors, expert % per_rank, x[tokens], skip)
            contributions[slots, tokens] = out
    total = np.zeros(x.shape, dtype=np.float32)
    for slot in range(case["top_k"]):
        valid = (ids[:, slot] >= 0) & (ids[:, slot] < case["experts"])
        added = fused_multiply_add(weights[:, slot, None], contributions[slot], total)
        total = np.where(valid[:, None], added, total)
    for expert in range(case["shared_experts"]):
        out = expert_outputs(case, case["shared"], expert, x, skip)
        total = fused_multiply_add(np.float32([[1]]), out, total)
    return codecs.to_bf16(total)
