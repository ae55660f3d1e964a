#include <algorithm>

#include <fmt/format.h>

#include "host/handshake.hpp"
#include "host/layer_state.hpp"

namespace megamoe {

struct Group::State {
  Problem problem;
  std::unique_ptr<SymmetricMemory> memory;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Layer>> layers;
};

Group::Group(const Problem& problem, std::unique_ptr<SymmetricMemory> memory)
    : state_(std::make_unique<State>()) {
  const std::string reason = why_invalid(problem);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  if (memory == nullptr) throw Error(ErrorCode::invalid_argument, "memory is null");
  if (memory->ranks() != problem.ranks) {
    throw Error(ErrorCode::disagreement,
                fmt::format("the problem has ranks = {}, the symmetric memory {}", problem.ranks,
                            memory->ranks()));
  }
  agree(*memory, problem);
  state_->problem = problem;
  state_->backend =
      memory->devices().empty() ? make_cpu_backend() : make_cuda_backend(problem, *memory);
  state_->memory = std::move(memory);
  const std::vector<std::byte*> bases = state_->memory->allocate(symmetric_layout(problem).bytes);
  for (const int rank : state_->memory->local_ranks()) {
    auto layer = std::make_unique<LayerState>();
    layer->problem = problem;
    layer->rank = rank;
    layer->backend = state_->backend.get();
    layer->provider = state_->memory.get();
    layer->one_launch = state_->memory->one_launch();
    layer->space = state_->backend->make_space(static_cast<int>(state_->layers.size()),
                                               local_layout(problem).bytes);
    layer->memory = protocol::Memory(problem, bases.data(), layer->space->local());
    reset_words(*layer);
    state_->backend->prepare_inputs(*layer);
    const bool own_launch = state_->layers.empty() || !layer->one_launch;
    layer->launch_header = own_launch ? layer->memory.local_header()
                                      : LayerAccess::state(*state_->layers.front()).launch_header;
    state_->layers.push_back(std::unique_ptr<Layer>(new Layer(std::move(layer))));
  }
  state_->memory->all_gather("");  // no rank calls before all words are in place
}

Group::~Group() = default;

const Problem& Group::problem() const { return state_->problem; }
int Group::num_local_ranks() const { return static_cast<int>(state_->layers.size()); }

Layer& Group::layer(int local_rank) {
  if (local_rank < 0 || local_rank >= num_local_ranks()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("local_rank = {} is outside 0..{}", local_rank, num_local_ranks() - 1));
  }
  return *state_->layers[static_cast<std::size_t>(local_rank)];
}

void Group::forward(std::span<const RankCall> calls, const ForwardOptions& options,
                    std::span<const Stream> streams) {
  const std::size_t ranks = state_->layers.size();
  if (calls.size() != ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("forward got {} calls for {} local ranks", calls.size(), ranks));
  }
  const std::size_t launches = state_->memory->one_launch() ? 1 : ranks;
  if (!streams.empty() && streams.size() != launches) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("forward got {} streams; it takes none or {}", streams.size(),
                            launches == 1 ? "1" : fmt::format("{}, one per rank", launches)));
  }
  std::vector<LayerState*> layers;
  long tokens = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    layers.push_back(&LayerAccess::state(*state_->layers[i]));
    tokens += calls[i].num_tokens;
  }
  ForwardOptions group_options = options;
  if (!options.global_num_tokens) {
    // Counts that are out of range are refused by their own check.
    const long most = static_cast<long>(problem().ranks) * problem().max_tokens_per_rank;
    group_options.global_num_tokens = std::clamp(tokens, 0L, most);
  }
  run_calls(layers, calls, group_options, streams);
}

void Group::synchronize() {
  for (const auto& layer : state_->layers) layer->synchronize();
}

void Group::reset() {
  for (const auto& layer : state_->layers) {
    if (LayerAccess::state(*layer).in_flight) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("reset() while rank {} has a call in flight", layer->rank()));
    }
  }
  synchronize();
  state_->memory->all_gather("");  // no rank's call is running any more
  for (const auto& layer : state_->layers) reset_words(LayerAccess::state(*layer));
  state_->memory->all_gather("");  // no rank calls before all words are in place
}

}  // namespace megamoe
