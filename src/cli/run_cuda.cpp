#include "cli/run_cuda.hpp"

#include "cli/gpu_run.hpp"
#include "cli/progress.hpp"
#include "host/devices.hpp"

namespace megamoe::cli {

std::unique_ptr<SymmetricMemory> cuda_memory(const RunRequest& request, int ranks) {
  std::vector<int> usable = find_devices().usable;
  if (request.virtual_ranks) return SymmetricMemory::cuda_virtual(ranks, usable.at(0));
  usable.resize(static_cast<std::size_t>(ranks));  // choose_backend has counted them
  return SymmetricMemory::cuda_peers(usable);
}

RunOutput call_cuda(const RunRequest& request, const RunCase& run,
                    std::unique_ptr<SymmetricMemory> memory, Io& io) {
  const KernelConfig config = wanted_config(request, run);
  GpuRun gpus(run, std::move(memory));
  const auto experts =
      static_cast<std::size_t>(gpus.group().num_local_ranks() * run.problem().experts_per_rank());
  const cuda::DeviceBuffer stats(gpus.device(0), experts * sizeof(std::int64_t));
  ForwardOptions options = forward_options(request, run, config);
  // All ranks have joined and loaded their kernels by then.
  if (request.deadline_given) options.first_deadline = request.deadline;
  options.recv_stats = reinterpret_cast<std::int64_t*>(stats.data());
  RunOutput output;
  Progress progress(io.err, io.err_is_terminal && !request.json, "calls", request.repeat);
  for (int i = 0; i < request.repeat; ++i) {
    output.times_us.push_back(gpus.call(options));
    // Statistics are those of the first call alone.
    options.recv_stats = nullptr;
    output.differs.push_back(0);
    if (i == 0) {
      output.y = gpus.y();
      report_first_call(gpus.group(), output);
      output.expert_rows.resize(experts);
      cuda::check(cudaMemcpy(output.expert_rows.data(), stats.data(),
                             experts * sizeof(std::int64_t), cudaMemcpyDefault),
                  "statistics");
    } else if (gpus.y() != output.y) {
      output.differs.back() = 1;
    }
    progress.advance();
  }
  return output;
}

}  // namespace megamoe::cli
