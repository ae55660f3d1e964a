"""Layers of FP8 weights on GPUs against torch: from one call to random configurations, replayed
graphs, uneven ranks and two buffers."""

import contextlib
import random

import pytest

with contextlib.suppress(ModuleNotFoundError):  # without torch every test is skipped
    import torch
    from gpu_case import Layer, Shape, assert_close, current, place, received

ranks = pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.two_gpus)])


def check(ranks, counts, masked=0.0, seed=0, clamp=None, fast_math=True, scale=1.0, **shape):
    """One call with new tokens: y within the bounds, statistics exact."""
    layer = Layer(ranks, Shape(**({"capacity": max(*counts, 1)} | shape)), seed, scale)
    brought = layer.bring(counts, masked)
    layer.stage(brought)
    mine = layer.shape.experts // ranks
    stats = [torch.full((mine,), 7, dtype=torch.int32, device=place(r)) for r in range(ranks)]
    y = layer.outputs(counts)
    layer.call(y, stats, activation_clamp=clamp, fast_math=fast_math)
    layer.finish()
    wanted = received(brought, layer.shape, ranks)
    for found, rows in zip(stats, wanted):
        assert (found.cpu() - 7).tolist() == rows.tolist()
    assert_close(y, layer.expected(brought, clamp))


@ranks
def test_smoke(ranks):
    check(ranks, [64] * ranks)


@ranks
@pytest.mark.parametrize("tokens", [16, 32, 64, 128, 256, 512, 1024, 2048])
def test_token_counts(ranks, tokens):
    check(ranks, [tokens] * ranks)


@ranks
@pytest.mark.parametrize("top_k", [1, 2, 4, 8])
@pytest.mark.parametrize("hidden", [512, 1024, 2048])
@pytest.mark.parametrize("intermediate", [512, 1024, 2048])
def test_sizes(ranks, hidden, intermediate, top_k):
    check(ranks, [96] * ranks, hidden=hidden, intermediate=intermediate, top_k=top_k)


@ranks
@pytest.mark.parametrize("masked", [0.0, 0.3, 0.7, 1.0])
def test_masks(ranks, masked):
    check(ranks, [128] * ranks, masked)


@ranks
@pytest.mark.parametrize("clamp", [1.0, 10.0, None])
@pytest.mark.parametrize("fast_math", [False, True])
def test_activation(ranks, clamp, fast_math):
    check(ranks, [128] * ranks, clamp=clamp, fast_math=fast_math, scale=4.0)


@ranks
@pytest.mark.parametrize("seed", range(16))
def test_random_configurations(ranks, seed):
    chosen = random.Random(seed)
    counts = [chosen.choice([0, 1, 7, 33, 200, 777]) for _ in range(ranks)]
    check(
        ranks,
        counts,
        chosen.choice([0.0, 0.2, 0.6]),
        seed,
        chosen.choice([None, 2.0]),
        chosen.choice([False, True]),
        hidden=128 * chosen.randint(2, 12),
        intermediate=128 * chosen.randint(1, 10),
        experts=ranks * chosen.choice([8, 12, 32]),
        top_k=chosen.choice([1, 3, 6, 8]),
    )


@ranks
def test_replay_with_changed_inputs(ranks):
    count = [48] * ranks
    layer = Layer(ranks, Shape())
    y, eager = layer.outputs(count), layer.outputs(count)
    first = layer.bring(count)
    layer.stage(first)
    layer.call(y)
    layer.finish()
    graphs = [torch.cuda.CUDAGraph() for _ in range(ranks)]
    for rank, graph in enumerate(graphs):
        kept = layer.buffers[rank]._layer._captured
        assert not kept
        with current(rank, ranks), torch.cuda.graph(graph):
            call_rank(layer, rank, y)
        weights = layer.buffers[rank]._weights.get("fp8", *layer.weights[rank])
        assert any(held is weights for held in kept.values())
    for _ in range(4):
        brought = layer.bring(count, 0.2)
        layer.stage(brought)
        layer.wait()
        for rank, graph in enumerate(graphs):
            with current(rank, ranks):
                graph.replay()
        layer.finish()
        replayed = [t.clone() for t in y]
        layer.call(eager)
        layer.finish()
        assert all(torch.equal(a, b) for a, b in zip(replayed, eager))
        assert_close(replayed, layer.expected(brought))


def call_rank(layer, rank, y) -> None:
    from megamoe import deep_gemm

    deep_gemm.fp8_mega_moe(y[rank], *layer.weights[rank], layer.buffers[rank])


@pytest.mark.two_gpus
@pytest.mark.parametrize("counts", [(0, 64), (64, 0), (1, 200), (0, 0), (255, 3)])
def test_uneven_and_empty_ranks(counts):
    check(2, list(counts), capacity=256)


@ranks
def test_two_buffers_interleaved(ranks):
    layers = [Layer(ranks, Shape(), seed=1), Layer(ranks, Shape(hidden=1024, top_k=2), seed=2)]
    for round_ in range(3):
        counts = [32 + round_] * ranks
        brought = [layer.bring(counts) for layer in layers]
        y = [layer.outputs(counts) for layer in layers]
        for layer, tokens in zip(layers, brought):
            layer.stage(tokens)
        for layer, out in zip(layers, y):
            layer.call(out)
        for layer in layers:
            layer.finish()
        for layer, tokens, out in zip(layers, brought, y):
            assert_close(out, layer.expected(tokens))


@pytest.mark.two_gpus
@pytest.mark.parametrize("counts", [(40, 40), (40, 0), (3, 64)])
def test_vllm_staging_with_padding(counts):
    """Captured sizes are larger than what ranks bring; each replay has other tokens."""
    from megamoe.integrations import vllm

    layer = Layer(2, Shape(capacity=64))
    y = layer.outputs([64, 64])
    for _ in range(3):
        brought = layer.bring([64, 64])
        for rank, tokens in enumerate(brought):
            with current(rank, 2):
                x, ids, weights = (t.to(place(rank)) for t in tokens)
                padding = torch.arange(64, device=place(rank)) >= counts[rank]
                vllm.stage_tokens(layer.buffers[rank], x, ids, weights, padding)
            tokens[1][counts[rank] :] = -1
        layer.call(y)
        layer.finish()
        assert_close(y, layer.expected(brought))
