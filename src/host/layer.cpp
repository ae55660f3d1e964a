#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "host/layer_state.hpp"
#include "layout/map.hpp"

namespace megamoe {

const char* version() { return MEGAMOE_VERSION; }

Layer::Layer(std::unique_ptr<LayerState> state) : state_(std::move(state)) {}
Layer::~Layer() = default;

int Layer::rank() const { return state_->rank; }
const Problem& Layer::problem() const { return state_->problem; }

InputViews Layer::inputs() const {
  const protocol::Memory& m = state_->memory;
  std::byte* base = m.peer(static_cast<protocol::u32>(state_->rank));
  const SymmetricLayout& l = m.symmetric();
  const bool has_scales = scale_row_bytes(state_->problem.precision, state_->problem.hidden) > 0;
  return {base + l.x, has_scales ? base + l.x_scales : nullptr,
          reinterpret_cast<std::int64_t*>(base + l.topk_idx),
          reinterpret_cast<float*>(base + l.topk_weights)};
}

cpu::RankLaunch make_rank_launch(LayerState& s, const RankCall& call,
                                 const ForwardOptions& options) {
  const KernelConfig config = config_for_call(s, call.num_tokens, options);
  s.last_config = to_string(config);
  cpu::RankLaunch launch;
  launch.geometry = protocol::make_geometry(s.problem, config, s.rank,
                                            static_cast<protocol::u32>(list_entries(s.problem)));
  launch.memory = &s.memory;
  launch.data = {&s.problem, nullptr, &s.memory, call.weights, call.shared, call.y};
  launch.record = &s.record;
  launch.num_tokens = static_cast<protocol::u32>(call.num_tokens);
  launch.generation = s.generation();
  launch.recv_stats = options.recv_stats;
  return launch;
}

void throw_if_faulted(const LayerState& s) {
  const std::string text = fault_text(s);
  if (!text.empty())
    throw Error(ErrorCode::fault, text + "; reset() the group before the next call");
}

void finish_call(LayerState& s, protocol::u32 epoch) {
  if (s.epoch() != epoch + 1) throw_if_faulted(s);
  const protocol::Memory& m = s.memory;
  // Rows of this call: the counts of every source, whose last routed word is the inclusive end.
  const auto g = protocol::make_geometry(s.problem, KernelConfig{}, s.rank, 0);
  s.rows_received = 0;
  for (protocol::u32 wave = 0; wave < kMaxWaves; ++wave) {
    for (protocol::u32 src = 0; src < g.ranks; ++src) {
      const protocol::u64 word =
          m.count(g, g.rank, protocol::parity_of(epoch), wave, src)[g.experts_per_rank - 1];
      if (protocol::tag_of(word) == epoch) s.rows_received += protocol::value_of(word);
    }
  }
}

void Layer::forward(std::uint16_t* y, int num_tokens, const ExpertTensors& weights,
                    const ExpertTensors* shared, const ForwardOptions& options, Stream /*stream*/) {
  LayerState& s = *state_;
  if (s.one_launch) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} is a virtual rank: only Group::forward runs its call", s.rank));
  }
  const RankCall call{y, num_tokens, &weights, shared};
  check_call(s, call, options);
  if (s.in_flight.exchange(true)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} already has a call in flight on this Layer", s.rank));
  }
  struct Guard {
    std::atomic<bool>& flag;
    ~Guard() { flag = false; }
  } guard{s.in_flight};
  throw_if_faulted(s);
  cpu::RankLaunch launch = make_rank_launch(s, call, options);
  launch.data.g = &launch.geometry;
  const protocol::u32 epoch = s.epoch();
  cpu::run_launch({&launch, 1},
                  {ctas_for_call(s, options), static_cast<std::uint64_t>(options.deadline.count()),
                   s.delay_seed});
  finish_call(s, epoch);
}

CallReport Layer::check() const {
  const LayerState& s = *state_;
  throw_if_faulted(s);
  CallReport report;
  report.epoch = s.epoch() - protocol::kFirstEpoch;
  report.config = s.last_config;
  report.rows_received = s.rows_received;
  const LocalHeader& header = *s.memory.local_header();
  if (header.bad_id_claim != 0) {
    report.bad_id = {static_cast<int>(header.bad_id_token), static_cast<int>(header.bad_id_slot),
                     header.bad_id_value};
  }
  return report;
}

void Layer::abort() {
  cpu::HostEnv env;
  const auto rank = static_cast<protocol::u32>(state_->rank);
  protocol::raise_abort(
      env, state_->memory, static_cast<protocol::u32>(state_->problem.ranks),
      protocol::abort_value(state_->generation(), rank, protocol::Phase::caller, rank));
}

MemoryReport Layer::memory_report() const {
  return {symmetric_layout(state_->problem).bytes, local_layout(state_->problem).bytes,
          layout_map(state_->problem)};
}

void reset_words(LayerState& s) {
  LocalHeader* header = s.memory.local_header();
  const protocol::u32 generation = header->generation + 1;
  const LocalLayout& local = s.memory.local_offsets();
  const SymmetricLayout& symmetric = s.memory.symmetric();
  std::memset(s.local.data(), 0, local.chunk_count);
  std::memset(s.memory.peer(static_cast<protocol::u32>(s.rank)), 0, symmetric.x);
  s.record = {};
  header->generation = generation;
  header->start = protocol::tagged(protocol::kFirstEpoch, 0);
}

}  // namespace megamoe
