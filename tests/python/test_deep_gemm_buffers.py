"""megamoe.deep_gemm on the CPU backend: buffers, views, how ranks meet, the SM count."""

import sys
import threading
import types

import cases
import megamoe
import numpy as np
import pytest
from deep_gemm_case import SIZES, P, expected_y, fake_torch, make, on_threads, stage
from megamoe import deep_gemm


def test_views_of_a_dispatch():
    buffers, _, _ = make(2)
    counts = [30, 17]
    rng = np.random.default_rng(4)
    brought = [cases.tokens(rng, count) for count in counts]
    for buffer, mine, count in zip(buffers, brought, counts):
        stage(buffer, mine, count)
        assert buffer.l1_acts.shape == (0, cases.H)
    deep_gemm.dispatch_only(buffers, counts)
    staged = [(b.x.copy(), b.x_sf.copy()) for b in buffers]
    for rank, buffer in enumerate(buffers):
        wanted = [
            (expert, src, token, slot)
            for expert in range(4 * rank, 4 * rank + 4)
            for src in range(2)
            for token in range(counts[src])
            for slot in range(cases.K)
            if brought[src].topk_idx[token, slot] == expert
        ]
        assert buffer.token_src_metadata.tolist() == [list(row[1:]) for row in wanted]
        per_expert = [sum(row[0] == e for row in wanted) for e in range(4 * rank, 4 * rank + 4)]
        assert buffer.expert_recv_count_sum.tolist() == per_expert
        assert buffer.l1_arrival_count.sum() == len(wanted)
        for i, (_, src, token, slot) in enumerate(wanted):
            assert np.array_equal(buffer.l1_acts[i], staged[src][0][token])
            assert np.array_equal(buffer.l1_acts_sf[i], staged[src][1][token])
            assert buffer.l1_topk_weights[i] == brought[src].topk_weights[token, slot]
        assert buffer.l2_acts.shape == (len(wanted), cases.I) and not buffer.l2_acts.any()
        assert buffer.l2_acts_sf.shape == (len(wanted), cases.I // 128)
    with pytest.raises(megamoe.Error, match="1 buffers; needed: those of all 2"):
        deep_gemm.dispatch_only(buffers[:1], [1])


def test_buffer_attributes_sizes_and_slicer():
    (buffer, _), _, _ = make(2)
    size, slicer = deep_gemm.get_symm_buffer_size_for_mega_moe(2, *SIZES)
    assert size == buffer.buffer.nbytes
    assert (buffer.num_max_tokens_per_rank, P % 128) == (P, 0)
    assert deep_gemm.get_token_alignment_for_sm90_mega_moe() == P
    assert [buffer.num_experts, buffer.num_topk, buffer.hidden, buffer.intermediate_hidden] == [
        cases.E,
        cases.K,
        cases.H,
        cases.I,
    ]
    assert buffer.mma_type == "fp8xfp4" and len(buffer.handle.buffer_ptrs) == 2
    assert buffer.handle.buffer_ptrs[0] == buffer.buffer.ctypes.data
    assert buffer.shared_l1_acts_sf.shape == buffer.x_sf.shape
    views = slicer(buffer.buffer)
    assert len(views) == 12 == len(buffer.view_names)
    for name, view in zip(buffer.view_names, views):
        mine = getattr(buffer, name)
        assert (view.dtype, view.shape) == (mine.dtype, mine.shape), name
    buffer.x[3] = 77
    assert np.all(views[0][3] == 77)
    assert deep_gemm.get_symm_buffer_size_for_sm90_mega_moe(2, *SIZES)[0] == size
    buffer.destroy()
    buffer.destroy()
    assert buffer.x is None
    with pytest.raises(megamoe.Error, match="destroyed"):
        buffer.check()


def test_older_positional_form_is_told_apart_by_type():
    seat = deep_gemm.LocalGroup(1).seats[0]
    old = deep_gemm.get_symm_buffer_for_mega_moe(seat, *SIZES, True, "swiglu")
    new = deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, *SIZES, 1, True, "fp8xfp8", "swiglu")
    assert (old.num_shared_experts, new.num_shared_experts) == (0, 1)
    with pytest.raises(megamoe.Error, match="activation = 'gelu'"):
        deep_gemm.get_symm_buffer_for_mega_moe(seat, *SIZES, True, "gelu")
    with pytest.raises(megamoe.Error, match="use_fp8_dispatch = False with mma_type = 'fp8xfp4'"):
        deep_gemm.get_symm_buffer_for_mega_moe(seat, *SIZES, False)
    with pytest.raises(megamoe.Error, match="'fp4xfp4'; known: fp8xfp4, fp8xfp8, bf16xbf16"):
        deep_gemm.get_symm_buffer_for_mega_moe(seat, *SIZES, mma_type="fp4xfp4")


def test_ranks_that_ask_for_different_buffers():
    local = deep_gemm.LocalGroup(2)
    deep_gemm.get_symm_buffer_for_mega_moe(local.seats[0], *SIZES)
    with pytest.raises(megamoe.Error, match="rank 1 asks for") as caught:
        deep_gemm.get_symm_buffer_for_mega_moe(local.seats[1], cases.E, 300, *SIZES[2:])
    assert caught.value.code == "disagreement"


class ProcessGroup:
    """As torch.distributed's, between threads."""

    meeting = threading.Barrier(2, timeout=20)
    texts = [b"", b""]  # noqa: RUF012

    def __init__(self, rank):
        self._rank = rank

    def rank(self):
        return self._rank

    def size(self):
        return 2


@pytest.mark.parametrize(
    ("capability", "on_cpu"), [(None, lambda group: group), ((9, 0), deep_gemm.OnCpu)]
)
def test_process_groups_of_torch(monkeypatch, capability, on_cpu):
    """Without a GPU, and on the CPU backend although there is one."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch(capability))
    buffers = [None, None]
    _, weights, expected = make(2)
    rng = np.random.default_rng(4)
    brought = [cases.tokens(rng, count) for count in (4, 7)]
    y = [np.zeros((count, cases.H), np.uint16) for count in (4, 7)]

    def one(rank):
        group = on_cpu(ProcessGroup(rank))
        buffers[rank] = deep_gemm.get_symm_buffer_for_mega_moe(group, *SIZES)
        stage(buffers[rank], brought[rank], len(y[rank]))
        deep_gemm.fp8_mega_moe(y[rank], *weights[rank], buffers[rank], fast_math=False)

    on_threads([lambda r=r: one(r) for r in range(2)])
    for mine, theirs in zip(y, expected_y(buffers, expected, [4, 7])):
        assert megamoe.compare(mine, theirs).diff < 3e-5


def test_views_and_sms_of_later_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch((10, 0)))
    size, slicer = deep_gemm.get_symm_buffer_size_for_mega_moe(1, *SIZES)
    views = slicer(np.zeros(size, np.uint8))
    assert len(views) == 8 and views[1].shape == (P, cases.H // 32)
    assert deep_gemm.get_num_sms() == 132


def test_num_sms_is_scoped_and_restored(monkeypatch):
    assert deep_gemm.get_num_sms() == 0
    with pytest.raises(ZeroDivisionError), deep_gemm.num_sms(4):
        assert deep_gemm.get_num_sms() == 4
        raise ZeroDivisionError
    assert deep_gemm.get_num_sms() == 0
    deep_gemm.set_num_sms(6)
    with deep_gemm.num_sms(2):
        assert deep_gemm.get_num_sms() == 2
        (buffer,), (weights,), _ = make(1)
        with pytest.raises(megamoe.Error):
            deep_gemm.fp8_mega_moe(np.zeros(3), *weights, buffer)
        assert deep_gemm.get_num_sms() == 2
    assert deep_gemm.get_num_sms() == 6
    deep_gemm.set_num_sms(0)
    with pytest.raises(megamoe.Error, match="num_sms = -1"):
        deep_gemm.set_num_sms(-1)
    monkeypatch.setitem(sys.modules, "deep_gemm", types.SimpleNamespace(get_num_sms=lambda: 44))
    assert deep_gemm.get_num_sms() == 44
    deep_gemm.set_reserved_sms(2)
    assert deep_gemm.get_reserved_sms() == 2
    deep_gemm.set_reserved_sms(None)
    with pytest.raises(megamoe.Error, match="reserved_sms = -3"):
        deep_gemm.set_reserved_sms(-3)


@pytest.mark.parametrize(
    ("major", "reserved", "current", "wanted"),
    [
        (9, None, 100, 100),
        (10, None, 0, 130),
        (10, 5, 0, 126),
        (10, 0, 77, 76),
        (10, 131, 0, 2),
    ],
)
def test_only_the_launch_sees_the_reduced_count(monkeypatch, major, reserved, current, wanted):
    (buffer,), (weights,), _ = make(1)
    buffer._launch = deep_gemm._state.LaunchPolicy(major, 132)
    deep_gemm.set_reserved_sms(reserved)
    deep_gemm.set_num_sms(current or 132)
    seen = []

    def call(*unused):
        seen.append(deep_gemm.get_num_sms())
        raise ZeroDivisionError

    monkeypatch.setattr(buffer._layer, "_call", call)
    try:
        with pytest.raises(ZeroDivisionError):
            deep_gemm.fp8_mega_moe(np.zeros((1, cases.H), np.uint16), *weights, buffer)
        assert deep_gemm.get_num_sms() == (current or 132)
    finally:
        deep_gemm.set_reserved_sms(None)
        deep_gemm.set_num_sms(0)
    assert seen == [wanted]


def test_sms_that_the_environment_reserves(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch((10, 0)))
    policy = deep_gemm._state.launch_policy
    for name in ("MEGAMOE_RESERVED_SMS", "SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS"):
        monkeypatch.delenv(name, raising=False)
    assert policy().count() == 130
    monkeypatch.setenv("SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS", "6")
    made = policy()
    monkeypatch.setenv("MEGAMOE_RESERVED_SMS", "0")
    assert (made.count(), policy().count()) == (126, 132), "as said when the policy was made"
    with deep_gemm.num_sms(9):
        assert policy().count() == 8
    monkeypatch.setenv("MEGAMOE_RESERVED_SMS", "few")
    with pytest.raises(megamoe.Error, match="MEGAMOE_RESERVED_SMS = 'few'"):
        policy()


def test_block_m():
    small = deep_gemm.get_block_m_for_mega_moe(2, 8, P, 1, 2, "fp8xfp4")
    large = deep_gemm.get_block_m_for_mega_moe(2, 8, 8192, 8192, 2, "fp8xfp4")
    assert small in (8, 16, 32, 64, 128) and large == 128 and small < large
    hinted = deep_gemm.get_block_m_for_mega_moe(2, 8, 8192, 1, 2, global_num_tokens=16384)
    assert hinted == large
    with pytest.raises(megamoe.Error, match="num_tokens = -1"):
        deep_gemm.get_block_m_for_mega_moe(2, 8, P, -1, 2)
