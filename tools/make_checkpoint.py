#!/usr/bin/env python3
"""Writes small random checkpoints in the layouts of published models, and decodes them.

  make_checkpoint.py --family gpt-oss --out DIR [--hidden H --intermediate I --experts E ...]
  make_checkpoint.py --dump DIR --layer L --to FILE.npz

A checkpoint is config.json and model.safetensors, or shards with their index; --tokens N adds
tokens.safetensors. The dump holds float32 matrices: w1 [E, 2I, H] (gate rows, then up rows),
w2 [E, H, I], b1 and b2 where there are biases, shared_w1 and shared_w2 where there are shared
experts. Needs numpy.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import tensor_formats as tf
from checkpoint_families import FAMILIES

# ---- config.json


def make_config(name, args):
    """The family's own field names, with the fields that decide anything here."""
    family = FAMILIES[name]
    config = {
        "model_type": family.model_type,
        "hidden_size": args.hidden,
        "hidden_act": "silu",
        "num_hidden_layers": args.layers,
        "num_experts_per_tok": args.top_k,
        "torch_dtype": "bfloat16",
    }
    if name in ("minimax", "mixtral", "gpt-oss"):
        config |= {"intermediate_size": args.intermediate, "num_local_experts": args.experts}
    else:
        # The dense layers' size, which must not be taken for that of the experts.
        config |= {
            "intermediate_size": 4 * args.intermediate,
            "moe_intermediate_size": args.intermediate,
        }
        key = "num_experts" if name in ("qwen3-moe", "kimi-k3") else "n_routed_experts"
        config[key] = args.experts
    if family.shared:
        config |= {"n_shared_experts": args.shared, "routed_scaling_factor": 2.5}
    if name == "gpt-oss":
        config["swiglu_limit"] = 7.0
    if name == "deepseek-v4":
        config["swiglu_limit"] = 10.0
    config |= quantisation(name, args.store or family.store)
    return kimi_k3_config(config) if name == "kimi-k3" else config


def quantisation(name, store):
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    if name == "deepseek-v4":
        expert = {"expert_dtype": "fp4"} if store == "mxfp4" else {}
        return {"quantization_config": fp8 | {"scale_fmt": "ue8m0"}} | expert
    if store == "fp8":
        return {"quantization_config": fp8}
    if name == "gpt-oss":
        return {"quantization_config": {"quant_method": "mxfp4"}}
    if store == "mxfp4":
        packed = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
        return {"quantization_config": packed}
    return {}


def kimi_k3_config(text):
    """A model with vision around the text model, whose experts work on a latent."""
    text = dict(text, model_type="kimi_linear", hidden_act="situ")
    text |= {
        "routed_expert_hidden_size": text["hidden_size"],
        "hidden_size": 2 * text["hidden_size"],
        "num_experts_per_token": text.pop("num_experts_per_tok"),
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "num_shared_experts": 2,
    }
    return {"model_type": "kimi_k3", "text_config": text}


# ---- writing


def store_matrix(tensors, family, base, values, store):
    if store == "bf16":
        tensors[base + ".weight"] = ("BF16", tf.bf16_encode(values))
    elif store == "fp8":
        suffix, dtype = family.fp8_scale
        codes, scales = tf.fp8_quantise(values, power_of_two=dtype == "F8_E8M0")
        if dtype == "BF16":
            scales = tf.bf16_encode(scales)
        elif dtype == "F8_E8M0":
            scales = (np.log2(scales) + 127).astype(np.uint8)
        tensors[base + ".weight"] = ("F8_E4M3", codes)
        tensors[base + suffix] = (dtype, scales)
    else:
        suffix, dtype, scale_suffix, scale_dtype = family.mxfp4
        packed, scales = tf.mxfp4_quantise(values)
        tensors[base + suffix] = (dtype, packed)
        tensors[base + scale_suffix] = (scale_dtype, scales)


def random_matrix(rng, rows, cols):
    """Values as trained weights have them: with a spread that differs between rows."""
    spread = np.exp2(rng.uniform(-1.5, 1.5, size=(rows, 1)))
    return (rng.standard_normal((rows, cols)) * spread / np.sqrt(cols)).astype(np.float32)


def make_layer(family, layer, args, rng):
    """name -> (dtype, array) of one layer's experts."""
    hidden, inter = args.hidden, args.intermediate
    store = args.store or family.store
    before = family.layer.format(L=layer)
    tensors = {}
    if family.fused:
        gate_up = np.stack([random_matrix(rng, 2 * inter, hidden) for _ in range(args.experts)])
        down = np.stack([random_matrix(rng, hidden, inter) for _ in range(args.experts)])
        for what, values in (("gate_up_proj", gate_up), ("down_proj", down)):
            base = before + family.expert + what
            packed, scales = tf.mxfp4_quantise(values)
            packed = packed.reshape(*packed.shape[:-1], -1, 16)
            tensors[base + "_blocks"] = ("U8", packed)
            tensors[base + "_scales"] = ("U8", scales)
            bias = rng.standard_normal(values.shape[:2]).astype(np.float32) * 0.25
            tensors[base + "_bias"] = ("BF16", tf.bf16_encode(bias))
        return tensors
    shapes = ((inter, hidden), (inter, hidden), (hidden, inter))
    for expert in range(args.experts):
        for name, (rows, cols) in zip(family.names, shapes):
            base = before + family.expert.format(E=expert) + name
            store_matrix(tensors, family, base, random_matrix(rng, rows, cols), store)
    if family.shared and args.shared:
        # Routed experts may be MXFP4; the shared ones of such a model are FP8.
        shared_store = "fp8" if store == "mxfp4" else store
        wide = args.shared * inter
        for name, (rows, cols) in zip(
            family.shared_names, ((wide, hidden), (wide, hidden), (hidden, wide))
        ):
            base = before + family.shared + name
            store_matrix(tensors, family, base, random_matrix(rng, rows, cols), shared_store)
    return tensors


def write_files(out, tensors, shards):
    if shards == 1:
        tf.write_safetensors(out / "model.safetensors", tensors)
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[shard::shards]
        tf.write_safetensors(out / file, {name: tensors[name] for name in mine})
        weight_map |= dict.fromkeys(mine, file)
    total = sum(array.nbytes for _, array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def write_tokens(path, num_tokens, hidden, experts, top_k, rng):
    x = rng.standard_normal((num_tokens, hidden)).astype(np.float32)
    ids = np.argsort(rng.random((num_tokens, experts)), axis=1)[:, :top_k].astype(np.int64)
    weights = rng.uniform(0.1, 1.0, size=(num_tokens, top_k))
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    tf.write_safetensors(
        path,
        {
            "hidden_states": ("BF16", tf.bf16_encode(x)),
            "topk_idx": ("I64", ids),
            "topk_weights": ("F32", weights),
        },
    )


def write_checkpoint(args):
    family = FAMILIES[args.family]
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    tensors = {"model.norm.weight": ("BF16", tf.bf16_encode(np.ones(args.hidden)))}
    for layer in range(args.layers):
        tensors |= make_layer(family, layer, args, rng)
    write_files(out, tensors, args.shards)
    (out / "config.json").write_text(json.dumps(make_config(args.family, args), indent=2))
    if args.tokens:
        write_tokens(
            out / "tokens.safetensors", args.tokens, args.hidden, args.experts, args.top_k, rng
        )


# ---- decoding


def read_all(path):
    path = Path(path)
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return tf.read_safetensors(path / "model.safetensors")
    files = set(json.loads(index.read_text())["weight_map"].values())
    tensors = {}
    for file in sorted(files):
        tensors |= tf.read_safetensors(path / file)
    return tensors


def decode_matrix(tensors, family, base):
    """One matrix as float32."""
    suffix, _, scale_suffix, _ = family.mxfp4
    dtype, codes = tensors.get(base + ".weight") or tensors[base + suffix]
    if dtype == "BF16":
        return tf.bf16_decode(codes)
    if dtype == "F8_E4M3":
        scale_dtype, scales = tensors[base + family.fp8_scale[0]]
        if scale_dtype == "BF16":
            scales = tf.bf16_decode(scales)
        elif scale_dtype == "F8_E8M0":
            scales = tf.ue8m0_decode(scales)
        return tf.fp8_dequantise(codes, scales)
    return tf.mxfp4_dequantise(codes, tensors[base + scale_suffix][1])


def decode_fused(tensors, before):
    def matrix(what):
        packed = tensors[before + what + "_blocks"][1]
        packed = packed.reshape(*packed.shape[:-2], -1)
        return tf.mxfp4_dequantise(packed, tensors[before + what + "_scales"][1])

    def halves(array):
        """Even rows are gate, odd rows up: gate first, then up."""
        return np.concatenate([array[:, 0::2], array[:, 1::2]], axis=1)

    return {
        "w1": halves(matrix("gate_up_proj")),
        "w2": matrix("down_proj"),
        "b1": halves(tf.bf16_decode(tensors[before + "gate_up_proj_bias"][1])),
        "b2": tf.bf16_decode(tensors[before + "down_proj_bias"][1]),
    }


def find_family(config):
    for family in FAMILIES.values():
        if family.model_type == config["model_type"]:
            return family
    raise SystemExit(f"no family has model_type {config['model_type']!r}")


def decode_layer(path, layer):
    """name -> float32 array, as the module's text says."""
    config = json.loads((Path(path) / "config.json").read_text())
    family = find_family(config)
    config = config.get("text_config", config)
    tensors = read_all(path)
    before = family.layer.format(L=layer)
    if family.fused:
        return decode_fused(tensors, before + family.expert)
    keys = ("n_routed_experts", "num_experts", "num_local_experts")
    experts = next(config[key] for key in keys if key in config)

    def triple(prefix, names):
        gate, up, down = (decode_matrix(tensors, family, prefix + name) for name in names)
        return np.concatenate([gate, up]), down

    pairs = [triple(before + family.expert.format(E=e), family.names) for e in range(experts)]
    decoded = {"w1": np.stack([w1 for w1, _ in pairs]), "w2": np.stack([w2 for _, w2 in pairs])}
    shared = config.get("n_shared_experts", 0) if family.shared else 0
    if shared:
        w1, w2 = triple(before + family.shared, family.shared_names)
        gate, up = np.split(w1, 2)
        parts = zip(np.split(gate, shared), np.split(up, shared))
        decoded["shared_w1"] = np.stack([np.concatenate(part) for part in parts])
        decoded["shared_w2"] = np.stack(np.split(w2, shared, axis=1))
    return decoded


def arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--out", help="folder to write")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--intermediate", type=int, default=128)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument(
        "--shared", type=int, default=1, help="shared experts, if the family has any"
    )
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=("bf16", "fp8", "mxfp4"), help="of the routed experts")
    parser.add_argument("--tokens", type=int, default=0, help="also write tokens.safetensors")
    parser.add_argument("--dump", metavar="DIR", help="decode this checkpoint instead")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--to", metavar="FILE.npz", help="where the decoded layer goes")
    args = parser.parse_args(argv)
    if bool(args.dump) == bool(args.family):
        parser.error("give either --family and --out, or --dump and --to")
    if (args.family and not args.out) or (args.dump and not args.to):
        parser.error("--family needs --out, --dump needs --to")
    if args.family == "gpt-oss" and args.store not in (None, "mxfp4"):
        parser.error("gpt-oss checkpoints are MXFP4")
    return args


def main():
    args = arguments()
    if args.dump:
        np.savez(args.to, **decode_layer(args.dump, args.layer))
    else:
        write_checkpoint(args)


if __name__ == "__main__":
    main()
