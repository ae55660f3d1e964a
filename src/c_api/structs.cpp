#include "c_api/structs.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace megamoe::c_api {
namespace {

/// No struct of any version comes near; a larger size is one that was never set.
constexpr std::size_t kMostBytes = 4096;

template <class Enum>
Enum to_enum(const char* field, int value, int count) {
  if (value < 0 || value >= count)
    refuse(fmt::format("{} = {} is outside 0..{}", field, value, count - 1));
  return static_cast<Enum>(value);
}

template <class Enum>
constexpr bool same(int c_value, Enum value) {
  return c_value == static_cast<int>(value);
}
static_assert(same(MEGAMOE_FP8, Precision::fp8) && same(MEGAMOE_BF16, Precision::bf16) &&
              same(MEGAMOE_MXFP4, Precision::mxfp4) &&
              same(MEGAMOE_MXFP8_MXFP4, Precision::mxfp8_mxfp4));
static_assert(same(MEGAMOE_SWIGLU, ActivationKind::swiglu) &&
              same(MEGAMOE_SWIGLU_OAI, ActivationKind::swiglu_oai) &&
              same(MEGAMOE_SITU, ActivationKind::situ));
static_assert(same(MEGAMOE_GATE_THEN_UP, W1Order::gate_then_up) &&
              same(MEGAMOE_INTERLEAVED_8, W1Order::interleaved_8));

const std::byte* bytes_at(const void* pointer) { return static_cast<const std::byte*>(pointer); }

}  // namespace

void require_size(const char* name, std::size_t size, std::size_t first_version) {
  if (size >= first_version && size <= kMostBytes) return;
  refuse(fmt::format("{}: size = {} is not a size of this struct; set it to sizeof, {} or more",
                     name, size, first_version));
}

void require_zero_tail(const char* name, const void* from, std::size_t known, std::size_t size) {
  const std::byte* bytes = bytes_at(from);
  const auto* set =
      std::find_if(bytes + known, bytes + size, [](std::byte b) { return b != std::byte{0}; });
  if (set == bytes + size) return;
  refuse(fmt::format("{}: byte {} is set, this library ({}) knows the first {}", name, set - bytes,
                     version(), known));
}

void write_text(const std::string& from, char* text, std::size_t capacity, std::size_t* length) {
  if (text == nullptr && capacity > 0)
    refuse(fmt::format("text is NULL with capacity = {}", capacity));
  if (length != nullptr) *length = from.size();
  if (capacity == 0) return;
  const std::size_t copied = std::min(from.size(), capacity - 1);
  std::memcpy(text, from.data(), copied);
  text[copied] = '\0';
}

Precision to_precision(const char* field, int value) { return to_enum<Precision>(field, value, 4); }

Problem to_problem(const megamoe_problem* from) {
  const megamoe_problem p = read_struct(from, "problem");
  return {.ranks = p.ranks,
          .experts = p.experts,
          .top_k = p.top_k,
          .hidden = p.hidden,
          .intermediate = p.intermediate,
          .max_tokens_per_rank = p.max_tokens_per_rank,
          .precision = to_precision("problem: precision", p.precision),
          .activation = {.kind = to_enum<ActivationKind>("problem: activation", p.activation, 3),
                         .clamp = p.clamp,
                         .alpha = p.alpha,
                         .up_bias = p.up_bias,
                         .beta = p.beta,
                         .linear_beta = p.linear_beta},
          .shared_experts = p.shared_experts};
}

ExpertTensors to_experts(const megamoe_experts* from, const char* name) {
  const megamoe_experts e = read_struct(from, name);
  return {.precision = to_precision(fmt::format("{}: precision", name).c_str(), e.precision),
          .w1_order = to_enum<W1Order>(fmt::format("{}: w1_order", name).c_str(), e.w1_order, 2),
          .num_experts = e.num_experts,
          .hidden = e.hidden,
          .intermediate = e.intermediate,
          .w1 = bytes_at(e.w1),
          .w1_scales = bytes_at(e.w1_scales),
          .w2 = bytes_at(e.w2),
          .w2_scales = bytes_at(e.w2_scales),
          .b1 = e.b1,
          .b2 = e.b2};
}

ForwardOptions to_options(const megamoe_forward_options* from) {
  ForwardOptions options;
  if (from == nullptr) return options;
  const megamoe_forward_options o = read_struct(from, "options");
  if (o.global_num_tokens != -1) options.global_num_tokens = static_cast<long>(o.global_num_tokens);
  options.num_sms = o.num_sms;
  if (o.reserved_sms != -1) options.reserved_sms = o.reserved_sms;
  options.deadline = std::chrono::nanoseconds(o.deadline_ns);
  if (o.first_deadline_ns != -1)
    options.first_deadline = std::chrono::nanoseconds(o.first_deadline_ns);
  if (o.fast_math != 0 && o.fast_math != 1)
    refuse(fmt::format("options: fast_math = {} is neither 0 nor 1", o.fast_math));
  options.fast_math = o.fast_math == 1;
  options.recv_stats = o.recv_stats;
  return options;
}

}  // namespace megamoe::c_api

using namespace megamoe::c_api;

megamoe_status megamoe_problem_init(megamoe_problem* problem, size_t size) {
  return guarded([&] {
    const megamoe::Activation activation;
    write_struct(problem,
                 {.size = size,
                  .ranks = 1,
                  .experts = 0,
                  .top_k = 0,
                  .hidden = 0,
                  .intermediate = 0,
                  .max_tokens_per_rank = 0,
                  .shared_experts = 0,
                  .precision = MEGAMOE_FP8,
                  .activation = MEGAMOE_SWIGLU,
                  .clamp = activation.clamp,
                  .alpha = activation.alpha,
                  .up_bias = activation.up_bias,
                  .beta = activation.beta,
                  .linear_beta = activation.linear_beta},
                 size, "problem");
  });
}

megamoe_status megamoe_problem_check(const megamoe_problem* problem) {
  return guarded([&] {
    const std::string reason = megamoe::why_invalid(to_problem(problem));
    if (!reason.empty()) refuse(reason);
  });
}

megamoe_status megamoe_experts_init(megamoe_experts* experts, size_t size) {
  return guarded([&] {
    megamoe_experts empty{};
    empty.precision = MEGAMOE_FP8;
    empty.w1_order = MEGAMOE_INTERLEAVED_8;
    write_struct(experts, empty, size, "experts");
  });
}

megamoe_status megamoe_forward_options_init(megamoe_forward_options* options, size_t size) {
  return guarded([&] {
    const megamoe::ForwardOptions defaults;
    megamoe_forward_options empty{};
    empty.global_num_tokens = -1;
    empty.first_deadline_ns = -1;
    empty.reserved_sms = -1;
    empty.deadline_ns = defaults.deadline.count();
    write_struct(options, empty, size, "options");
  });
}
