#include "cpu/work.hpp"

#include <cmath>
#include <cstring>

#include "layout/elements.hpp"
#include "numerics/activation.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"

namespace megamoe::cpu {

using protocol::BlockRef;
using protocol::u32;
using protocol::u64;

namespace {

constexpr int kL1GranuleRows = 2 * kGranule;  // gate and up rows of 128 intermediate channels

/// A block's slot of a ring: codes [block_rows][channels], scales [channels / group][block_rows].
struct Slot {
  std::byte* codes;
  std::byte* scales;
};
Slot slot_of(const Problem& p, std::byte* codes, std::byte* scales, std::size_t slot,
             u32 block_rows, int channels) {
  const std::size_t first_row = slot * block_rows;
  return {codes + first_row * activation_row_bytes(p.precision, channels),
          scales + first_row * scale_row_bytes(p.precision, channels)};
}
Slot pool_slot(const CallData& d, u32 block) {
  return slot_of(*d.problem, d.m->pool(), d.m->pool_scales(), block % d.g->pool_slots,
                 d.g->block_rows, d.problem->hidden);
}
Slot act_slot(const CallData& d, u32 block) {
  return slot_of(*d.problem, d.m->act(), d.m->act_scales(), block % d.g->act_slots, d.g->block_rows,
                 d.problem->intermediate);
}

const float* as_floats(const std::byte* p) { return reinterpret_cast<const float*>(p); }

}  // namespace

std::int64_t Work::expert_id(u32 token, u32 slot) const {
  return d_.m->topk_idx(d_.g->rank)[static_cast<std::size_t>(token) * d_.g->top_k + slot];
}

std::size_t Work::meta_row(u32 block, u32 row) const {
  return static_cast<std::size_t>(block % d_.g->meta_slots()) * d_.g->block_rows + row;
}

u64 Work::row_meta(const BlockRef& block, u32 row) const {
  return d_.m->row_metas()[meta_row(block.index, row)];
}

void Work::pull_row(u32 src, u32 index, u32 block, u32 row_in_block) {
  const Problem& p = *d_.problem;
  const std::size_t token = index / d_.g->contributions;
  const std::size_t row_bytes = activation_row_bytes(p.precision, p.hidden);
  const Slot slot = pool_slot(d_, block);
  const SymmetricLayout& offsets = d_.m->symmetric();
  const std::byte* source = d_.m->peer(src);
  std::memcpy(slot.codes + row_in_block * row_bytes, source + offsets.x + token * row_bytes,
              row_bytes);
  const std::size_t scale_row = scale_row_bytes(p.precision, p.hidden);
  const std::size_t one = scale_bytes(p.precision);
  const std::byte* scales = source + offsets.x_scales + token * scale_row;
  for (std::size_t k = 0; k < scale_row / one; ++k) {
    std::memcpy(slot.scales + (k * d_.g->block_rows + row_in_block) * one, scales + k * one, one);
  }
  d_.m->row_metas()[meta_row(block, row_in_block)] = protocol::row_meta(src, index);
}

void Work::snapshot_rows_of(u32 expert, u32 rows) { d_.snapshot.rows[expert] = rows; }

void Work::snapshot_block(u32 block, u32 first_row, u32 rows) {
  const Problem& p = *d_.problem;
  const std::size_t row_bytes = activation_row_bytes(p.precision, p.hidden);
  const std::size_t scale_row = scale_row_bytes(p.precision, p.hidden);
  const std::size_t one = scale_bytes(p.precision);
  const Slot slot = pool_slot(d_, block);
  std::memcpy(d_.snapshot.x + first_row * row_bytes, slot.codes, rows * row_bytes);
  for (u32 row = 0; row < rows; ++row) {
    const std::size_t to = std::size_t{first_row} + row;
    std::byte* scales = reinterpret_cast<std::byte*>(d_.snapshot.x_scales) + to * scale_row;
    for (std::size_t k = 0; k < scale_row / one; ++k)
      std::memcpy(scales + k * one, slot.scales + (k * d_.g->block_rows + row) * one, one);
    const u64 meta = d_.m->row_metas()[meta_row(block, row)];
    const u32 token = protocol::value_of(meta) / d_.g->contributions;
    const u32 k = protocol::value_of(meta) % d_.g->contributions;
    const float* weights = d_.m->topk_weights(protocol::tag_of(meta));
    d_.snapshot.meta[to] = meta;
    d_.snapshot.weights[to] =
        k < d_.g->top_k ? weights[static_cast<std::size_t>(token) * d_.g->top_k + k] : 1.0F;
  }
}

Work::Expert Work::expert(u32 local_expert) const {
  const bool routed = local_expert < d_.g->experts_per_rank;
  const ExpertTensors* tensors = routed ? d_.routed : d_.shared;
  return {tensors, routed ? local_expert : local_expert - d_.g->experts_per_rank,
          expert_bytes(d_.problem->precision, d_.problem->hidden, d_.problem->intermediate)};
}

void Work::l1_accumulate(const BlockRef& block, u32 first_granule, u32 granules) {
  const Problem& p = *d_.problem;
  const Expert e = expert(block.expert);
  const Slot slot = pool_slot(d_, block.index);
  const ActivationRows x{slot.codes, slot.scales, static_cast<int>(block.rows),
                         static_cast<int>(d_.g->block_rows), p.hidden};
  const std::size_t scale_row = static_cast<std::size_t>(p.hidden) / kGranule;
  accumulator_.resize(static_cast<std::size_t>(granules) * block.rows * kL1GranuleRows);
  for (u32 i = 0; i < granules; ++i) {
    const std::size_t granule = first_granule + i;
    const std::size_t first_row = granule * kL1GranuleRows;
    WeightRows w;
    w.rows = kL1GranuleRows;
    w.codes =
        e.tensors->w1 + e.index * e.bytes.w1 + first_row * (e.bytes.w1 / (2 * p.intermediate));
    if (p.precision == Precision::fp8) {
      const float* scales = as_floats(e.tensors->w1_scales + e.index * e.bytes.w1_scales);
      w.block_scales[0] = scales + granule * scale_row;
      w.block_scales[1] = scales + (d_.g->intermediate_granules + granule) * scale_row;
    } else if (p.precision != Precision::bf16) {
      w.scales = e.tensors->w1_scales + e.index * e.bytes.w1_scales +
                 first_row * (e.bytes.w1_scales / (2 * p.intermediate));
    }
    gemm_.multiply(x, w,
                   accumulator_.data() + static_cast<std::size_t>(i) * block.rows * kL1GranuleRows);
  }
}

void Work::store_act_group(std::byte* slot_codes, std::byte* slot_scales, u32 row, u32 granule,
                           const float* h) const {
  const Problem& p = *d_.problem;
  const std::size_t first =
      static_cast<std::size_t>(row) * p.intermediate + static_cast<std::size_t>(granule) * kGranule;
  if (p.precision == Precision::bf16) {
    auto* to = reinterpret_cast<std::uint16_t*>(slot_codes) + first;
    for (int i = 0; i < kGranule; ++i) to[i] = float_to_bf16(h[i]);
    return;
  }
  auto* codes = reinterpret_cast<std::uint8_t*>(slot_codes) + first;
  const std::size_t stride = d_.g->block_rows;
  if (p.precision == Precision::mxfp8_mxfp4) {
    for (int group = 0; group < kGranule / kMxScaleGroup; ++group) {
      const std::size_t scale_row =
          static_cast<std::size_t>(granule) * (kGranule / kMxScaleGroup) + group;
      reinterpret_cast<std::uint8_t*>(slot_scales)[scale_row * stride + row] = quantize_mx_group(
          h + group * kMxScaleGroup, kMxScaleGroup, codes + group * kMxScaleGroup);
    }
    return;
  }
  reinterpret_cast<float*>(slot_scales)[static_cast<std::size_t>(granule) * stride + row] =
      quantize_group(h, kGranule, codes);
}

void Work::l1_store(const BlockRef& block, u32 first_granule, u32 granules) {
  const Problem& p = *d_.problem;
  const Expert e = expert(block.expert);
  const Slot slot = act_slot(d_, block.index);
  const float* bias =
      e.tensors->b1 == nullptr ? nullptr : e.tensors->b1 + e.index * 2 * p.intermediate;
  for (u32 i = 0; i < granules; ++i) {
    const u32 granule = first_granule + i;
    for (u32 row = 0; row < block.rows; ++row) {
      const float* sums =
          accumulator_.data() + (static_cast<std::size_t>(i) * block.rows + row) * kL1GranuleRows;
      float h[kGranule];
      for (int channel = 0; channel < kGranule; ++channel) {
        const int gate_row = interleaved_row(channel, kGranule);
        const int up_row = gate_row + 8;
        const std::size_t first_row = static_cast<std::size_t>(granule) * kL1GranuleRows;
        const float gate =
            bias == nullptr ? sums[gate_row] : sums[gate_row] + bias[first_row + gate_row];
        const float up = bias == nullptr ? sums[up_row] : sums[up_row] + bias[first_row + up_row];
        h[channel] = activate(p.activation, gate, up);
      }
      store_act_group(slot.codes, slot.scales, row, granule, h);
    }
  }
}

void Work::l2_tile(const BlockRef& block, u32 first_granule, u32 granules) {
  const Problem& p = *d_.problem;
  const Expert e = expert(block.expert);
  const Slot slot = act_slot(d_, block.index);
  const ActivationRows h{slot.codes, slot.scales, static_cast<int>(block.rows),
                         static_cast<int>(d_.g->block_rows), p.intermediate};
  accumulator_.resize(static_cast<std::size_t>(block.rows) * kGranule);
  for (u32 granule = first_granule; granule < first_granule + granules; ++granule) {
    const std::size_t first_row = static_cast<std::size_t>(granule) * kGranule;
    WeightRows w;
    w.rows = kGranule;
    w.codes = e.tensors->w2 + e.index * e.bytes.w2 + first_row * (e.bytes.w2 / p.hidden);
    if (p.precision == Precision::fp8) {
      const float* scales = as_floats(e.tensors->w2_scales + e.index * e.bytes.w2_scales);
      w.block_scales[0] = w.block_scales[1] =
          scales + static_cast<std::size_t>(granule) * d_.g->intermediate_granules;
    } else if (p.precision != Precision::bf16) {
      w.scales = e.tensors->w2_scales + e.index * e.bytes.w2_scales +
                 first_row * (e.bytes.w2_scales / p.hidden);
    }
    gemm_.multiply(h, w, accumulator_.data());
    const float* bias =
        e.tensors->b2 == nullptr ? nullptr : e.tensors->b2 + e.index * p.hidden + first_row;
    for (u32 row = 0; row < block.rows; ++row) {
      const u64 meta = row_meta(block, row);
      const u32 index = protocol::value_of(meta);
      const std::size_t slot_row =
          static_cast<std::size_t>(index % d_.g->contributions) * d_.g->capacity +
          index / d_.g->contributions;
      auto* combine = reinterpret_cast<std::uint16_t*>(d_.m->peer(protocol::tag_of(meta)) +
                                                       d_.m->symmetric().combine);
      std::uint16_t* to = combine + slot_row * p.hidden + first_row;
      const float* sums = accumulator_.data() + static_cast<std::size_t>(row) * kGranule;
      for (int i = 0; i < kGranule; ++i)
        to[i] = float_to_bf16(bias == nullptr ? sums[i] : sums[i] + bias[i]);
    }
  }
}

void Work::sum_tokens(u32 first, u32 count) {
  const std::size_t hidden = d_.problem->hidden;
  const auto* combine =
      reinterpret_cast<const std::uint16_t*>(d_.m->peer(d_.g->rank) + d_.m->symmetric().combine);
  const float* weights = d_.m->topk_weights(d_.g->rank);
  accumulator_.resize(hidden);
  for (u32 token = first; token < first + count; ++token) {
    std::fill(accumulator_.begin(), accumulator_.end(), 0.0F);
    for (u32 slot = 0; slot < d_.g->contributions; ++slot) {
      const bool is_shared = slot >= d_.g->top_k;
      if (!is_shared && !protocol::is_expert(*d_.g, expert_id(token, slot))) continue;
      const float weight =
          is_shared ? 1.0F : weights[static_cast<std::size_t>(token) * d_.g->top_k + slot];
      const std::uint16_t* from =
          combine + (static_cast<std::size_t>(slot) * d_.g->capacity + token) * hidden;
      for (std::size_t i = 0; i < hidden; ++i)
        accumulator_[i] = std::fma(weight, bf16_to_float(from[i]), accumulator_[i]);
    }
    std::uint16_t* to = d_.y + token * hidden;
    for (std::size_t i = 0; i < hidden; ++i) to[i] = float_to_bf16(accumulator_[i]);
  }
}

}  // namespace megamoe::cpu
