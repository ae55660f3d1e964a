"""Layers of checkpoints, against what the writer of the checkpoints says is in them."""

import subprocess
import sys
from pathlib import Path

import megamoe
import numpy as np
import pytest
from test_padding import logical_rows

WRITER = Path(__file__).parents[2] / "tools/make_checkpoint.py"


def written(folder, family: str, *options: str) -> dict[str, np.ndarray]:
    command = [sys.executable, str(WRITER), "--family", family, "--out", str(folder), *options]
    subprocess.run(command, check=True, timeout=50, capture_output=True)
    dump = ["--dump", str(folder), "--layer", "0", "--to", str(folder / "dump.npz")]
    command = [sys.executable, str(WRITER), *dump]
    subprocess.run(command, check=True, timeout=50, capture_output=True)
    return dict(np.load(folder / "dump.npz"))


def test_each_ranks_experts(tmp_path):
    dump = written(tmp_path, "qwen3-moe", "--experts", "4")
    parts: list[float] = []
    for rank in range(2):
        loaded = megamoe.load_layer(tmp_path, 0, ranks=2, rank=rank, progress=parts.append)
        assert (loaded.first_expert, loaded.experts, loaded.top_k) == (2 * rank, 4, 2)
        assert (loaded.routed.precision, loaded.shared) == ("bf16", None)
        w1, w2 = loaded.routed.arrays[:2]
        mine = slice(2 * rank, 2 * rank + 2)
        found = logical_rows(megamoe.from_bf16(w1))
        assert np.array_equal(found, dump["w1"][mine].reshape(found.shape))
        assert np.array_equal(megamoe.from_bf16(w2), dump["w2"][mine])
        p = loaded.problem(ranks=2, max_tokens_per_rank=16)
        assert (p.hidden, p.intermediate, p.precision) == (256, 128, "bf16")
    assert parts == sorted(parts[: len(parts) // 2]) * 2 and parts[-1] == 1


def test_shared_experts_and_the_layer_runs(tmp_path):
    written(tmp_path, "deepseek-v3", "--store", "fp8")
    loaded = megamoe.load_layer(str(tmp_path), 0)
    assert loaded.shared is not None and loaded.shared.num_experts >= 1
    p = loaded.problem(ranks=1, max_tokens_per_rank=8)
    layer = megamoe.Group(p).layer(0)
    rng = np.random.default_rng(1)
    idx = np.stack([rng.permutation(p.experts)[: p.top_k] for _ in range(8)]).astype(np.int64)
    weights = np.full(idx.shape, 0.5, np.float32)
    layer.stage(megamoe.to_bf16(rng.standard_normal((8, p.hidden))), idx, weights)
    inputs = [tuple(view.copy() for view in layer.inputs)]
    y = np.zeros((8, p.hidden), np.uint16)
    layer.forward(y, loaded.routed, shared=loaded.shared)
    (expected,) = megamoe.reference(p, inputs, [loaded.routed], shared=[loaded.shared])
    assert megamoe.compare(y, expected).diff < 3e-5


def test_padding_and_biases(tmp_path):
    dump = written(tmp_path, "gpt-oss", "--hidden", "320", "--intermediate", "96")
    loaded = megamoe.load_layer(tmp_path, 0)
    assert (loaded.hidden, loaded.intermediate) == (320, 96)
    assert (loaded.routed.hidden, loaded.routed.intermediate) == (384, 128)
    b1, b2 = loaded.routed.arrays[4:]
    assert np.array_equal(logical_rows(b1)[:, :, :96].reshape(8, -1), dump["b1"])
    assert np.array_equal(b2[:, :320], dump["b2"]) and not b2[:, 320:].any()
    with pytest.raises(megamoe.Error, match="320"):
        megamoe.load_layer(tmp_path, 0, pad=False)


def test_refused(tmp_path):
    with pytest.raises(megamoe.Error, match="nowhere") as caught:
        megamoe.load_layer(tmp_path / "nowhere", 0)
    assert caught.value.code == "invalid_file"
    with pytest.raises(megamoe.Error, match="'fp5'; known"):
        megamoe.load_layer(tmp_path, 0, precision="fp5")
