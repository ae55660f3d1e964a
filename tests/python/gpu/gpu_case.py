"""Layers on GPUs through megamoe.deep_gemm, one rank per GPU of this process or two on its only one, and
what they must compute, in torch. Quantisation and rounding are those of the layer; sums are FP32.
Without a GPU one rank on the CPU backend, for tests of these helpers."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

import torch
from found_gpus import two_ranks_share
from megamoe import deep_gemm

# Of the whole output and of the worst row, against sums in FP32. The tensor core's sums move a code
# of h in a hundred by a step; a row with most of its energy in few codes moves by up to two steps of
# them (docs/adr/0006-fp8-accumulation.md, the bounds that hold whatever the model says).
MOST_DIFF = 1e-3
MOST_ROW = 0.25


def gpu_of(rank: int) -> int:
    return 0 if two_ranks_share() else rank


def place(rank: int) -> str:
    return f"cuda:{gpu_of(rank)}" if torch.cuda.is_available() else "cpu"


@functools.cache
def own_stream(rank: int):
    """The stream of one of two ranks that share a GPU, with a piece of its memory. While a piece lives,
    statistics find room beside it: new memory of the GPU may wait for the other rank's call, which
    waits for this one's."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return stream, torch.empty(1, device="cuda")


@contextlib.contextmanager
def current(rank: int, ranks: int = 1):
    """Makes a rank's GPU the current one. Where two ranks share it, each has a stream: their calls wait
    for each other, so that they must run at the same time."""
    if not torch.cuda.is_available():
        yield
    elif ranks == 1 or not two_ranks_share():
        with torch.cuda.device(rank):
            yield
    else:
        stream, _ = own_stream(rank)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield


@dataclass(frozen=True)
class Shape:
    hidden: int = 512
    intermediate: int = 512
    experts: int = 16
    top_k: int = 4
    capacity: int = 256


class Layer:
    """Buffers, weights and tokens of the ranks, on GPUs as `place` says."""

    def __init__(self, ranks: int, shape: Shape, seed: int = 0, scale: float = 1.0) -> None:
        self.ranks, self.shape, self.scale = ranks, shape, scale
        gpus = [gpu_of(rank) for rank in range(ranks)] if torch.cuda.is_available() else ()
        self.local = deep_gemm.LocalGroup(ranks, devices=gpus)
        sizes = (shape.experts, shape.capacity, shape.top_k, shape.hidden, shape.intermediate)
        self.buffers = [
            deep_gemm.get_symm_buffer_for_mega_moe(seat, *sizes) for seat in self.local.seats
        ]
        self.generator = torch.Generator().manual_seed(seed)
        self.plain = [self._weights() for _ in range(ranks)]
        self.weights = []
        for rank, pairs in enumerate(self.plain):
            on_gpu = [tuple(t.to(place(rank)) for t in pair) for pair in pairs]
            self.weights.append(deep_gemm.transform_weights_for_mega_moe(*on_gpu))

    def _weights(self):
        s, mine = self.shape, self.shape.experts // self.ranks
        pairs = []
        for rows, columns in ((2 * s.intermediate, s.hidden), (s.hidden, s.intermediate)):
            codes = torch.empty(mine, rows, columns).normal_(generator=self.generator)
            scales = torch.empty(mine, rows // 128, columns // 128).uniform_(
                0.5, 1, generator=self.generator
            )
            pairs.append((codes.to(torch.float8_e4m3fn), scales * self.scale / columns**0.5))
        return pairs

    def bring(self, counts, masked: float = 0.0):
        """New tokens for every rank: (hidden states, ids, weights), in host memory."""
        s, out = self.shape, []
        for count in counts:
            x = torch.empty(count, s.hidden).normal_(generator=self.generator).bfloat16()
            scores = torch.rand(count, s.experts, generator=self.generator)
            ids = scores.topk(s.top_k, dim=1).indices if count else torch.zeros(0, s.top_k).long()
            ids[torch.rand(count, s.top_k, generator=self.generator) < masked] = -1
            weights = torch.rand(count, s.top_k, generator=self.generator)
            out.append((x, ids, weights))
        return out

    def stage(self, brought) -> None:
        for rank, (buffer, tokens) in enumerate(zip(self.buffers, brought)):
            with current(rank, self.ranks):
                x, ids, weights = (t.to(place(rank)) for t in tokens)
                stage(buffer, x, ids.int(), weights)

    def outputs(self, counts):
        return [
            torch.full((n, self.shape.hidden), float("nan"), dtype=torch.bfloat16, device=place(r))
            for r, n in enumerate(counts)
        ]

    def call(self, y, stats=None, **options) -> None:
        """Starts the call on every rank's current stream."""
        for rank, buffer in enumerate(self.buffers):
            with current(rank, self.ranks):
                counted = None if stats is None else stats[rank]
                deep_gemm.fp8_mega_moe(
                    y[rank],
                    *self.weights[rank],
                    buffer,
                    cumulative_local_expert_recv_stats=counted,
                    **options,
                )

    def wait(self) -> None:
        for rank in range(self.ranks if torch.cuda.is_available() else 0):
            torch.cuda.synchronize(gpu_of(rank))

    def finish(self) -> None:
        self.wait()
        for buffer in self.buffers:
            buffer.check()

    def expected(self, brought, clamp=None):
        return [self._expected_rank(*tokens, clamp) for tokens in brought]

    def _expected_rank(self, x, ids, weights, clamp):
        """The layer by definition, where rank 0 is."""
        device, mine = place(0), self.shape.experts // self.ranks
        x, ids, weights = (t.to(device) for t in (x, ids, weights))
        rows = quantised(x.float())
        y = torch.zeros(x.shape, device=device)
        for expert in range(self.shape.experts):
            token, slot = torch.nonzero(ids == expert, as_tuple=True)
            if len(token) == 0:
                continue
            l1, l2 = self.plain[expert // mine]
            w1, w2 = (wide(pair, expert % mine).to(device) for pair in (l1, l2))
            gate, up = (rows[token] @ w1.T).chunk(2, dim=1)
            if clamp is not None:
                gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
            rows_out = (quantised(torch.nn.functional.silu(gate) * up) @ w2.T).bfloat16().float()
            y.index_add_(0, token, weights[token, slot][:, None] * rows_out)
        return y.bfloat16()


def stage(buffer, x, ids, weights, **options) -> None:
    deep_gemm.mega_moe_pre_dispatch_sm90(
        x,
        ids,
        weights,
        buffer.x,
        buffer.x_sf,
        buffer.topk_idx,
        buffer.topk_weights,
        num_tokens=x.shape[0],
        **options,
    )


def wide(pair, expert: int):
    codes, scales = pair[0][expert].float(), pair[1][expert]
    return codes * scales.repeat_interleave(128, 0).repeat_interleave(128, 1)


def quantised(values):
    """What e4m3 with a scale for each 128 channels keeps of FP32 rows."""
    groups = values.reshape(values.shape[0], values.shape[1] // 128, 128)
    scale = groups.abs().amax(dim=2, keepdim=True) / 448.0
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return ((groups / scale).to(torch.float8_e4m3fn).float() * scale).reshape(values.shape)


def assert_close(y, expected) -> None:
    for rank, (mine, theirs) in enumerate(zip(y, expected)):
        a, b = mine.float().cpu(), theirs.float().cpu()
        assert a.shape == b.shape and torch.isfinite(a).all(), rank
        total = (a.square().sum() + b.square().sum()).item()
        diff = (a - b).square().sum().item() / total if total else 0.0
        assert diff < MOST_DIFF, (rank, diff)
        rows = (a - b).norm(dim=1) / b.norm(dim=1).clamp(min=1e-3)
        assert len(rows) == 0 or rows.max().item() < MOST_ROW, (rank, rows.argmax(), rows.max())


def received(brought, shape: Shape, ranks: int):
    """Rows that each rank's experts must receive, exactly."""
    ids = torch.cat([ids.flatten() for _, ids, _ in brought])
    counts = torch.bincount(ids[ids >= 0], minlength=shape.experts)
    return counts.reshape(ranks, -1)
