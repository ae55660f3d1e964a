#include <fmt/format.h>

#include "c_api/handles.hpp"
#include "c_api/structs.hpp"

using namespace megamoe::c_api;
using megamoe::Stream;

namespace {

/// Counts that are out of range get no values, and are refused by their own check.
std::size_t slots(const megamoe::Problem& p, int num_tokens) {
  if (num_tokens < 0 || num_tokens > p.max_tokens_per_rank) return 0;
  return static_cast<std::size_t>(num_tokens) * static_cast<std::size_t>(p.top_k);
}

template <class Id>
megamoe_status stage(megamoe_layer* layer, const uint16_t* hidden_states, const Id* topk_idx,
                     const float* topk_weights, int32_t num_tokens, float routed_scaling,
                     void* stream) {
  return guarded([&] {
    const std::shared_ptr<megamoe::Layer> found = find_layer(layer);
    const std::size_t count = slots(found->problem(), num_tokens);
    if (count > 0) {
      const char* missing = topk_idx == nullptr       ? "topk_idx"
                            : topk_weights == nullptr ? "topk_weights"
                                                      : nullptr;
      if (missing != nullptr)
        refuse(fmt::format("{} is NULL with num_tokens = {}", missing, num_tokens));
    }
    found->stage(hidden_states, std::span(topk_idx, count), std::span(topk_weights, count),
                 num_tokens, routed_scaling, static_cast<Stream>(stream));
  });
}

}  // namespace

megamoe_status megamoe_layer_inputs(const megamoe_layer* layer, megamoe_input_views* views) {
  return guarded([&] {
    const megamoe::InputViews from = find_layer(layer)->inputs();
    write_struct(views,
                 {.size = 0,
                  .x = from.x,
                  .x_scales = from.x_scales,
                  .topk_idx = from.topk_idx,
                  .topk_weights = from.topk_weights},
                 required(views, "views").size, "views");
  });
}

megamoe_status megamoe_layer_stage(megamoe_layer* layer, const uint16_t* hidden_states,
                                   const int64_t* topk_idx, const float* topk_weights,
                                   int32_t num_tokens, float routed_scaling, void* stream) {
  return stage(layer, hidden_states, topk_idx, topk_weights, num_tokens, routed_scaling, stream);
}

megamoe_status megamoe_layer_stage_i32(megamoe_layer* layer, const uint16_t* hidden_states,
                                       const int32_t* topk_idx, const float* topk_weights,
                                       int32_t num_tokens, float routed_scaling, void* stream) {
  return stage(layer, hidden_states, topk_idx, topk_weights, num_tokens, routed_scaling, stream);
}

megamoe_status megamoe_layer_forward(megamoe_layer* layer, uint16_t* y, int32_t num_tokens,
                                     const megamoe_experts* weights, const megamoe_experts* shared,
                                     const megamoe_forward_options* options, void* stream) {
  return guarded([&] {
    const std::shared_ptr<megamoe::Layer> found = find_layer(layer);
    const megamoe::ExpertTensors routed = to_experts(weights, "weights");
    megamoe::ExpertTensors others;
    if (shared != nullptr) others = to_experts(shared, "shared");
    found->forward(y, num_tokens, routed, shared == nullptr ? nullptr : &others,
                   to_options(options), static_cast<Stream>(stream));
  });
}

megamoe_status megamoe_layer_check(const megamoe_layer* layer, megamoe_call_report* report) {
  return guarded([&] {
    const megamoe::CallReport from = find_layer(layer)->check();
    if (report == nullptr) return;
    const auto bad = from.bad_id.value_or(megamoe::CallReport::BadId{0, 0, 0});
    write_struct(report,
                 {.size = 0,
                  .rows_received = from.rows_received,
                  .bad_id = bad.value,
                  .bad_token = bad.token,
                  .bad_slot = bad.slot,
                  .has_bad_id = from.bad_id ? 1 : 0,
                  .epoch = from.epoch},
                 report->size, "report");
  });
}

megamoe_status megamoe_layer_config(const megamoe_layer* layer, char* text, size_t capacity,
                                    size_t* length) {
  return guarded([&] { write_text(find_layer(layer)->check().config, text, capacity, length); });
}

megamoe_status megamoe_layer_synchronize(megamoe_layer* layer) {
  return guarded([&] { find_layer(layer)->synchronize(); });
}

megamoe_status megamoe_layer_set_deadlines(megamoe_layer* layer, int64_t deadline_ns,
                                           int64_t first_deadline_ns) {
  return guarded([&] {
    find_layer(layer)->set_deadlines(std::chrono::nanoseconds(deadline_ns),
                                     std::chrono::nanoseconds(first_deadline_ns));
  });
}

megamoe_status megamoe_layer_abort(megamoe_layer* layer) {
  return guarded([&] { find_layer(layer)->abort(); });
}

megamoe_status megamoe_layer_rank(const megamoe_layer* layer, int32_t* rank) {
  return guarded([&] { required(rank, "rank") = find_layer(layer)->rank(); });
}

megamoe_status megamoe_layer_memory(const megamoe_layer* layer, megamoe_memory_report* report) {
  return guarded([&] {
    const megamoe::MemoryReport from = find_layer(layer)->memory_report();
    write_struct(
        report,
        {.size = 0, .symmetric_bytes = from.symmetric_bytes, .local_bytes = from.local_bytes},
        required(report, "report").size, "report");
  });
}

megamoe_status megamoe_layer_memory_map(const megamoe_layer* layer, char* text, size_t capacity,
                                        size_t* length) {
  return guarded(
      [&] { write_text(find_layer(layer)->memory_report().map, text, capacity, length); });
}
