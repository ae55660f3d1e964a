"""torch's own tensors on the CPU backend, and the operator. Without torch every test is skipped."""

import importlib.util
import os
import subprocess
import sys
import weakref
from pathlib import Path

import cases
import megamoe
import numpy as np
import pytest
from megamoe import deep_gemm

if importlib.util.find_spec("torch") is None:
    pytestmark = pytest.mark.skip(reason="needs torch, which is not installed")
else:
    import torch
    from megamoe.integrations import torch_op


def to_torch(array: np.ndarray):
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def case(count: int = 11):
    """(layer, weights of torch tensors, tokens of torch tensors, y that NumPy's arrays give)."""
    rng = np.random.default_rng(3)
    arrays = cases.checkpoint_weights(rng, "fp8", cases.E)
    brought = cases.tokens(rng, count)
    layer = megamoe.Group(cases.problem(1)).layer(0)
    y = np.zeros((count, cases.H), np.uint16)
    layer.stage(*vars(brought).values())
    layer.forward(y, megamoe.prepare_weights("fp8", **arrays))
    tensors = {name: to_torch(array) for name, array in arrays.items()}
    for name in ("w1", "w2"):
        tensors[name] = torch.nn.Parameter(
            tensors[name].view(torch.float8_e4m3fn), requires_grad=False
        )
    weights = megamoe.prepare_weights("fp8", **tensors)
    return layer, weights, [to_torch(a) for a in vars(brought).values()], to_torch(y)


def test_layer():
    layer, weights, tokens, expected = case()
    assert weights.arrays[0].dtype == torch.float8_e4m3fn
    layer.stage(*tokens)
    y = torch.zeros_like(expected)
    layer.forward(y, weights)
    assert torch.equal(y, expected)
    by_columns = torch.zeros(cases.H, 11, dtype=torch.bfloat16).T
    for wrong, match in (
        (torch.zeros(11, cases.H), "y has elements of float32"),
        (torch.zeros(11, 128, dtype=torch.bfloat16), "y has shape"),
        (by_columns, "y is not contiguous"),
    ):
        with pytest.raises(megamoe.Error, match=match):
            layer.forward(wrong, weights)


def test_parts_and_weights_to_a_device():
    layer, weights, tokens, expected = case()
    y = torch.zeros_like(expected)
    moved = megamoe.Weights(
        "fp8",
        *[
            t.numpy() if t.dtype != torch.float8_e4m3fn else t.view(torch.uint8).numpy()
            for t in weights.arrays[:4]
        ],
    ).to("cpu")
    layer.run(y, *tokens, moved, parts=3)
    assert torch.equal(y, expected)


@pytest.mark.parametrize("precision", ["bf16", "mxfp4"])
def test_padded_weights_are_numpys(precision):
    from test_padding import model_weights

    arrays = model_weights(np.random.default_rng(5), precision)
    wanted = megamoe.prepare_weights(precision, **arrays).arrays
    found = megamoe.prepare_weights(precision, **{n: to_torch(a) for n, a in arrays.items()}).arrays
    for mine, theirs in zip(found, wanted):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert torch.equal(
                mine.contiguous().view(torch.uint8),
                to_torch(np.ascontiguousarray(theirs)).view(torch.uint8),
            )


def test_y_of_the_models_size():
    from test_padding import WIDE, H, model_weights, staged_case

    layer, arrays, _ = staged_case()
    weights = megamoe.prepare_weights("bf16", **model_weights(np.random.default_rng(6), "bf16"))
    y = np.zeros((9, H), np.uint16)
    layer.forward(y, megamoe.prepare_weights("bf16", **arrays))
    plain = torch.zeros(9, H, dtype=torch.bfloat16)
    strided = torch.zeros(9, WIDE, dtype=torch.bfloat16)[:, :H]
    for out in (plain, strided):
        layer.forward(out, weights)
        assert torch.equal(out, to_torch(y))


def compatibility_case():
    """(buffer, l1, l2, tokens) of one rank, with torch tensors."""
    rng = np.random.default_rng(3)
    arrays = {n: to_torch(a) for n, a in cases.checkpoint_weights(rng, "fp8", cases.E).items()}
    for name in ("w1", "w2"):
        arrays[name] = arrays[name].view(torch.float8_e4m3fn)
    l1, l2 = deep_gemm.transform_weights_for_mega_moe(
        (arrays["w1"], arrays["w1_scales"]), (arrays["w2"], arrays["w2_scales"])
    )
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, cases.E, 16, cases.K, cases.H, cases.I)
    return buffer, l1, l2, [to_torch(a) for a in vars(cases.tokens(rng, 9)).values()]


def test_compatibility_call_follows_weights_that_change_in_place():
    buffer, l1, l2, tokens = compatibility_case()
    views = [
        torch.from_numpy(v) for v in (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    ]
    deep_gemm.mega_moe_pre_dispatch_sm90(*tokens, *views, num_tokens=9)
    y = torch.zeros(9, cases.H, dtype=torch.bfloat16)
    deep_gemm.fp8_mega_moe(y, l1, l2, buffer)
    assert y.any() and len(buffer._weights._found) == 1
    l2[1].zero_()
    deep_gemm.fp8_mega_moe(y, l1, l2, buffer)
    assert not y.any() and len(buffer._weights._found) == 1


def test_weights_that_were_copied_stay_alive():
    """Else others could come to lie where they were, and would be taken for them."""
    cache = compatibility_case()[0]._weights
    wide = {"w1": (4 * cases.I, cases.H), "w2": (cases.H, 2 * cases.I)}
    w1, w2 = (torch.zeros(shape, dtype=torch.bfloat16) for shape in wide.values())
    made, copied = cache.get("bf16", w1, w2, 2), weakref.ref(w2)
    assert cache.get("bf16", w1, w2, 2) is made
    w2.fill_(1)
    assert cache.get("bf16", w1, w2, 2) is not made, "copies follow their source"
    del w2
    assert copied() is not None


@pytest.mark.parametrize("look", ["in C", "in Python"])
def test_arrays_are_told_apart(look, monkeypatch):
    if look == "in Python":
        monkeypatch.setattr(megamoe._core, "array_key", lambda *arrays: None)
    elif not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch does not offer DLPack's exchange in C")
    key_of = deep_gemm._weights.key_of
    t = torch.zeros(4, 4, dtype=torch.uint8)
    key = key_of((t, t))
    assert isinstance(key, bytes) == (look == "in C")
    parameter = torch.nn.Parameter(t.view(torch.float8_e4m3fn), requires_grad=False)
    assert key_of((t[:], t.view(torch.int8).view(torch.uint8))) == key
    assert key_of((t, parameter)) == key_of((t, t.view(torch.float8_e4m3fn)))
    for other in (t.clone(), t[1:], t.reshape(2, 8), t.T, t.view(torch.int8), parameter):
        assert key_of((t, other)) != key
    before = key_of((parameter,))
    parameter.data = parameter.data.clone()
    assert key_of((parameter,)) != before


def test_a_calls_host_work_is_little():
    """Functions that a call runs in Python and of torch, when one like it came before. The test of the
    time itself needs a GPU."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch does not offer DLPack's exchange in C")
    buffer, l1, l2, _ = compatibility_case()
    y = torch.zeros(0, cases.H, dtype=torch.bfloat16)
    stats = torch.zeros(cases.E, dtype=torch.int64)
    for most, options in ((48, {}), (60, {"cumulative_local_expert_recv_stats": stats})):
        deep_gemm.fp8_mega_moe(y, l1, l2, buffer, **options)
        ran = []
        sys.setprofile(lambda frame, event, what, ran=ran: ran.append((event, frame.f_code, what)))
        deep_gemm.fp8_mega_moe(y, l1, l2, buffer, **options)
        sys.setprofile(None)
        calls = [one for one in ran if one[0] in ("call", "c_call")]
        assert len(calls) <= most, calls


def test_operator_is_traced_and_compiled():
    layer, weights, tokens, expected = case()
    torch_op.register()
    assert torch_op.register() is torch_op.register()
    handle = torch_op.add(layer, weights)
    assert torch.equal(torch.ops.megamoe.layer(*tokens, handle), expected)

    def model(x, ids, w):
        return torch.ops.megamoe.layer(x * 1, ids, w, handle) + 0

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(*tokens), expected)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in tokens]
        out = torch.ops.megamoe.layer(*fakes, handle)
        assert (out.shape, out.dtype) == (expected.shape, expected.dtype)
    torch_op.remove(handle)
    with pytest.raises(megamoe.Error, match="is none that"):
        torch.ops.megamoe.layer(*tokens, handle)


@pytest.mark.parametrize(("count", "clamp"), [(33, None), (33, 1.0), (0, None)])
def test_the_reference_of_the_gpu_tests(count, clamp):
    from gpu_case import Layer, Shape, assert_close, received

    layer = Layer(1, Shape(hidden=256, intermediate=128, experts=8, top_k=2, capacity=40))
    brought = layer.bring([count], masked=0.2)
    layer.stage(brought)
    y, stats = layer.outputs([count]), [torch.zeros(8, dtype=torch.int32)]
    for calls in (1, 2):
        layer.call(y, stats, activation_clamp=clamp)
        layer.finish()
        assert stats[0].tolist() == (calls * received(brought, layer.shape, 1)[0]).tolist()
    assert_close(y, layer.expected(brought, clamp))
    if count > 0:
        with pytest.raises(AssertionError):
            assert_close([y[0] * 1.1], layer.expected(brought, clamp))


def test_a_process_ends_quietly():
    """Also with an operator, with which torch keeps the package's modules to the very end."""
    code = (
        "import torch; from megamoe import deep_gemm; from megamoe.integrations import torch_op;"
        "torch_op.register(); deep_gemm._state.activation_of('swiglu')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (found.returncode, found.stderr) == (0, "")


def test_torchrun():
    """Two processes on this machine's GPUs, or on the CPU backend where it has fewer than two."""
    example = Path(__file__).parents[3] / "examples/python/torchrun_layer.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(example)]
    usable = len(set(megamoe._core.find_devices()[0]))
    # What the library has no kernels for is no GPU for the example.
    shown = {} if usable else {"CUDA_VISIBLE_DEVICES": ""}
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=55, env=os.environ | shown
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.count("agrees with one process") == 2, found.stdout
    on_cpu = f"processes: 2, GPUs: {usable}; all ranks on the CPU backend" in found.stdout
    assert on_cpu == (usable < 2), found.stdout
