"""The fused layer in the place of an unfused one, inside a captured graph, with times. Needs a GPU.

python examples/python/replace_unfused.py

The unfused layer is plain torch in BF16: one matrix product after another for each expert. Expected
output: a relative difference of a few per cent, which is what FP8 costs, and the two times.
"""

import torch
from megamoe import deep_gemm

EXPERTS, TOP_K, HIDDEN, INTERMEDIATE, TOKENS = 32, 4, 2048, 1024, 64


class Unfused(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shape1, shape2 = (EXPERTS, 2 * INTERMEDIATE, HIDDEN), (EXPERTS, HIDDEN, INTERMEDIATE)
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        self.w1 = torch.randn(*shape1, **options) / HIDDEN**0.5
        self.w2 = torch.randn(*shape2, **options) / INTERMEDIATE**0.5

    def forward(self, x, ids, weights):
        y = torch.zeros(x.shape, device="cuda")
        for expert in range(EXPERTS):
            gate, up = (x @ self.w1[expert].T).chunk(2, dim=1)
            out = (torch.nn.functional.silu(gate) * up) @ self.w2[expert].T
            y += (weights * (ids == expert)).sum(1, keepdim=True) * out
        return y.bfloat16()


class Fused(torch.nn.Module):
    def __init__(self, unfused: Unfused) -> None:
        super().__init__()
        pairs = [self.quantise(unfused.w1), self.quantise(unfused.w2)]
        self.l1, self.l2 = deep_gemm.transform_weights_for_mega_moe(*pairs)
        sizes = (EXPERTS, TOKENS, TOP_K, HIDDEN, INTERMEDIATE)
        self.buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, *sizes)

    @staticmethod
    def quantise(experts):
        parts = [deep_gemm.utils.per_block_cast_to_fp8(w, use_ue8m0=False) for w in experts]
        return torch.stack([codes for codes, _ in parts]), torch.stack([s for _, s in parts])

    def forward(self, x, ids, weights):
        b = self.buffer
        views = (b.x, b.x_sf, b.topk_idx, b.topk_weights)
        deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, weights, *views, num_tokens=x.shape[0])
        y = torch.empty_like(x)
        deep_gemm.fp8_mega_moe(y, self.l1, self.l2, b)
        return y


def captured(module, *inputs):
    """(graph, its output); three calls before the capture settle what is allocated once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(*inputs)
    return graph, y


def time_us(graph, replays: int = 50) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / replays


def main() -> None:
    torch.manual_seed(1)
    x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, device="cuda")
    scores = torch.rand(TOKENS, EXPERTS, device="cuda").topk(TOP_K)
    inputs = (x, scores.indices.int(), scores.values)
    unfused = Unfused()
    graphs = [captured(module, *inputs) for module in (unfused, Fused(unfused))]
    times = [time_us(graph) for graph, _ in graphs]
    before, after = (y.float() for _, y in graphs)
    print(f"difference: {((before - after).norm() / before.norm()).item():.3f}")
    print(f"unfused {times[0]:.0f} us, fused {times[1]:.0f} us")


if __name__ == "__main__":
    main()
