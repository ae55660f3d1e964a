#include "host/dispatch.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "host/layer_state.hpp"
#include "layout/elements.hpp"

namespace megamoe {
namespace {

/// One rank's snapshot in memory that its calls address.
class SnapshotBuffers {
 public:
  /// For at most `rows` rows.
  SnapshotBuffers(const LayerState& s, std::size_t rows)
      : state_(&s),
        row_bytes_(activation_row_bytes(s.problem.precision, s.problem.hidden)),
        scale_bytes_(scale_row_bytes(s.problem.precision, s.problem.hidden)),
        x_(s.space->allocate(rows * row_bytes_)),
        x_scales_(s.space->allocate(rows * scale_bytes_)),
        meta_(s.space->allocate(rows * sizeof(protocol::u64))),
        weights_(s.space->allocate(rows * sizeof(float))),
        rows_(s.space->allocate(static_cast<std::size_t>(s.problem.local_experts()) *
                                sizeof(protocol::u32))) {}

  [[nodiscard]] DispatchSnapshot view() const {
    return {x_.get(), reinterpret_cast<float*>(x_scales_.get()),
            reinterpret_cast<std::uint64_t*>(meta_.get()), reinterpret_cast<float*>(weights_.get()),
            reinterpret_cast<std::uint32_t*>(rows_.get())};
  }

  [[nodiscard]] DispatchedRows read() const {
    DispatchedRows out;
    out.rows_of.resize(static_cast<std::size_t>(state_->problem.local_experts()));
    fetch(out.rows_of, rows_);
    std::size_t rows = 0;
    for (const protocol::u32 n : out.rows_of) rows += n;
    out.x.resize(rows * row_bytes_);
    out.x_scales.resize(rows * scale_bytes_);
    out.meta.resize(rows);
    out.weights.resize(rows);
    fetch(out.x, x_);
    fetch(out.x_scales, x_scales_);
    fetch(out.meta, meta_);
    fetch(out.weights, weights_);
    return out;
  }

 private:
  template <class T>
  void fetch(std::vector<T>& to, const std::shared_ptr<std::byte>& from) const {
    state_->space->read(to.data(), from.get(), to.size() * sizeof(T));
  }

  const LayerState* state_;
  std::size_t row_bytes_, scale_bytes_;
  std::shared_ptr<std::byte> x_, x_scales_, meta_, weights_, rows_;
};

/// The most rows that a call can bring to one rank.
std::size_t most_rows(const Problem& p, std::span<const int> num_tokens) {
  std::size_t tokens = 0, own = 0;
  for (const int n : num_tokens) {
    tokens += static_cast<std::size_t>(std::max(0, n));
    own = std::max(own, static_cast<std::size_t>(std::max(0, n)));
  }
  const std::size_t others = static_cast<std::size_t>(p.ranks) - num_tokens.size();
  tokens += others * static_cast<std::size_t>(p.max_tokens_per_rank);
  return tokens * static_cast<std::size_t>(p.top_k) +
         own * static_cast<std::size_t>(p.shared_experts) + 1;
}

}  // namespace

std::vector<DispatchedRows> run_dispatch(Group& group, std::span<const int> num_tokens,
                                         const ForwardOptions& options,
                                         std::span<const Stream> streams) {
  const auto ranks = static_cast<std::size_t>(group.num_local_ranks());
  if (num_tokens.size() != ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("run_dispatch got {} token counts for {} local ranks",
                            num_tokens.size(), ranks));
  }
  if (options.config != nullptr && options.config->num_waves != 1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("num_waves = {}; a dispatch has one wave", options.config->num_waves));
  }
  std::vector<LayerState*> layers;
  std::vector<RankCall> calls;
  std::vector<SnapshotBuffers> buffers;
  std::vector<DispatchSnapshot> snapshots;
  for (std::size_t i = 0; i < ranks; ++i) {
    layers.push_back(&LayerAccess::state(group.layer(static_cast<int>(i))));
    calls.push_back({nullptr, num_tokens[i], nullptr, nullptr});
    buffers.emplace_back(*layers[i], most_rows(group.problem(), num_tokens));
    snapshots.push_back(buffers[i].view());
  }
  run_calls(layers, calls, options, streams, snapshots);
  group.synchronize();
  std::vector<DispatchedRows> out;
  for (std::size_t i = 0; i < ranks; ++i) {
    throw_if_faulted(*layers[i]);
    out.push_back(buffers[i].read());
  }
  return out;
}

}  // namespace megamoe
