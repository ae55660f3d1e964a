"""Host time of a call at the median: bounds that callers plan with, nothing allocated, and no wait for
the device."""

import contextlib
import statistics
import time

import pytest

with contextlib.suppress(ModuleNotFoundError):  # without torch every test is skipped
    import torch
    from gpu_case import Layer, Shape
    from megamoe import deep_gemm

CALLS, IN_FLIGHT = 2000, 16


def median_us(call) -> float:
    """Of CALLS calls; the device is let catch up between groups, outside the time, so that a full
    launch queue is not measured."""
    for _ in range(50):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(CALLS // IN_FLIGHT):
        for _ in range(IN_FLIGHT):
            begin = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - begin) / 1e3)
        torch.cuda.synchronize()
    return statistics.median(times)


@pytest.fixture
def case():
    layer = Layer(1, Shape())
    layer.stage(layer.bring([8]))
    return layer, layer.outputs([8])[0]


def test_layer_forward(case, capsys):
    layer, y = case
    buffer = layer.buffers[0]
    weights = buffer._weights.get("fp8", *layer.weights[0])
    rank = buffer._layer
    found = median_us(lambda: rank.forward(y, weights))
    with capsys.disabled():
        print(f"\nLayer.forward: {found:.1f} us of host time")
    assert found < 12


def test_compatibility_call(case, capsys):
    layer, y = case
    l1, l2 = layer.weights[0]
    buffer = layer.buffers[0]
    found = median_us(lambda: deep_gemm.fp8_mega_moe(y, l1, l2, buffer))
    with capsys.disabled():
        print(f"\nfp8_mega_moe: {found:.1f} us of host time")
    assert found < 20


@pytest.mark.parametrize("stats", [None, "int32", "int64"])
def test_nothing_is_allocated_or_waited_for(case, stats):
    layer, y = case
    if stats is not None:
        stats = [torch.zeros(layer.shape.experts, dtype=getattr(torch, stats), device="cuda")]
    layer.call([y], stats)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(100):
            layer.call([y], stats)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert torch.cuda.mem_get_info()[0] == free
    # A sleeping stream: a call that waited for the device would take as long.
    torch.cuda._sleep(1_000_000_000)
    begin = time.perf_counter()
    layer.call([y], stats)
    assert time.perf_counter() - begin < 0.05
    layer.finish()
