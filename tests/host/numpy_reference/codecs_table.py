"""Number formats by table: each format is the list of its values, and rounding is a search in it."""

import numpy as np


def _values(exponent_bits, mantissa_bits, bias, codes):
    """The values of the non-negative codes 0 .. codes - 1, from the format's definition."""
    code = np.arange(codes)
    exponent = code >> mantissa_bits
    fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    subnormal = np.ldexp(fraction, 1 - bias)
    normal = np.ldexp(1 + fraction, exponent - bias)
    assert exponent.max() < 1 << exponent_bits
    return np.where(exponent == 0, subnormal, normal)


E4M3_POSITIVE = _values(4, 3, 7, 127)
E2M1_POSITIVE = _values(2, 1, 1, 8)
E4M3_CODE_NAN = 0x7F

_e4m3_half = np.append(E4M3_POSITIVE, np.nan)
E4M3 = np.concatenate([_e4m3_half, -_e4m3_half])
E2M1 = np.concatenate([E2M1_POSITIVE, -E2M1_POSITIVE])
E2M1_PAIRS = np.array([(E2M1[pair & 15], E2M1[pair >> 4]) for pair in range(256)])


def _nearest(positive, magnitude):
    """Index of the nearest table value, ties to the even index, beyond the end: the last."""
    high = np.clip(np.searchsorted(positive, magnitude), 1, len(positive) - 1)
    low = high - 1
    to_low = magnitude - positive[low]
    to_high = positive[high] - magnitude
    take_high = (to_high < to_low) | ((to_high == to_low) & (high % 2 == 0))
    return np.where(take_high, high, low)


def to_e4m3(values):
    """Codes of float32 values; saturating, every NaN 0x7f."""
    exact = values.astype(np.float64)
    nan = np.isnan(exact)
    magnitude = np.minimum(np.abs(np.where(nan, 0, exact)), E4M3_POSITIVE[-1])
    code = _nearest(E4M3_POSITIVE, magnitude) | np.where(np.signbit(exact), 0x80, 0)
    return np.where(nan, E4M3_CODE_NAN, code).astype(np.uint8)


def unpack_e2m1(packed):
    """Values of packed codes [..., K / 2], the low nibble first: [..., K]."""
    return E2M1_PAIRS[packed].reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def from_ue8m0(codes):
    """2^(code - 127); 255 is NaN."""
    return np.where(codes == 255, np.nan, np.ldexp(1.0, codes.astype(np.int64) - 127))


def from_bf16(bits):
    """float64 values of BF16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_bf16(values):
    """The nearest BF16 bit patterns of float32 values, ties to even: chosen between the truncated
    value and its neighbour away from zero by their exact distances."""
    assert values.dtype == np.float32
    low = (values.view(np.uint32) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    high = np.where(nan | np.isinf(values), low, low + 1).astype(np.uint16)
    exact = np.abs(values.astype(np.float64))
    above = np.abs(from_bf16(high))
    # Rounding treats the value after the largest finite one as 2^128.
    above = np.where(np.isinf(above) & ~np.isinf(exact), 2.0**128, above)
    with np.errstate(invalid="ignore"):
        to_low = exact - np.abs(from_bf16(low))
        to_high = above - exact
        take_high = (to_high < to_low) | ((to_high == to_low) & (high % 2 == 0))
    return np.where(nan, 0x7FC0, np.where(take_high, high, low)).astype(np.uint16)
