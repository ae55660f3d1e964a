"""How each family of checkpoints names and stores the experts of a layer."""

from dataclasses import dataclass

GATE_UP_DOWN = ("gate_proj", "up_proj", "down_proj")
W1_W3_W2 = ("w1", "w3", "w2")


@dataclass(frozen=True)
class Family:
    """How a family of checkpoints names and stores the experts of a layer."""

    model_type: str
    layer: str  # what stands before everything of layer {L}
    expert: str  # ... and before everything of expert {E}; gpt-oss: all experts in one tensor
    names: tuple = GATE_UP_DOWN
    shared: str = ""  # as expert, for the shared experts; empty: none
    shared_names: tuple = GATE_UP_DOWN
    store: str = "bf16"  # of the routed experts, unless --store asks for another
    fp8_scale: tuple = (".weight_scale_inv", "F32")
    mxfp4: tuple = (".weight_packed", "U8", ".weight_scale", "U8")
    fused: bool = False


FAMILIES = {
    "deepseek-v3": Family(
        "deepseek_v3",
        "model.layers.{L}.",
        "mlp.experts.{E}.",
        shared="mlp.shared_experts.",
        store="fp8",
    ),
    "deepseek-v4": Family(
        "deepseek_v4",
        "layers.{L}.",
        "ffn.experts.{E}.",
        W1_W3_W2,
        shared="ffn.shared_experts.",
        shared_names=W1_W3_W2,
        store="mxfp4",
        fp8_scale=(".scale", "F8_E8M0"),
        mxfp4=(".weight", "I8", ".scale", "F8_E8M0"),
    ),
    "kimi-k2": Family(
        "kimi_k2",
        "model.layers.{L}.",
        "mlp.experts.{E}.",
        shared="mlp.shared_experts.",
        store="fp8",
    ),
    "kimi-k3": Family(
        "kimi_k3",
        "language_model.model.layers.{L}.",
        "block_sparse_moe.experts.{E}.",
        W1_W3_W2,
        store="mxfp4",
    ),
    "qwen3-moe": Family(
        "qwen3_moe",
        "model.layers.{L}.",
        "mlp.experts.{E}.",
        fp8_scale=(".weight_scale_inv", "BF16"),
    ),
    "glm": Family(
        "glm4_moe",
        "model.layers.{L}.",
        "mlp.experts.{E}.",
        shared="mlp.shared_experts.",
    ),
    "minimax": Family(
        "minimax_m2",
        "model.layers.{L}.",
        "block_sparse_moe.experts.{E}.",
        W1_W3_W2,
        store="fp8",
    ),
    "mixtral": Family("mixtral", "model.layers.{L}.", "block_sparse_moe.experts.{E}.", W1_W3_W2),
    "gpt-oss": Family(
        "gpt_oss",
        "model.layers.{L}.",
        "mlp.experts.",
        ("gate_up_proj", "gate_up_proj", "down_proj"),
        store="mxfp4",
        mxfp4=("_blocks", "U8", "_scales", "U8"),
        fused=True,
    ),
}
