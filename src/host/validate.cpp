#include <fmt/format.h>

#include "config/refuse.hpp"
#include "host/layer_state.hpp"

namespace megamoe {
namespace {

/// More than any GPU has; a CTA on the CPU is two threads.
constexpr int kMaxSms = 1024;

void check_aligned(const char* field, const void* pointer, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    refuse(fmt::format("{} = {} is not aligned to {} bytes", field, pointer, alignment));
  }
}

void check_tensors(const Problem& p, const ExpertTensors* w, int num_experts, const char* which) {
  if (w == nullptr)
    refuse(fmt::format("{} weights are null; {} experts are needed", which, num_experts));
  if (w->precision != p.precision) {
    refuse(fmt::format("{} weights are {}, the problem is {}", which, name(w->precision),
                       name(p.precision)));
  }
  if (w->num_experts != num_experts) {
    refuse(fmt::format("{} weights have num_experts = {}, this rank needs {}", which,
                       w->num_experts, num_experts));
  }
  if (w->hidden != p.hidden)
    refuse(fmt::format("{} weights have hidden = {}, the problem {}", which, w->hidden, p.hidden));
  if (w->intermediate != p.intermediate) {
    refuse(fmt::format("{} weights have intermediate = {}, the problem {}", which, w->intermediate,
                       p.intermediate));
  }
  if (w->w1_order != W1Order::interleaved_8) {
    refuse(
        fmt::format("{} weights have w1 in a checkpoint's row order; interleave its rows by 8 "
                    "first (interleave_rows)",
                    which));
  }
  if (w->w1 == nullptr || w->w2 == nullptr)
    refuse(fmt::format("{} weights have a null w1 or w2", which));
  if (p.precision != Precision::bf16 && (w->w1_scales == nullptr || w->w2_scales == nullptr)) {
    refuse(fmt::format("{} weights have null w1_scales or w2_scales; {} needs both", which,
                       name(p.precision)));
  }
  const std::size_t scale_alignment = p.precision == Precision::fp8 ? alignof(float) : 1;
  check_aligned("w1", w->w1, 16);
  check_aligned("w2", w->w2, 16);
  check_aligned("w1_scales", w->w1_scales, scale_alignment);
  check_aligned("w2_scales", w->w2_scales, scale_alignment);
  check_aligned("b1", w->b1, alignof(float));
  check_aligned("b2", w->b2, alignof(float));
}

void check_tokens(const Problem& p, const RankCall& call) {
  if (call.num_tokens < 0) refuse(fmt::format("num_tokens = {} is negative", call.num_tokens));
  if (call.num_tokens > p.max_tokens_per_rank) {
    refuse(fmt::format("num_tokens = {} is more than max_tokens_per_rank = {}", call.num_tokens,
                       p.max_tokens_per_rank));
  }
}

void check_options(const Problem& p, const ForwardOptions& options) {
  check_deadline("deadline", options.deadline);
  if (options.first_deadline) check_deadline("first_deadline", *options.first_deadline);
  if (options.global_num_tokens) {
    const long most = static_cast<long>(p.ranks) * p.max_tokens_per_rank;
    if (*options.global_num_tokens < 0 || *options.global_num_tokens > most) {
      refuse(fmt::format("global_num_tokens = {} is outside 0..{} (ranks x capacity)",
                         *options.global_num_tokens, most));
    }
  }
  if (options.num_sms < 0) refuse(fmt::format("num_sms = {} is negative", options.num_sms));
  if (options.num_sms > kMaxSms)
    refuse(fmt::format("num_sms = {} is more than {}", options.num_sms, kMaxSms));
  if (options.reserved_sms.value_or(0) < 0)
    refuse(fmt::format("reserved_sms = {} is negative", *options.reserved_sms));
}

}  // namespace

void check_deadline(const char* name, std::chrono::nanoseconds deadline) {
  if (deadline.count() <= 0)
    refuse(fmt::format("{} = {} ns must be positive", name, deadline.count()));
  if (deadline > kMaxDeadline) {
    refuse(fmt::format("{} = {} ns is more than {} ns (100 hours)", name, deadline.count(),
                       kMaxDeadline.count()));
  }
}

void check_call(const LayerState& s, const RankCall& call, const ForwardOptions& options) {
  const Problem& p = s.problem;
  check_tokens(p, call);
  if (call.y == nullptr && call.num_tokens > 0)
    refuse(fmt::format("y is null with num_tokens = {}", call.num_tokens));
  check_aligned("y", call.y, alignof(std::uint16_t));
  check_tensors(p, call.weights, p.experts_per_rank(), "routed");
  if (p.shared_experts > 0) check_tensors(p, call.shared, p.shared_experts, "shared");
  check_options(p, options);
}

void check_dispatch(const LayerState& s, const RankCall& call, const ForwardOptions& options) {
  check_tokens(s.problem, call);
  check_options(s.problem, options);
}

KernelConfig config_for_call(const LayerState& s, int num_tokens, const ForwardOptions& options) {
  if (options.config == nullptr) {
    return choose_config(s.problem, options.global_num_tokens.value_or(
                                        static_cast<long>(num_tokens) * s.problem.ranks));
  }
  const std::string reason = why_invalid(s.problem, *options.config);
  if (!reason.empty()) refuse(reason);
  return *options.config;
}

}  // namespace megamoe
