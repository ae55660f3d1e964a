"""Ranks of this process with buffers, weights and tokens, for the tests of megamoe.deep_gemm."""

import threading
import types

import cases
import megamoe
import numpy as np
from megamoe import deep_gemm

P = deep_gemm.get_token_alignment_for_mega_moe()
SIZES = (cases.E, 100, cases.K, cases.H, cases.I)


def fp8_pair(arrays):
    return (arrays["w1"], arrays["w1_scales"]), (arrays["w2"], arrays["w2_scales"])


def make(ranks: int, precision: str = "fp8", **buffer_options):
    """(buffers, weights as calls take them, the same for the reference) of ranks in this process."""
    rng = np.random.default_rng(11)
    local = deep_gemm.LocalGroup(ranks)
    buffers = [
        deep_gemm.get_symm_buffer_for_mega_moe(seat, *SIZES, **buffer_options)
        for seat in local.seats
    ]
    weights, expected = [], []
    for _ in range(ranks):
        arrays = cases.checkpoint_weights(rng, precision, cases.E // ranks)
        pair = (arrays["w1"], arrays["w2"]) if precision == "bf16" else fp8_pair(arrays)
        weights.append(deep_gemm.transform_weights_for_mega_moe(*pair))
        expected.append(megamoe.prepare_weights(precision, **arrays))
    return buffers, weights, expected


def stage(buffer, brought, count, **options):
    deep_gemm.mega_moe_pre_dispatch_sm90(
        brought.hidden_states,
        brought.topk_idx.astype(np.int32),
        brought.topk_weights,
        buffer.x,
        buffer.x_sf,
        buffer.topk_idx,
        buffer.topk_weights,
        num_tokens=count,
        **options,
    )


def on_threads(calls):
    errors = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    if errors:
        raise errors[0]


def expected_y(buffers, expected, counts, precision="fp8", **changes):
    p = cases.problem(len(buffers), precision, max_tokens_per_rank=P, **changes)
    inputs = [
        tuple(v[:n].copy() for v in (b.x, b.x_sf, b.topk_idx, b.topk_weights))
        for b, n in zip(buffers, counts)
    ]
    if precision == "bf16":
        inputs = [(x, None, ids, w) for x, _, ids, w in inputs]
    return megamoe.reference(p, inputs, expected)


def fake_torch(capability=None):
    def all_gather_object(found, text, group):
        group.meeting.wait()
        group.texts[group.rank()] = text
        group.meeting.wait()
        found[:] = group.texts

    properties = types.SimpleNamespace(multi_processor_count=132)
    return types.SimpleNamespace(
        Tensor=type("Tensor", (), {}),
        distributed=types.SimpleNamespace(all_gather_object=all_gather_object),
        cuda=types.SimpleNamespace(
            is_available=lambda: capability is not None,
            is_initialized=lambda: False,
            get_device_capability=lambda: capability,
            current_device=lambda: 0,
            get_device_properties=lambda device: properties,
        ),
    )
