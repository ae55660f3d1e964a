#include <vector>

#include <fmt/format.h>

#include "host/layer_state.hpp"
#include "layout/map.hpp"

namespace megamoe {

using protocol::u32;
using protocol::u64;

const char* version() { return MEGAMOE_VERSION; }

Layer::Layer(std::unique_ptr<LayerState> state) : state_(std::move(state)) {}
Layer::~Layer() = default;

LayerState& LayerAccess::state(const Layer& layer) {
  if (layer.state_ == nullptr)
    throw Error(ErrorCode::invalid_argument, "the Layer's Group has been destroyed");
  return *layer.state_;
}

int Layer::rank() const { return LayerAccess::state(*this).rank; }
const Problem& Layer::problem() const { return LayerAccess::state(*this).problem; }

InputViews input_views(const LayerState& s) {
  std::byte* base = s.memory.peer(static_cast<u32>(s.rank));
  const SymmetricLayout& l = s.memory.symmetric();
  const bool has_scales = scale_row_bytes(s.problem.precision, s.problem.hidden) > 0;
  return {base + l.x, has_scales ? base + l.x_scales : nullptr,
          reinterpret_cast<std::int64_t*>(base + l.topk_idx),
          reinterpret_cast<float*>(base + l.topk_weights)};
}

InputViews Layer::inputs() const { return input_views(LayerAccess::state(*this)); }

void throw_if_faulted(const LayerState& s) {
  const std::string text = fault_text(s);
  if (!text.empty())
    throw Error(ErrorCode::fault, text + "; reset() the group before the next call");
}

void Layer::forward(std::uint16_t* y, int num_tokens, const ExpertTensors& weights,
                    const ExpertTensors* shared, const ForwardOptions& options, Stream stream) {
  LayerState* const layer = &LayerAccess::state(*this);
  if (layer->one_launch) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} is a virtual rank: only Group::forward runs its call", layer->rank));
  }
  const RankCall call{y, num_tokens, &weights, shared};
  run_calls({&layer, 1}, {&call, 1}, options, {&stream, 1});
}

void Layer::synchronize() {
  LayerState& s = LayerAccess::state(*this);
  s.backend->synchronize(s);
}

void Layer::set_deadlines(std::chrono::nanoseconds deadline,
                          std::chrono::nanoseconds first_deadline) {
  LayerState& s = LayerAccess::state(*this);
  check_deadline("deadline", deadline);
  check_deadline("first_deadline", first_deadline);
  s.backend->set_deadlines(s, deadline, first_deadline);
}

namespace {

/// Rows that the call with this epoch brought here: the counts of every source, whose last routed
/// word is the inclusive end.
std::int64_t rows_received(const LayerState& s, u32 epoch) {
  const auto g = protocol::make_geometry(s.problem, KernelConfig{}, s.rank, 0);
  const u64* first = s.memory.count(g, g.rank, protocol::parity_of(epoch), 0, 0);
  std::vector<u64> words(std::size_t{kMaxWaves} * g.ranks * g.local_experts);
  s.space->read(words.data(), first, words.size() * sizeof(u64));
  std::int64_t rows = 0;
  for (std::size_t i = g.experts_per_rank - 1; i < words.size(); i += g.local_experts) {
    if (protocol::tag_of(words[i]) == epoch) rows += protocol::value_of(words[i]);
  }
  return rows;
}

}  // namespace

CallReport Layer::check() const {
  const LayerState& s = LayerAccess::state(*this);
  throw_if_faulted(s);
  CallReport report;
  const u32 epoch = s.epoch();
  report.epoch = epoch - protocol::kFirstEpoch;
  if (s.last_config) report.config = to_string(*s.last_config);
  report.rows_received = report.epoch == 0 ? 0 : rows_received(s, epoch - 1);
  const LocalHeader* header = s.memory.local_header();
  if (s.space->load(&header->bad_id_claim) != 0) {
    report.bad_id = {static_cast<int>(s.space->load(&header->bad_id_token)),
                     static_cast<int>(s.space->load(&header->bad_id_slot)),
                     s.space->load(&header->bad_id_value)};
  }
  return report;
}

void raise_abort(LayerState& s, protocol::Phase phase) {
  const auto rank = static_cast<u32>(s.rank);
  const u64 word = protocol::abort_value(s.generation, rank, phase, rank);
  s.aborted_generation = s.generation;
  // As protocol::raise_abort on a device: the word carries all that its readers use.
  for (u32 r = 0; r < static_cast<u32>(s.problem.ranks); ++r) {
    s.space->store(s.memory.abort_word(r), word);
  }
}

void Layer::abort() { raise_abort(LayerAccess::state(*this), protocol::Phase::caller); }

MemoryReport Layer::memory_report() const {
  const Problem& p = LayerAccess::state(*this).problem;
  return {symmetric_layout(p).bytes, local_layout(p).bytes, layout_map(p)};
}

std::size_t symmetric_bytes(const Problem& problem) {
  const std::string reason = why_invalid(problem);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  return symmetric_layout(problem).bytes;
}

std::array<Spoilable, 2> spoilable(const LayerState& s) {
  const SymmetricLayout& symmetric = s.memory.symmetric();
  // Peers write contributions only after this rank has published the counts of their call.
  std::byte* const combine = s.memory.peer(static_cast<u32>(s.rank)) + symmetric.combine;
  const LocalLayout& local = s.memory.local_offsets();
  return {{{combine, symmetric.bytes - symmetric.combine},
           {s.memory.pool(), local.bytes - local.pool}}};
}

void reset_words(LayerState& s) {
  const LocalLayout& local = s.memory.local_offsets();
  const SymmetricLayout& symmetric = s.memory.symmetric();
  s.space->zero(s.space->local(), local.chunk_count);
  s.space->zero(s.memory.peer(static_cast<u32>(s.rank)), symmetric.x);
  s.space->record() = {};
  LocalHeader* header = s.memory.local_header();
  s.space->store(&header->generation, ++s.generation);
  s.space->store(&header->start, protocol::tagged(protocol::kFirstEpoch, 0));
}

}  // namespace megamoe
