"""One layer over N processes, each a rank with its own GPU; on the CPU backend where a process has none
of its own.

torchrun --nproc-per-node 2 examples/python/torchrun_layer.py

Expected output, once for each rank:
  rank 0 of 2, cuda:0: 16 tokens, N rows received; agrees with one process
"""

import os

import torch
import torch.distributed as dist
from megamoe import deep_gemm

EXPERTS, TOP_K, HIDDEN, INTERMEDIATE, TOKENS = 8, 2, 512, 256, 16


def weights(device: str):
    """All experts' weights in a checkpoint's order; the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    pairs = []
    for rows, columns in ((2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)):
        codes = torch.empty(EXPERTS, rows, columns).normal_(generator=generator)
        scales = torch.full((EXPERTS, rows // 128, columns // 128), columns**-0.5)
        pairs.append((codes.to(torch.float8_e4m3fn).to(device), scales.to(device)))
    return pairs


def tokens(rank: int, device: str):
    generator = torch.Generator().manual_seed(100 + rank)
    x = torch.empty(TOKENS, HIDDEN).normal_(generator=generator).bfloat16()
    ids = torch.rand(TOKENS, EXPERTS, generator=generator).topk(TOP_K).indices.int()
    return x.to(device), ids.to(device), torch.full((TOKENS, TOP_K), 0.5, device=device)


def forward(group, pairs, rank: int, device: str):
    """(y, rows received) of this rank."""
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(
        group, EXPERTS, TOKENS, TOP_K, HIDDEN, INTERMEDIATE
    )
    l1, l2 = deep_gemm.transform_weights_for_mega_moe(*pairs)
    views = (buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights)
    deep_gemm.mega_moe_pre_dispatch_sm90(*tokens(rank, device), *views, num_tokens=TOKENS)
    y = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)
    deep_gemm.fp8_mega_moe(y, l1, l2, buffer)
    if device != "cpu":
        torch.cuda.synchronize()
    rows = buffer.check().rows_received
    buffer.destroy()
    return y, rows


def place() -> tuple[str, object, object]:
    """(device, group of all ranks, group of this process alone). All ranks are on GPUs, or none is."""
    local_rank = int(os.environ["LOCAL_RANK"])
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    enough = torch.tensor(int(local_rank < found))
    dist.all_reduce(enough, dist.ReduceOp.MIN)
    if enough:
        torch.cuda.set_device(local_rank)
        return f"cuda:{local_rank}", dist.group.WORLD, None
    if local_rank == 0:
        processes = os.environ["LOCAL_WORLD_SIZE"]
        print(f"processes: {processes}, GPUs: {found}; all ranks on the CPU backend", flush=True)
    return "cpu", deep_gemm.OnCpu(dist.group.WORLD), deep_gemm.LocalGroup(1).seats[0]


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device, together, alone = place()
    every = weights(device)
    per_rank = EXPERTS // ranks
    mine = slice(rank * per_rank, (rank + 1) * per_rank)
    pairs = [(codes[mine].contiguous(), scales[mine].contiguous()) for codes, scales in every]
    y, rows = forward(together, pairs, rank, device)
    # the same tokens, all experts in this process
    expected, _ = forward(alone, every, rank, device)
    word = "agrees with one process" if torch.equal(y, expected) else "DIFFERS from one process"
    print(
        f"rank {rank} of {ranks}, {device}: {TOKENS} tokens, {rows} rows received; {word}",
        flush=True,
    )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
