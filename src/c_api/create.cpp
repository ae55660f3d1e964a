#include <vector>

#include <fmt/format.h>

#include "c_api/handles.hpp"
#include "c_api/structs.hpp"

using namespace megamoe::c_api;
using megamoe::SymmetricMemory;

namespace {

/// Makes a group in the memory that `provide` gives for its problem.
template <class Provide>
megamoe_status create(const megamoe_problem* problem, megamoe_group** group, Provide provide) {
  return guarded([&] {
    required(group, "group");
    const megamoe::Problem p = to_problem(problem);
    const std::string reason = megamoe::why_invalid(p);
    if (!reason.empty()) refuse(reason);
    *group = add_group(std::make_unique<megamoe::Group>(p, provide(p)));
  });
}

}  // namespace

megamoe_status megamoe_group_create_host(const megamoe_problem* problem, megamoe_group** group) {
  return create(problem, group,
                [](const megamoe::Problem& p) { return SymmetricMemory::host(p.ranks); });
}

megamoe_status megamoe_group_create_cuda_virtual(const megamoe_problem* problem, int32_t device,
                                                 megamoe_group** group) {
  return create(problem, group, [&](const megamoe::Problem& p) {
    return SymmetricMemory::cuda_virtual(p.ranks, device);
  });
}

megamoe_status megamoe_group_create_cuda_peers(const megamoe_problem* problem,
                                               const int32_t* devices, size_t num_devices,
                                               megamoe_group** group) {
  return create(problem, group, [&](const megamoe::Problem& p) {
    required(devices, "devices");
    if (num_devices != static_cast<std::size_t>(p.ranks)) {
      refuse(fmt::format("num_devices = {}, the problem has ranks = {}: one device for each",
                         num_devices, p.ranks));
    }
    return SymmetricMemory::cuda_peers({devices, num_devices});
  });
}

megamoe_status megamoe_group_destroy(megamoe_group* group) {
  if (group == nullptr) return MEGAMOE_OK;
  return guarded([&] { remove_group(group); });
}

megamoe_status megamoe_group_num_local_ranks(const megamoe_group* group, int32_t* num_ranks) {
  return guarded([&] { required(num_ranks, "num_ranks") = find_group(group)->num_local_ranks(); });
}

megamoe_status megamoe_group_layer(const megamoe_group* group, int32_t local_rank,
                                   megamoe_layer** layer) {
  return guarded([&] { required(layer, "layer") = layer_handle(group, local_rank); });
}

megamoe_status megamoe_group_synchronize(megamoe_group* group) {
  return guarded([&] { find_group(group)->synchronize(); });
}

megamoe_status megamoe_group_reset(megamoe_group* group) {
  return guarded([&] { find_group(group)->reset(); });
}

megamoe_status megamoe_group_forward(megamoe_group* group, const megamoe_rank_call* calls,
                                     size_t num_calls, const megamoe_forward_options* options,
                                     void* const* streams, size_t num_streams) {
  return guarded([&] {
    const std::shared_ptr<megamoe::Group> found = find_group(group);
    const auto ranks = static_cast<std::size_t>(found->num_local_ranks());
    if (num_calls != ranks)
      refuse(fmt::format("num_calls = {}, the group has {} local ranks", num_calls, ranks));
    if (num_streams > ranks)
      refuse(fmt::format("num_streams = {}, the group has {} local ranks", num_streams, ranks));
    if (num_streams > 0) required(streams, "streams");
    const std::size_t stride = required(calls, "calls").size;
    std::vector<megamoe::ExpertTensors> routed(ranks), shared(ranks);
    std::vector<megamoe::RankCall> converted;
    for (std::size_t i = 0; i < ranks; ++i) {
      const auto* at = reinterpret_cast<const megamoe_rank_call*>(
          reinterpret_cast<const std::byte*>(calls) + i * stride);
      const std::string name = fmt::format("calls[{}]", i);
      // Before its fields are read: past what the caller has, were the size wrong.
      if (at->size != stride)
        refuse(fmt::format("{}: size = {}, calls[0] has {}", name, at->size, stride));
      const megamoe_rank_call call = read_struct(at, name.c_str());
      routed[i] = to_experts(call.weights, (name + ": weights").c_str());
      if (call.shared != nullptr) shared[i] = to_experts(call.shared, (name + ": shared").c_str());
      converted.push_back({.y = call.y,
                           .num_tokens = call.num_tokens,
                           .weights = &routed[i],
                           .shared = call.shared == nullptr ? nullptr : &shared[i]});
    }
    std::vector<megamoe::Stream> on;
    on.reserve(num_streams);
    for (std::size_t i = 0; i < num_streams; ++i)
      on.push_back(static_cast<megamoe::Stream>(streams[i]));
    found->forward(converted, to_options(options), on);
  });
}
