#include <thread>

#include <fmt/format.h>

#include "host/handshake.hpp"
#include "host/layer_state.hpp"

namespace megamoe {

struct Group::State {
  Problem problem;
  std::unique_ptr<SymmetricMemory> memory;
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
  state_->memory = std::move(memory);
  const std::vector<std::byte*> bases = state_->memory->allocate(symmetric_layout(problem).bytes);
  for (const int rank : state_->memory->local_ranks()) {
    auto layer = std::make_unique<LayerState>();
    layer->problem = problem;
    layer->rank = rank;
    layer->provider = state_->memory.get();
    layer->one_launch = state_->memory->one_launch();
    layer->local = AlignedBuffer(local_layout(problem).bytes);
    layer->memory = protocol::Memory(problem, bases.data(), layer->local.data());
    reset_words(*layer);
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

namespace {

/// Marks all layers as having a call in flight, or throws and marks none.
class InFlight {
 public:
  explicit InFlight(const std::vector<LayerState*>& layers) {
    for (LayerState* s : layers) {
      if (s->in_flight.exchange(true)) {
        release();
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("rank {} already has a call in flight on this Layer", s->rank));
      }
      held_.push_back(s);
    }
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() { release(); }

 private:
  void release() {
    for (LayerState* s : held_) s->in_flight = false;
    held_.clear();
  }
  std::vector<LayerState*> held_;
};

void run_launches(std::vector<cpu::RankLaunch>& launches, const std::vector<LayerState*>& layers,
                  const ForwardOptions& options) {
  const LayerState& first = *layers.front();
  const int ctas = ctas_for_call(first, options);
  const auto deadline = static_cast<std::uint64_t>(options.deadline.count());
  if (first.one_launch) {
    cpu::run_launch(launches,
                    {ctas * static_cast<int>(launches.size()), deadline, first.delay_seed});
    return;
  }
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    ranks.emplace_back([&, i] {
      cpu::run_launch({&launches[i], 1}, {ctas, deadline, layers[i]->delay_seed});
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace

void Group::forward(std::span<const RankCall> calls, const ForwardOptions& options,
                    std::span<const Stream> /*streams*/) {
  if (calls.size() != state_->layers.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("forward got {} calls for {} local ranks",
                                                         calls.size(), state_->layers.size()));
  }
  std::vector<LayerState*> layers;
  for (const auto& layer : state_->layers) layers.push_back(&LayerAccess::state(*layer));
  long tokens = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    check_call(*layers[i], calls[i], options);
    tokens += calls[i].num_tokens;
  }
  const InFlight in_flight(layers);
  std::vector<protocol::u32> epochs;
  std::vector<cpu::RankLaunch> launches;
  ForwardOptions rank_options = options;
  if (!options.global_num_tokens) rank_options.global_num_tokens = tokens;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    throw_if_faulted(*layers[i]);
    // recv_stats is [local ranks][experts per rank] here.
    rank_options.recv_stats =
        options.recv_stats == nullptr
            ? nullptr
            : options.recv_stats + i * static_cast<std::size_t>(problem().experts_per_rank());
    launches.push_back(make_rank_launch(*layers[i], calls[i], rank_options));
    epochs.push_back(layers[i]->epoch());
  }
  for (cpu::RankLaunch& launch : launches) launch.data.g = &launch.geometry;
  run_launches(launches, layers, options);
  for (std::size_t i = 0; i < calls.size(); ++i) finish_call(*layers[i], epochs[i]);
}

void Group::reset() {
  for (const auto& layer : state_->layers) {
    if (LayerAccess::state(*layer).in_flight) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("reset() while rank {} has a call in flight", layer->rank()));
    }
  }
  state_->memory->all_gather("");  // no rank's call is running any more
  for (const auto& layer : state_->layers) reset_words(LayerAccess::state(*layer));
  state_->memory->all_gather("");  // no rank calls before all words are in place
}

}  // namespace megamoe
