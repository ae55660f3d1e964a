"""Compares what the C++ loader makes of a checkpoint with the Python decoder, bit for bit.

compare_checkpoints.py TOOL: TOOL is the program checkpoint_values.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import make_checkpoint as mc
import tensor_formats as tf
from checkpoint_families import FAMILIES

TIMEOUT_S = 60


@dataclass(frozen=True)
class Case:
    family: str
    hidden: int = 256
    intermediate: int = 128
    experts: int = 4
    shards: int = 1
    ranks: int = 1
    shared: int = 1
    layers: int = 1
    store: str = ""  # of the checkpoint; empty: the family's own
    want: str = ""  # of the loader; empty: as the checkpoint
    becomes: str = ""  # the precision that the loader must report; empty: not checked


def cases():
    for family in FAMILIES:
        yield Case(family)
        # Neither size is a multiple of 128: as 2880, but small.
        yield Case(family, hidden=160, intermediate=96, shards=3, ranks=2)
    yield Case("gpt-oss", hidden=96, intermediate=224, experts=8, ranks=8, becomes="mxfp4")
    yield Case("deepseek-v3", hidden=200, intermediate=136, layers=2, ranks=4, becomes="fp8")
    yield Case("deepseek-v3", shared=3, becomes="fp8")
    yield Case("glm", hidden=160, intermediate=96, shared=2, becomes="bf16")
    # Quantised at load.
    yield Case("qwen3-moe", want="fp8", becomes="fp8")
    yield Case("glm", hidden=160, intermediate=96, want="fp8", becomes="fp8")
    yield Case("mixtral", hidden=136, intermediate=264, want="fp8", becomes="fp8")
    # FP8 releases of families that are BF16 otherwise; BF16 scales.
    yield Case("qwen3-moe", hidden=160, intermediate=96, store="fp8", becomes="fp8")
    # MXFP4 to fp8: exact.
    yield Case("gpt-oss", hidden=160, intermediate=96, want="fp8", becomes="fp8")
    yield Case("deepseek-v4", want="fp8", becomes="fp8")
    yield Case("deepseek-v4", want="mxfp4", becomes="mxfp4")


def fp8_of(values):
    """Each expert's matrix quantised to FP8 and decoded; gate and up are matrices of their own."""
    return np.stack([tf.fp8_dequantise(*tf.fp8_quantise(matrix)) for matrix in values])


def expected_layer(case, path, layer):
    expected = mc.decode_layer(path, layer)
    stored = case.store or FAMILIES[case.family].store
    if stored == "bf16" and case.want == "fp8":
        for name in [n for n in expected if n.endswith(("w1", "w2"))]:
            if name.endswith("w1"):
                gate, up = np.split(expected[name], 2, axis=1)
                expected[name] = np.concatenate([fp8_of(gate), fp8_of(up)], axis=1)
            else:
                expected[name] = fp8_of(expected[name])
    return expected


def pad(array, axis, size):
    width = [(0, 0)] * array.ndim
    width[axis] = (0, size - array.shape[axis])
    return np.pad(array, width)


def padded(name, array, hidden, intermediate):
    """The array with zeros in its padded channels."""
    kind = name.removeprefix("shared_")
    if kind in ("w1", "b1"):
        gate, up = np.split(array, 2, axis=1)
        array = np.concatenate([pad(gate, 1, intermediate), pad(up, 1, intermediate)], axis=1)
        return pad(array, 2, hidden) if kind == "w1" else array
    array = pad(array, 1, hidden)
    return pad(array, 2, intermediate) if kind == "w2" else array


def check(tool, case, folder):
    args = ["--family", case.family, "--out", folder, "--seed", "7"]
    for key in ("hidden", "intermediate", "experts", "shards", "shared", "layers"):
        args += [f"--{key}", str(getattr(case, key))]
    if case.store:
        args += ["--store", case.store]
    mc.write_checkpoint(mc.arguments(args))
    layer = case.layers - 1
    out = Path(folder) / "values.safetensors"
    command = [tool, folder, str(layer), str(out), str(case.ranks)]
    if case.want:
        command.append(case.want)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        return f"exit status {done.returncode}: {done.stderr.strip()}"
    family, precision = done.stdout.split()
    if family != case.family or (case.becomes and precision != case.becomes):
        return f"loaded as {family} {precision}"
    loaded = {name: array for name, (_, array) in tf.read_safetensors(out).items()}
    expected = expected_layer(case, folder, layer)
    if set(loaded) != set(expected):
        return f"tensors: expected {sorted(expected)}, found {sorted(loaded)}"
    up = [-(-size // 128) * 128 for size in (case.hidden, case.intermediate)]
    for name, array in expected.items():
        want = padded(name, array, *up)
        if want.shape != loaded[name].shape:
            return f"{name}: expected {want.shape}, found {loaded[name].shape}"
        if not np.any(array):
            return f"{name}: the checkpoint holds only zeros, which would prove nothing"
        wrong = np.argwhere(want != loaded[name])
        if len(wrong):
            at = tuple(wrong[0])
            return f"{name}{list(at)}: expected {want[at]}, found {loaded[name][at]}"
    return ""


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    failed = 0
    total = 0
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(sys.argv[1], case, folder)
        total += 1
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok'} {case} {wrong}")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
