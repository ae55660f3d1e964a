// Rung 1: what a caller sees before anything is computed.
#include <algorithm>
#include <cstring>

#include "tests/ladder/one_tile.hpp"
#include "tests/ladder/rung.hpp"

namespace megamoe::ladder {
namespace {

template <class T>
std::vector<T> download(int device, const void* from, std::size_t count) {
  const cuda::DeviceGuard guard(device);
  std::vector<T> values(count);
  if (count > 0) {
    cuda::check(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost),
                "download");
  }
  return values;
}

/// The input views of a rank hold what was staged, in codes and FP32 scales, and no expert for
/// tokens that it does not have.
void check_views(GpuCase& layer, const ref::RandomInputs& inputs, int rank, Failures& failures) {
  const Problem& p = layer.problem();
  const InputViews views = layer.group().layer(rank).inputs();
  const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(rank)];
  const auto require = [&](bool good, const char* what) {
    failures.require(good, fmt::format("rank {}: {}", rank, what));
  };
  for (const void* view :
       {static_cast<const void*>(views.x), static_cast<const void*>(views.x_scales),
        static_cast<const void*>(views.topk_idx), static_cast<const void*>(views.topk_weights)}) {
    require(reinterpret_cast<std::uintptr_t>(view) % 128 == 0, "a view is not aligned to 128");
  }
  const int device = layer.device(rank);
  require(download<std::byte>(device, views.x, tokens.x.size()) == tokens.x, "codes of x differ");
  require(download<std::byte>(device, views.x_scales, tokens.x_scales.size()) == tokens.x_scales,
          "FP32 scales of x differ");
  const auto slots =
      static_cast<std::size_t>(p.max_tokens_per_rank) * static_cast<std::size_t>(p.top_k);
  std::vector<std::int64_t> ids = tokens.topk_idx;
  ids.resize(slots, -1);
  require(download<std::int64_t>(device, views.topk_idx, slots) == ids,
          "expert ids differ, or rows without a token have some");
  require(download<float>(device, views.topk_weights, tokens.topk_weights.size()) ==
              tokens.topk_weights,
          "top-k weights differ");
}

/// Byte k of logical row `row` (gate rows, then up rows) of a w1 [2I, H]: any pattern without
/// period.
std::byte pattern(int row, int k) {
  return static_cast<std::byte>((row * 131 + k * 7 + row / 256 * 17) & 0xFF);
}

/// The transform of a checkpoint's w1 puts 8 gate rows, then the 8 up rows of the same channels,
/// bytewise, in place or not.
void check_weight_transform(const Problem& p, Failures& failures) {
  const int rows = 2 * p.intermediate;
  const auto row_bytes = static_cast<std::size_t>(p.hidden);
  std::vector<std::byte> checkpoint(static_cast<std::size_t>(rows) * row_bytes), expected,
      transformed(checkpoint.size());
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < p.hidden; ++k)
      checkpoint[static_cast<std::size_t>(row) * row_bytes + static_cast<std::size_t>(k)] =
          pattern(row, k);
  for (int group = 0; group < p.intermediate / 8; ++group) {
    for (const int half : {0, p.intermediate}) {
      for (int i = 0; i < 8; ++i)
        for (int k = 0; k < p.hidden; ++k) expected.push_back(pattern(half + group * 8 + i, k));
    }
  }
  interleave_rows(checkpoint.data(), transformed.data(), p.intermediate, row_bytes);
  failures.require(transformed == expected, "interleave_rows: the rows' order is wrong");
  interleave_rows(checkpoint.data(), checkpoint.data(), p.intermediate, row_bytes);
  failures.require(checkpoint == expected, "interleave_rows in place: the rows' order is wrong");
}

/// A kernel that does nothing, launched between two others as the fused kernel is.
void check_empty_launch(GpuCase& layer, Failures& failures) {
  for (int r = 0; r < layer.problem().ranks; ++r) {
    const cuda::DeviceGuard guard(layer.device(r));
    for (int i = 0; i < 3; ++i) cuda::check(launch_empty(layer.stream(r)), "an empty kernel");
    const cudaError_t error = cudaStreamSynchronize(layer.stream(r));
    failures.require(error == cudaSuccess, fmt::format("empty kernels on GPU {}: {}",
                                                       layer.device(r), cudaGetErrorString(error)));
  }
}

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  const auto layer = make_layer(arguments, tokens);
  const Problem& p = layer->problem();
  check_weight_transform(p, failures);
  check_empty_launch(*layer, failures);
  // More tokens first, so that the second staging has ids to take back.
  for (const int count : {p.max_tokens_per_rank, tokens}) {
    const auto inputs = equal_inputs(p, count, {ref::RoutingKind::uniform}, 1);
    layer->stage(inputs);
    layer->group().synchronize();
    for (int r = 0; r < p.ranks; ++r) check_views(*layer, inputs, r, failures);
  }
  const MemoryReport report = layer->group().layer(0).memory_report();
  note = fmt::format("{} KiB symmetric, {} KiB local per rank", report.symmetric_bytes / 1024,
                     report.local_bytes / 1024);
  failures.require(report.symmetric_bytes > 0 && report.local_bytes > 0, "no memory reported");
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 1 interface",
                                "views, FP32 scales, weight transform, an empty kernel",
                                megamoe::ladder::run_case);
}
