"""Number formats and the safetensors container, in numpy: for the tools beside this file.

Written from the formats' definitions, on purpose without a look at the C++ side: tests compare the
two.
"""

import json
from pathlib import Path

import numpy as np

ITEM_BYTES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "U8": 1,
    "I8": 1,
    "I32": 4,
    "I64": 8,
}


# ---- codecs: arrays of codes <-> float32


def bf16_encode(values):
    """Nearest BF16, ties to even, as uint16; finite input."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_decode(codes):
    return (np.asarray(codes, np.uint16).astype(np.uint32) << 16).view(np.float32)


def _e4m3_values():
    codes = np.arange(256)
    exponent = (codes >> 3) & 15
    mantissa = codes & 7
    magnitude = np.where(
        exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    )
    magnitude[(codes & 127) == 127] = np.nan
    return np.where(codes < 128, magnitude, -magnitude).astype(np.float32)


E4M3 = _e4m3_values()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _nearest_code(values, positive):
    """Index of the nearest of the ascending `positive` values to |values|, ties to the even index,
    saturating."""
    table = positive.astype(np.float64)
    middle = (table[1:] + table[:-1]) / 2
    magnitude = np.abs(np.asarray(values, np.float64))
    index = np.searchsorted(middle, magnitude, side="left")
    tie = (index < len(middle)) & (middle[np.minimum(index, len(middle) - 1)] == magnitude)
    return index + (tie & (index % 2 == 1))


def e4m3_encode(values):
    code = _nearest_code(values, E4M3[:127])
    return (code | np.where(np.signbit(values), 128, 0)).astype(np.uint8)


def e2m1_encode(values):
    code = _nearest_code(values, E2M1[:8])
    return (code | np.where(np.signbit(values), 8, 0)).astype(np.uint8)


def ue8m0_decode(codes):
    codes = np.asarray(codes, np.uint8)
    return np.where(codes == 255, np.nan, np.exp2(codes.astype(np.float64) - 127)).astype(
        np.float32
    )


# ---- matrices: the last two axes are rows and columns


def _ceil_div(a, b):
    return -(-a // b)


def _spread(scales, rows, cols, block_rows, block_cols):
    """Each scale repeated over its block, cut to rows x cols."""
    wide = np.repeat(np.repeat(scales, block_rows, axis=-2), block_cols, axis=-1)
    return wide[..., :rows, :cols]


def fp8_quantise(values, power_of_two=False):
    """(codes, float32 scales) of 128x128 blocks; the last blocks may be smaller."""
    values = np.asarray(values, np.float32)
    rows, cols = values.shape
    block_rows, block_cols = _ceil_div(rows, 128), _ceil_div(cols, 128)
    padded = np.zeros((block_rows * 128, block_cols * 128), np.float32)
    padded[:rows, :cols] = values
    amax = np.abs(padded.reshape(block_rows, 128, block_cols, 128)).max(axis=(1, 3))
    m = np.maximum(amax, np.float32(2.0**-100))
    if power_of_two:
        scales = np.exp2(np.ceil(np.log2(m.astype(np.float64) / 448))).astype(np.float32)
        factor = (1 / scales).astype(np.float32)
    else:
        scales = m / np.float32(448)
        factor = np.float32(448) / m
    codes = e4m3_encode(values * _spread(factor, rows, cols, 128, 128))
    return codes, scales


def fp8_dequantise(codes, scales):
    codes = np.asarray(codes, np.uint8)
    rows, cols = codes.shape[-2:]
    spread = _spread(np.asarray(scales, np.float32), rows, cols, 128, 128)
    return E4M3[codes] * spread


def mxfp4_quantise(values):
    """(packed codes, low nibble first; UE8M0 codes) with one scale per 32 columns."""
    values = np.asarray(values, np.float32)
    groups = values.reshape(*values.shape[:-1], -1, 32)
    amax = np.maximum(np.abs(groups).max(axis=-1).astype(np.float64), 2.0**-100)
    exponent = np.ceil(np.log2(amax / 6))
    codes = e2m1_encode(groups.astype(np.float64) * np.exp2(-exponent)[..., None])
    codes = codes.reshape(values.shape)
    packed = (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)
    return packed, (exponent + 127).astype(np.uint8)


def mxfp4_dequantise(packed, scales):
    packed = np.asarray(packed, np.uint8)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return E2M1[codes] * np.repeat(ue8m0_decode(scales), 32, axis=-1)


# ---- the safetensors container


def write_safetensors(path, tensors):
    """`tensors`: name -> (dtype, array whose bytes are the tensor's)."""
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    parts = []
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        if len(raw) != array.size * ITEM_BYTES[dtype]:
            raise ValueError(f"{name}: {len(raw)} bytes do not fit {dtype} {list(array.shape)}")
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        offset += len(raw)
        parts.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


_NUMPY = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "F8_E8M0": np.uint8,
    "U8": np.uint8,
    "I8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
}


def read_safetensors(path):
    """name -> (dtype, array of codes)."""
    raw = Path(path).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], _NUMPY[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], array)
    return tensors
