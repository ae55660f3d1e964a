"""The plug-ins against fakes with the frameworks' interfaces."""

import subprocess
import sys
import types

import cases
import megamoe
import numpy as np
import pytest
from megamoe import deep_gemm
from megamoe.integrations import flashinfer, sglang, vllm
from test_weights import order_by_rows


def test_importing_them_imports_no_framework():
    code = (
        "import sys; from megamoe.integrations import sglang, vllm, flashinfer;"
        "print([m for m in ('torch', 'sglang', 'vllm', 'flashinfer', 'deep_gemm') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert found.stdout.strip() == "[]"


def test_sglang_without_deep_gemm(monkeypatch):
    monkeypatch.delitem(sys.modules, "deep_gemm", raising=False)
    with sglang.install():
        import deep_gemm as found

        assert found is deep_gemm and found.get_num_sms() == 0
    assert "deep_gemm" not in sys.modules


def test_sglang_with_deep_gemm(monkeypatch):
    original = types.ModuleType("deep_gemm")
    original.get_num_sms = lambda: 78
    original.fp8_mega_moe = "theirs"
    original.fp8_gemm_nt = "their GEMM"
    monkeypatch.setitem(sys.modules, "deep_gemm", original)
    patch = sglang.install()
    assert original.fp8_mega_moe is deep_gemm.fp8_mega_moe
    assert original.fp8_gemm_nt == "their GEMM"
    for name in (
        "get_symm_buffer_for_mega_moe",
        "get_symm_buffer_for_sm90_mega_moe",
        "fp8_fp4_mega_moe",
        "fp8_mega_moe_sm90",
        "transform_weights_for_mega_moe_sm90",
        "mega_moe_pre_dispatch_sm90",
        "get_symm_buffer_size_for_mega_moe",
        "get_token_alignment_for_mega_moe",
        "get_block_m_for_mega_moe",
    ):
        assert getattr(original, name) is getattr(deep_gemm, name)
    assert deep_gemm.get_num_sms() == 78
    patch.undo()
    patch.undo()
    assert original.fp8_mega_moe == "theirs"
    assert not hasattr(original, "bf16_mega_moe")


def layer_case():
    """(weights in a checkpoint's order, tokens, the buffer, what y must be)."""
    rng = np.random.default_rng(3)
    arrays = cases.checkpoint_weights(rng, "fp8", cases.E)
    brought = cases.tokens(rng, 12)
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, cases.E, 12, cases.K, cases.H, cases.I)
    codes, scales = megamoe.quantize(brought.hidden_states)
    p = cases.problem(1, activation=megamoe.Activation(clamp=0.5))
    inputs = [(codes, scales, brought.topk_idx, brought.topk_weights)]
    (y,) = megamoe.reference(p, inputs, [megamoe.prepare_weights("fp8", **arrays)])
    return arrays, brought, buffer, y


@pytest.fixture
def case():
    return layer_case()


@pytest.fixture
def fake_vllm(monkeypatch):
    """vLLM's module with the factory, a model that imported it, and torch on a Hopper."""
    home = types.ModuleType(vllm.HOME)
    model = types.ModuleType("vllm.models.fake")
    quantisations = types.ModuleType("vllm.fake_quant_utils")
    quantisations.kFp8Dynamic128Sym = "fp8, 128"
    home.QuantKey = type("QuantKey", (), {"__module__": quantisations.__name__})
    home.DeepGemmMegaMoEBackend = type("DeepGemmMegaMoEBackend", (), {})

    def get_deep_gemm_mega_moe_backend(device, hidden_size, intermediate_size):
        return "theirs"

    home.get_deep_gemm_mega_moe_backend = get_deep_gemm_mega_moe_backend
    model.get_deep_gemm_mega_moe_backend = get_deep_gemm_mega_moe_backend
    torch = types.ModuleType("torch")
    torch.Tensor = type("Tensor", (), {})
    torch.float8_e4m3fn, torch.float32 = np.uint8, np.float32
    torch.zeros = lambda *shape, dtype: np.zeros(shape, dtype)
    torch.nn = types.SimpleNamespace(Parameter=lambda data, requires_grad: data)
    torch.capability = (9, 0)
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: False,
        get_device_capability=lambda device: torch.capability,
    )
    for module in (home, model, quantisations, torch):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return types.SimpleNamespace(home=home, model=model, torch=torch)


def test_vllm_gets_a_backend_on_hopper_alone(fake_vllm):
    factory = vllm.FACTORY
    before = getattr(fake_vllm.home, factory)
    with vllm.install():
        backend = getattr(fake_vllm.model, factory)("cuda:0", cases.H, cases.I)
        assert isinstance(backend, fake_vllm.home.DeepGemmMegaMoEBackend)
        assert (backend.mma_type, backend.hidden_quant) == ("fp8xfp8", "fp8, 128")
        with pytest.raises(ValueError, match="hidden_size = 200"):
            getattr(fake_vllm.home, factory)("cuda:0", 200, cases.I)
        fake_vllm.torch.capability = (10, 0)
        assert getattr(fake_vllm.home, factory)("cuda:0", cases.H, cases.I) == "theirs"
    assert getattr(fake_vllm.home, factory) is before
    assert getattr(fake_vllm.model, factory) is before


def test_vllm_backend_loads_and_runs(case, fake_vllm, monkeypatch):
    arrays, brought, buffer, expected = case
    backend = vllm.make_backend(fake_vllm.home)()
    layer = types.SimpleNamespace()
    layer.register_parameter = lambda name, data: setattr(layer, name, data)
    sizes = {"num_local_experts": cases.E, "hidden_size": cases.H, "intermediate_size": cases.I}
    backend.create_weights(layer, **sizes, num_shared_experts=0)
    with pytest.raises(megamoe.Error, match="num_shared_experts = 1"):
        backend.create_weights(layer, **sizes, num_shared_experts=1)
    for expert in range(cases.E):
        for name, field in (("w13", "w1"), ("w2", "w2")):
            weight = getattr(layer, f"{name}_weight")[expert]
            scale = getattr(layer, f"{name}_weight_scale")[expert]
            given, given_scale = arrays[field][expert], arrays[f"{field}_scales"][expert]
            if field == "w2":
                backend.load_weight(weight, given, "w2", False)
                backend.load_weight(scale, given_scale, "w2", True)
                continue
            for half, shard in enumerate(("w1", "w3")):
                part, rows = slice(half * cases.I, (half + 1) * cases.I), cases.I // 128
                backend.load_weight(weight, given[part], shard, False)
                backend.load_weight(
                    scale, given_scale[half * rows : (half + 1) * rows], shard, True
                )
    assert np.array_equal(layer.w13_weight, order_by_rows(arrays["w1"]))
    assert np.array_equal(layer.w13_weight_scale, arrays["w1_scales"])
    with pytest.raises(ValueError, match="w1 weights have shape"):
        backend.load_weight(layer.w13_weight[0], arrays["w1"][0], "w1", False)
    with pytest.raises(ValueError, match="'w4'; known"):
        backend.load_weight(layer.w13_weight[0], arrays["w1"][0], "w4", False)

    monkeypatch.delitem(sys.modules, "torch")
    views = (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    deep_gemm.mega_moe_pre_dispatch_sm90(*vars(brought).values(), *views, num_tokens=12)
    y = np.zeros((12, cases.H), np.uint16)
    backend.run_mega_moe(
        y=y,
        l1_weights=(layer.w13_weight, layer.w13_weight_scale),
        l2_weights=(layer.w2_weight, layer.w2_weight_scale),
        symm_buffer=buffer,
        activation_clamp=0.5,
        fast_math=False,
    )
    assert megamoe.compare(y, expected).diff < 3e-5


def test_vllm_stages_around_padding(case):
    _, brought, buffer, _ = case
    padding = np.arange(12) >= 7
    vllm.stage_tokens(buffer, *vars(brought).values(), padding)
    assert np.array_equal(buffer.topk_idx[:7], brought.topk_idx[:7])
    assert np.all(buffer.topk_idx[7:] == -1)
    assert np.array_equal(buffer.x[:7], megamoe.quantize(brought.hidden_states[:7])[0])
    vllm.stage_tokens(buffer, *vars(brought).values())
    assert np.array_equal(buffer.topk_idx[:12], brought.topk_idx)
    with pytest.raises(megamoe.Error, match=r"padding has shape \(3,\); needed: \(12,\)"):
        vllm.stage_tokens(buffer, *vars(brought).values(), padding[:3])


def test_vllm_moves_experts_and_shares_buffers(case):
    arrays = case[0]
    w1, scales = vllm.expert_views(arrays["w1"], arrays["w1_scales"])
    assert w1.shape == (cases.E, 2 * cases.I * cases.H) and scales.shape == (cases.E, 4)
    before = arrays["w1"].copy()
    w1[[0, 1]] = w1[[1, 0]]
    assert np.array_equal(arrays["w1"][0], before[1]) and np.array_equal(arrays["w1"][1], before[0])
    cache = vllm.BufferCache()
    sizes = (None, cases.E, 12, cases.K, cases.H, cases.I)
    first = cache.get(*sizes)
    with deep_gemm.num_sms(3):
        assert cache.get(*sizes) is first, "geometry alone"
    assert cache.get(*sizes, num_shared_experts=1) is not first
    cache.clear()
    assert first.x is None and cache.get(*sizes) is not first


@pytest.fixture
def fake_flashinfer(monkeypatch):
    """FlashInfer's registry and base class."""
    registry = types.ModuleType(f"{flashinfer.CORE}.registry")
    registry.kernels = {}

    def register_mega_kernel(name):
        def decorator(cls):
            registry.kernels[name] = cls
            return cls

        return decorator

    registry.register_mega_kernel = register_mega_kernel
    base = types.ModuleType(f"{flashinfer.CORE}.base")

    class MegaKernelBackend:
        def __init__(self, config):
            self.ep_comm_group = None

    base.MegaKernelBackend = MegaKernelBackend
    parts = flashinfer.CORE.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for module in (registry, base):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return registry


@pytest.mark.parametrize("quantize_input", [True, False])
def test_flashinfer_kernel(fake_flashinfer, quantize_input):
    arrays, brought, _, expected = layer_case()
    config = flashinfer.MegamoeConfig(
        intermediate_size=cases.I, top_k=cases.K, activation_clamp=0.5, fast_math=False
    )
    flashinfer.register()
    kernel = fake_flashinfer.kernels[config.kernel_name](config)
    assert kernel.kernel_name() == "megamoe_fp8"
    bootstrap = types.SimpleNamespace(world_size=1)
    fleet = types.SimpleNamespace(
        num_experts=cases.E, max_tokens_per_rank=12, token_hidden_size=cases.H
    )
    kernel.validate_init(bootstrap, fleet)
    pack = types.SimpleNamespace(
        w13=arrays["w1"],
        w2=arrays["w2"],
        w13_scale=arrays["w1_scales"],
        w2_scale=arrays["w2_scales"],
    )
    weights = kernel.preprocess_weights(pack, fleet)
    kernel.validate_transformed_weights(weights, bootstrap, fleet)
    workspace = kernel._allocate_workspace(fleet)
    codes, scales = megamoe.quantize(brought.hidden_states)
    tensors = types.SimpleNamespace(
        hidden_states=brought.hidden_states if quantize_input else codes,
        topk_ids=brought.topk_idx,
        topk_weights=brought.topk_weights,
        scales=None if quantize_input else scales,
    )
    kernel.validate_forward(tensors, fleet, quantize_input=quantize_input)
    workspace.topk_idx[:] = 3
    kernel.stage_inputs(tensors, workspace, quantize_input=quantize_input)
    assert np.all(workspace.topk_idx[12:] == -1)
    y = np.zeros((12, cases.H), np.uint16)
    assert kernel.compute(workspace, weights, output=y) is y
    assert megamoe.compare(y, expected).diff < 3e-5
    kernel.destroy(workspace)
    kernel.destroy(None)


def test_flashinfer_refuses(fake_flashinfer):
    arrays, brought, buffer, _ = layer_case()
    kernel = flashinfer.register()(flashinfer.MegamoeConfig(cases.I, cases.K))
    fleet = types.SimpleNamespace(
        num_experts=cases.E, max_tokens_per_rank=11, token_hidden_size=cases.H
    )
    pack = types.SimpleNamespace(w13=arrays["w1"], w2=arrays["w2"], w13_scale=None)
    with pytest.raises(megamoe.Error, match="w13_scale is None"):
        kernel.preprocess_weights(pack, fleet)
    weights = ((arrays["w1"], arrays["w1_scales"]), (arrays["w2"], arrays["w2_scales"]))
    with pytest.raises(megamoe.Error, match=r"the shape of w1 is .*needed: \(4, 256, 256\)"):
        kernel.validate_transformed_weights(weights, types.SimpleNamespace(world_size=2), fleet)
    with pytest.raises(megamoe.Error, match="the number of tokens is 12; needed: at most 11"):
        kernel.validate_forward(brought, fleet, quantize_input=True)
    with pytest.raises(megamoe.Error, match="experts = 7"):
        kernel.validate_init(
            types.SimpleNamespace(world_size=2),
            types.SimpleNamespace(**(vars(fleet) | {"num_experts": 7})),
        )
    tensors = types.SimpleNamespace(
        hidden_states=brought.hidden_states,
        topk_ids=brought.topk_idx,
        topk_weights=brought.topk_weights,
        scales=None,
    )
    with pytest.raises(megamoe.Error, match="scales is None"):
        kernel.stage_inputs(tensors, buffer, quantize_input=False)
