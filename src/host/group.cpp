#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "host/environment.hpp"
#include "host/handshake.hpp"
#include "host/layer_state.hpp"

namespace megamoe {

struct Group::State {
  Problem problem;
  std::unique_ptr<SymmetricMemory> memory;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Layer>> layers;
  std::optional<int> default_reserve;
  bool poison = false;

  /// What can be seen to be wrong without the other ranks.
  void prepare() {
    const std::string reason = why_invalid(problem);
    if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
    if (memory->ranks() != problem.ranks) {
      throw Error(ErrorCode::disagreement,
                  fmt::format("the problem has ranks = {}, the symmetric memory {}", problem.ranks,
                              memory->ranks()));
    }
    default_reserve = environment_reserved_sms();
    poison = environment_flag("MEGAMOE_POISON");
    backend = memory->devices().empty() ? make_cpu_backend() : make_cuda_backend(problem, *memory);
  }

  std::unique_ptr<LayerState> make_layer(int rank, const std::vector<std::byte*>& bases) {
    auto layer = std::make_unique<LayerState>();
    layer->problem = problem;
    layer->rank = rank;
    layer->backend = backend.get();
    layer->provider = memory.get();
    layer->one_launch = memory->one_launch();
    layer->default_reserve = default_reserve;
    layer->poison = poison;
    layer->space =
        backend->make_space(static_cast<int>(layers.size()), local_layout(problem).bytes);
    layer->memory = protocol::Memory(problem, bases.data(), layer->space->local());
    reset_words(*layer);
    backend->after_reset(*layer);
    backend->prepare_inputs(*layer);
    const bool own_launch = layers.empty() || !layer->one_launch;
    layer->launch_header = own_launch ? layer->memory.local_header()
                                      : LayerAccess::state(*layers.front()).launch_header;
    return layer;
  }

  [[nodiscard]] AllGather gather() const {
    return [this](const std::string& text) { return memory->all_gather(text); };
  }

  void require_alive() const {
    if (memory == nullptr) throw Error(ErrorCode::invalid_argument, "the Group has been destroyed");
  }

  /// One line on stderr.
  void log_creation() const {
    if (!environment_flag("MEGAMOE_LOG")) return;
    const std::vector<int> devices = memory->devices();
    const std::string where =
        devices.empty()
            ? "the CPU"
            : fmt::format("GPU {} with {} SMs, {} left free", fmt::join(devices, ", "),
                          backend->num_sms(0),
                          default_reserve ? std::to_string(*default_reserve) : "default");
    const std::string line = fmt::format(
        "megamoe {}: process {}: rank {} of {} on {}; {}; {}, hidden {}, intermediate {}, {} "
        "experts, top-{}, {} tokens per rank; {} symmetric and {} local bytes per rank\n",
        version(), getpid(), fmt::join(memory->local_ranks(), ", "), problem.ranks, where,
        memory->kind(), name(problem.precision), problem.hidden, problem.intermediate,
        problem.experts, problem.top_k, problem.max_tokens_per_rank,
        symmetric_layout(problem).bytes, local_layout(problem).bytes);
    std::fputs(line.c_str(), stderr);
  }
};

Group::Group(const Problem& problem, std::unique_ptr<SymmetricMemory> memory)
    : state_(std::make_unique<State>()) {
  if (memory == nullptr) throw Error(ErrorCode::invalid_argument, "memory is null");
  State& s = *state_;
  s.problem = problem;
  s.memory = std::move(memory);
  agree(*s.memory, problem, trouble_of([&] { s.prepare(); }));
  const std::vector<std::byte*> bases = s.memory->allocate(symmetric_layout(problem).bytes);
  const Trouble trouble = trouble_of([&] {
    for (const int rank : s.memory->local_ranks())
      s.layers.push_back(std::unique_ptr<Layer>(new Layer(s.make_layer(rank, bases))));
  });
  refuse_together(s.gather(), trouble);  // no rank calls before all words are in place
  s.log_creation();
}

Group::~Group() = default;

void Group::destroy() {
  // The Layers stay, empty: callers may hold on to them.
  for (const auto& layer : state_->layers) layer->state_.reset();
  state_->backend.reset();
  state_->memory.reset();
}

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
  state_->require_alive();
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
  state_->require_alive();
  for (const auto& layer : state_->layers) {
    if (LayerAccess::state(*layer).in_flight) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("reset() while rank {} has a call in flight", layer->rank()));
    }
  }
  const AllGather gather = state_->gather();
  // No rank's call is running any more after the first; no rank calls before the second.
  refuse_together(gather, trouble_of([&] { synchronize(); }));
  refuse_together(gather, trouble_of([&] {
                    for (const auto& layer : state_->layers) {
                      LayerState& s = LayerAccess::state(*layer);
                      reset_words(s);
                      s.backend->after_reset(s);
                    }
                  }));
}

}  // namespace megamoe
