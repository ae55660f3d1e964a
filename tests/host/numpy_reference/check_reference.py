"""Compares the C++ reference with the NumPy one on the cases that DUMP_TOOL writes.

usage: check_reference.py DUMP_TOOL
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# The matrices are small: threads of the linear algebra would only wait for each other.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
try:
    import numpy as np
except ImportError:
    sys.exit("check_reference.py needs numpy (tools/setup.sh installs it)")

import codecs_table as codecs
import layer

# Both sides compute in float64 and round at the same places, so y differs only where the two orders
# of summation fall on different sides of a rounding boundary. A sum of K <= 384 products is uncertain
# by about K * 2^-53 = 4e-14 of the sum of magnitudes, some ten times that of the result: 4e-13. An
# FP32 rounding (spacing 2^-23 = 1.2e-7) thus goes the other way with a probability of about 4e-6, and
# that flips a code of h (3 mantissa bits) or a BF16 (7) only if it also lies on that boundary, 2^-16
# as likely. Flips of BF16 that come straight from the double sum have a probability of 4e-13 / 2^-8,
# 1e-10. With 2e5 values of y, no difference at all is expected; one flipped code of h would touch a
# whole row of y by at most one BF16 step each in most channels. The bounds allow one such accident.
MOST_STEPS = 1
MOST_DIFFERENT = 1e-3  # of a case's values; no NaN or Inf may differ at all


def load(node, data):
    """Replaces every array description in the JSON tree by the array."""
    if isinstance(node, dict) and "offset" in node:
        dtype = np.dtype(node["dtype"])
        count = int(np.prod(node["shape"]))
        return np.frombuffer(data, dtype, count, node["offset"]).reshape(node["shape"])
    if isinstance(node, dict):
        return {key: load(value, data) for key, value in node.items()}
    if isinstance(node, list):
        return [load(value, data) for value in node]
    return node


def title(case):
    parts = [case["precision"], case["activation"]["kind"], case["routing"]]
    parts += [f"H{case['hidden']}", f"I{case['intermediate']}", f"shared{case['shared_experts']}"]
    parts += ["interleaved"] if case["interleaved"] else []
    parts += ["biases"] if "b1" in case["routed"][0] else []
    return " ".join(parts)


def ordered(bits):
    """BF16 bits as integers in the order of their values; both zeros are 0."""
    magnitude = (bits & 0x7FFF).astype(np.int64)
    return np.where(bits & 0x8000, -magnitude, magnitude)


def distance(y, expected):
    """(share of values that differ, most BF16 steps between finite values; inf if NaN or Inf
    differ)."""
    nan, nan_expected = (np.isnan(codecs.from_bf16(v)) for v in (y, expected))
    if not np.array_equal(nan, nan_expected):
        return 1.0, np.inf
    y, expected = y[~nan], expected[~nan]
    inf = np.isinf(codecs.from_bf16(y)) | np.isinf(codecs.from_bf16(expected))
    if not np.array_equal(y[inf], expected[inf]):
        return 1.0, np.inf
    different = np.count_nonzero(y != expected) / max(1, y.size)
    return different, np.abs(ordered(y) - ordered(expected)).max(initial=0)


def same_bits(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_staging(case):
    errors = []
    for rank, tokens in enumerate(case["tokens"]):
        x, scales = layer.staged(case, tokens)
        if not same_bits(x, tokens["x"]):
            errors.append(f"rank {rank}: {np.count_nonzero(x != tokens['x'])} codes of x differ")
        if scales is not None and not same_bits(scales, tokens["x_scales"]):
            errors.append(f"rank {rank}: scales of x differ")
    return errors


def check_case(case):
    errors = check_staging(case)
    ids = layer.gathered(case, "topk_idx")
    received = [int(np.count_nonzero(ids == e)) for e in range(case["experts"])]
    if received != case["received"]:
        errors.append(f"received {case['received']}, expected {received}")
    y = layer.outputs(case)
    different, steps = distance(case["y"], y)
    if not (different <= MOST_DIFFERENT and steps <= MOST_STEPS):
        errors.append(f"{different:.2%} of y differ, by up to {steps} BF16 steps")
    return errors, different


def check_sensitivity(cases):
    """A reference that leaves out one rounding must be caught, or the check proves little."""
    errors = []
    for rounding in ("h", "contribution"):
        for precision in ("fp8", "bf16", "mxfp4", "mxfp8_mxfp4"):
            case = next(
                c for c in cases if c["precision"] == precision and c["routing"] == "uniform"
            )
            different, _ = distance(case["y"], layer.outputs(case, (rounding,)))
            if different <= 10 * MOST_DIFFERENT:
                errors.append(f"{precision} without the rounding of {rounding}: not noticed")
    return errors


def check_codecs():
    """The tables against values written out by hand."""
    assert codecs.E4M3_POSITIVE[[0, 1, 7, 8, 56, 126]].tolist() == [
        0,
        2**-9,
        7 * 2**-9,
        2**-6,
        1,
        448,
    ]
    assert codecs.E2M1_POSITIVE.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    ties = np.float32([17, 19, 465, -0.0, np.nan, 2**-10, 3 * 2**-10])
    assert codecs.to_e4m3(ties).tolist() == [0x58, 0x5A, 0x7E, 0x80, 0x7F, 0, 2]
    ties = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -np.inf, 3.4e38])
    assert codecs.to_bf16(ties).tolist() == [0x3F80, 0x3F82, 0xFF80, 0x7F80]
    assert layer.logical_rows(True, 16).tolist()[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 16]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    check_codecs()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=60)
        data = pathlib.Path(folder, "data.bin").read_bytes()
        cases = load(json.loads(pathlib.Path(folder, "cases.json").read_text()), data)
    failed = 0
    flipped = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for number, case in enumerate(cases):
            errors, different = check_case(case)
            flipped += different > 0
            failed += bool(errors)
            for error in errors:
                print(f"case {number} ({title(case)}): {error}")
        for error in check_sensitivity(cases):
            failed += 1
            print(error)
    print(f"{len(cases)} cases, {flipped} not bitwise equal, {failed} failures")
    sys.exit(1 if failed or not cases else 0)


if __name__ == "__main__":
    main()
