"""Layers on the CPU backend against the reference."""

import threading

import cases
import megamoe
import numpy as np
import pytest

BOUND = {"fp8": 3e-5, "mxfp4": 3e-5, "bf16": 1e-5}


def run_case(p, memory: str, counts: list[int], **options):
    """(outputs, reference's outputs, group) of one call."""
    rng = np.random.default_rng(7)
    group = megamoe.Group(p, memory)
    weights = [
        megamoe.prepare_weights(
            p.precision, **cases.checkpoint_weights(rng, p.precision, p.experts_per_rank)
        )
        for _ in range(p.ranks)
    ]
    shared = []
    if p.shared_experts:
        arrays = cases.checkpoint_weights(rng, p.precision, p.shared_experts)
        shared = [megamoe.prepare_weights(p.precision, **arrays)] * p.ranks
    for layer, count in zip(group.layers, counts):
        brought = cases.tokens(rng, count)
        layer.stage(brought.hidden_states, brought.topk_idx, brought.topk_weights)
    inputs = [cases.staged(layer, count) for layer, count in zip(group.layers, counts)]
    y = [np.full((count, p.hidden), 0x7FC0, np.uint16) for count in counts]
    group.forward(y, weights, shared=shared, **options)
    return y, megamoe.reference(p, inputs, weights, shared=shared), group


@pytest.mark.parametrize("memory", ["host", "host_virtual"])
@pytest.mark.parametrize("precision", ["fp8", "bf16", "mxfp4"])
def test_forward_is_the_reference(precision, memory):
    y, expected, group = run_case(cases.problem(precision=precision), memory, [11, 40])
    for mine, theirs in zip(y, expected):
        found = megamoe.compare(mine, theirs)
        assert found.diff < BOUND[precision], found
        assert found.worst_row_relative_l2 < 2e-2, found
    assert np.any(megamoe.from_bf16(y[1]) != 0)
    group.destroy()


def test_shared_experts_clamp_and_idle_rank():
    p = cases.problem(shared_experts=1, activation=megamoe.Activation(clamp=0.5))
    y, expected, group = run_case(p, "host", [9, 0], num_sms=3, block_rows=32)
    assert megamoe.compare(y[0], expected[0]).diff < BOUND["fp8"]
    assert y[1].shape == (0, cases.H)
    assert "32" in group.layer(0).check().config
    unclamped, _, _ = run_case(cases.problem(shared_experts=1), "host", [9, 0])
    assert not np.array_equal(unclamped[0], y[0])


def test_recv_stats_and_report():
    p = cases.problem()
    stats = np.full((2, p.experts_per_rank), 5, np.int64)
    _, _, group = run_case(p, "host", [6, 8], recv_stats=stats)
    rows = [layer.check().rows_received for layer in group.layers]
    assert list((stats - 5).sum(axis=1)) == rows
    assert group.layer(1).check().epoch == 1
    assert group.layer(1).check().bad_id is None


def test_each_layer_in_its_own_thread_gives_the_same_bits():
    p = cases.problem()
    together, _, _ = run_case(p, "host", [5, 17])
    rng = np.random.default_rng(7)
    with megamoe.Group(p) as group:
        weights = [
            megamoe.prepare_weights("fp8", **cases.checkpoint_weights(rng, "fp8", 4))
            for _ in range(2)
        ]
        brought = [cases.tokens(rng, count) for count in (5, 17)]
        y = [np.zeros((count, cases.H), np.uint16) for count in (5, 17)]

        def one(i: int) -> None:
            with group.layer(i) as layer:
                b = brought[i]
                layer.stage(b.hidden_states, b.topk_idx.astype(np.int32), b.topk_weights)
                layer.forward(y[i], weights[i])

        # Only with the GIL released can the two calls wait for each other.
        threads = [threading.Thread(target=one, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert all(np.array_equal(a, b) for a, b in zip(y, together))


def test_a_lost_rank_is_a_fault_and_reset_mends_it():
    p = cases.problem()
    rng = np.random.default_rng(1)
    group = megamoe.Group(p)
    w = megamoe.prepare_weights("fp8", **cases.checkpoint_weights(rng, "fp8", 4))
    b = cases.tokens(rng, 3)
    layer = group.layer(0)
    y = np.zeros((3, cases.H), np.uint16)
    layer.stage(b.hidden_states, b.topk_idx, b.topk_weights)
    with pytest.raises(megamoe.Error, match="rank 1") as caught:
        layer.forward(y, w, deadline=0.2)
    assert caught.value.code == "fault"
    with pytest.raises(megamoe.Error, match="reset"):
        layer.check()
    layer.reset()
    assert layer.check().epoch == 0
    group.layer(1).stage(b.hidden_states, b.topk_idx, b.topk_weights)
    layer.stage(b.hidden_states, b.topk_idx, b.topk_weights)
    group.forward([y, y.copy()], [w, w])
    assert layer.check().epoch == 1


def test_what_a_captured_call_was_given_stays_alive():
    class Capturing:
        """The library's object, on a stream that is being captured."""

        def __init__(self, core):
            self._core = core

        def __getattr__(self, name):
            found = getattr(self._core, name)
            if not name.startswith("forward"):
                return found
            return lambda *arguments: (found(*arguments), True)[1]

    rng = np.random.default_rng(1)
    w = [
        megamoe.prepare_weights("fp8", **cases.checkpoint_weights(rng, "fp8", cases.E))
        for _ in range(3)
    ]
    group = megamoe.Group(cases.problem(1))
    layer, y, core = group.layer(0), np.zeros((0, cases.H), np.uint16), group._core
    stats = np.zeros((1, cases.E), np.int64)
    layer.forward(y, w[0], recv_stats=stats[0])
    assert not layer._captured
    group._core = Capturing(core)
    layer.forward(y, w[1], recv_stats=stats[0])
    group.forward([y], [w[2]], recv_stats=stats)
    group._core = core
    layer.forward(y, w[0])
    kept = list(layer._captured.values())
    assert not any(held is w[0] for held in kept)
    for wanted in (w[1], w[2], stats):
        assert any(held is wanted for held in kept)
    layer.destroy()
    assert not layer._captured


def test_bad_expert_id_is_reported():
    p = cases.problem(ranks=1)
    rng = np.random.default_rng(1)
    group = megamoe.Group(p)
    w = megamoe.prepare_weights("fp8", **cases.checkpoint_weights(rng, "fp8", 8))
    b = cases.tokens(rng, 3)
    b.topk_idx[2, 1] = 99
    layer = group.layer(0)
    layer.stage(b.hidden_states, b.topk_idx, b.topk_weights)
    layer.forward(np.zeros((3, cases.H), np.uint16), w)
    assert layer.check().bad_id == (2, 1, 99)


def test_views_are_the_memory_and_outlive_the_group():
    group = megamoe.Group(cases.problem())
    views = group.layer(1).inputs
    assert [v.dtype.name for v in views] == ["uint8", "float32", "int64", "float32"]
    assert [v.shape for v in views] == [
        (cases.CAPACITY, cases.H),
        (cases.CAPACITY, cases.H // 128),
        (cases.CAPACITY, cases.K),
        (cases.CAPACITY, cases.K),
    ]
    rng = np.random.default_rng(3)
    b = cases.tokens(rng, 4)
    group.layer(1).stage(b.hidden_states, b.topk_idx, b.topk_weights, routed_scaling=2.5)
    codes, scales = megamoe.quantize(b.hidden_states)
    assert np.array_equal(views.x[:4], codes)
    assert np.array_equal(views.x_scales[:4], scales)
    assert np.array_equal(views.topk_weights[:4], b.topk_weights * np.float32(2.5))
    assert np.all(views.topk_idx[4:] == -1)
    report = group.layer(1).memory_report()
    assert "topk_idx" in report.map and report.symmetric_bytes > 0
    group.destroy()
    del group
    assert np.array_equal(views.x[:4], codes)


def test_processes_meet_through_a_callback():
    """Threads stand for processes: each has its own Group of one rank, on memory of the caller."""
    p = cases.problem()
    size = megamoe._core.layout(p)["bytes"]
    memory = np.zeros(2 * size + 1024, np.uint8)
    first = -(-memory.ctypes.data // 1024) * 1024
    meeting, texts = threading.Barrier(2, timeout=20), [b"", b""]
    outputs, together = [None, None], run_case(p, "host", [5, 17])[0]

    def one(rank: int) -> None:
        def all_gather(text: bytes) -> list[bytes]:
            meeting.wait()
            texts[rank] = text
            meeting.wait()
            return list(texts)

        addresses = [first, first + size]
        where = {"devices": [-2], "addresses": addresses, "bytes": size}
        with megamoe.Group(p, "pointers", rank=rank, all_gather=all_gather, **where) as group:
            outputs[rank] = call_of_one(group.layer(0), rank)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, together))


def test_quantize_by_hand():
    x = np.zeros((1, 128), np.float32)
    x[0, :3] = [448.0, -1.0, 1.0625]
    codes, scales = megamoe.quantize(megamoe.to_bf16(x))
    # scale 1: 448 = 0x7e, -1 = 0xb8; 1.0625 lies between 1 and 1.125, ties to even: 1 = 0x38.
    assert scales[0, 0] == 1.0
    assert list(codes[0, :4]) == [0x7E, 0xB8, 0x38, 0]


def test_processes_over_shared_memory():
    import multiprocessing
    import os

    context = multiprocessing.get_context("spawn")
    name = f"megamoe-python-{os.getpid()}"
    with context.Pool(2) as pool:
        results = pool.starmap_async(one_process, [(name, 0), (name, 1)]).get(50)
    together, _, _ = run_case(cases.problem(), "host", [5, 17])
    assert all(np.array_equal(a, b) for a, b in zip(results, together))


def one_process(name: str, rank: int) -> np.ndarray:
    with megamoe.Group(cases.problem(), "shared", name=name, rank=rank, deadline=30) as group:
        return call_of_one(group.layer(0), rank)


def call_of_one(layer: megamoe.Layer, rank: int) -> np.ndarray:
    """What run_case does for this rank with 5 and 17 tokens."""
    assert layer.rank == rank
    rng = np.random.default_rng(7)
    weights = [
        megamoe.prepare_weights("fp8", **cases.checkpoint_weights(rng, "fp8", 4)) for _ in range(2)
    ]
    brought = [cases.tokens(rng, count) for count in (5, 17)][rank]
    layer.stage(brought.hidden_states, brought.topk_idx, brought.topk_weights)
    y = np.zeros((len(brought.topk_idx), cases.H), np.uint16)
    layer.forward(y, weights[rank])
    return y


def test_more_tokens_than_the_capacity_in_parts():
    p = cases.problem(1)
    rng = np.random.default_rng(9)
    weights = megamoe.prepare_weights("fp8", **cases.checkpoint_weights(rng, "fp8", cases.E))
    count = 2 * cases.CAPACITY + 5
    brought = cases.tokens(rng, count)
    layer = megamoe.Group(p).layer(0)
    y, stats = np.zeros((count, cases.H), np.uint16), np.zeros(cases.E, np.int64)
    layer.run(y, *vars(brought).values(), weights, parts=3, recv_stats=stats, global_num_tokens=85)
    assert layer.check().epoch == 3
    assert stats.sum() == (brought.topk_idx >= 0).sum()
    large = megamoe.Group(cases.problem(1, max_tokens_per_rank=count)).layer(0)
    whole = np.zeros_like(y)
    large.run(whole, *vars(brought).values(), weights)
    assert np.array_equal(y, whole)
    with pytest.raises(megamoe.Error, match=r"85 tokens in 2 parts.* 40 needs at least 3"):
        layer.run(y, *vars(brought).values(), weights, parts=2)
    with pytest.raises(megamoe.Error, match="topk_idx has 4 rows; y has 85"):
        layer.run(
            y, brought.hidden_states, brought.topk_idx[:4], brought.topk_weights, weights, parts=3
        )
    assert layer.check().epoch == 3
