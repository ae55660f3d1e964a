#include <vector>

#include <fmt/format.h>

#include "host/layer_state.hpp"

namespace megamoe {
namespace {

/// Marks all layers as having a call in flight, or throws and marks none.
class InFlight {
 public:
  explicit InFlight(std::span<LayerState* const> layers) {
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

/// Throws an earlier fault that can be seen without waiting for a device; a call on top of one that
/// cannot be seen does nothing but end.
void throw_if_known_faulted(const LayerState& s) {
  if (s.space->reads_are_cheap() || has_record(s) || s.aborted_generation == s.generation) {
    throw_if_faulted(s);
  }
}

Stream stream_of(std::span<const Stream> streams, std::size_t i) {
  if (streams.empty()) return nullptr;
  return streams.size() == 1 ? streams[0] : streams[i];
}

}  // namespace

void run_calls(std::span<LayerState* const> layers, std::span<const RankCall> calls,
               const ForwardOptions& options, std::span<const Stream> streams,
               std::span<const DispatchSnapshot> snapshots) {
  std::vector<PreparedCall> prepared;
  Backend& backend = *layers.front()->backend;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerState& s = *layers[i];
    const DispatchSnapshot snapshot = snapshots.empty() ? DispatchSnapshot{} : snapshots[i];
    if (snapshot.x == nullptr) {
      check_call(s, calls[i], options);
    } else {
      check_dispatch(s, calls[i], options);
    }
    std::int64_t* stats = options.recv_stats;
    if (stats != nullptr) stats += i * static_cast<std::size_t>(s.problem.experts_per_rank());
    prepared.push_back({&s, calls[i], config_for_call(s, calls[i].num_tokens, options), stats,
                        stream_of(streams, i), snapshot});
    backend.check(prepared.back(), options);
  }
  const InFlight in_flight(layers);
  for (const LayerState* s : layers) throw_if_known_faulted(*s);
  for (const PreparedCall& call : prepared) call.layer->last_config = call.config;
  backend.forward(prepared, options);
}

}  // namespace megamoe
