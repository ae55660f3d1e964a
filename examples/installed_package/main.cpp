// Asks an installed megamoe for its version and runs a call of two ranks without tokens, in C++.
// Prints one line.
#include <cstdio>
#include <vector>

#include <megamoe/megamoe.hpp>

int main() {
  const megamoe::Problem problem{.ranks = 2,
                                 .experts = 2,
                                 .top_k = 1,
                                 .hidden = 256,
                                 .intermediate = 128,
                                 .max_tokens_per_rank = 4,
                                 .precision = megamoe::Precision::bf16};
  const megamoe::ExpertBytes bytes =
      megamoe::expert_bytes(problem.precision, problem.hidden, problem.intermediate);
  const std::vector<std::byte> w1(bytes.w1), w2(bytes.w2);
  megamoe::ExpertTensors weights;
  weights.precision = problem.precision;
  weights.num_experts = problem.experts_per_rank();
  weights.hidden = problem.hidden;
  weights.intermediate = problem.intermediate;
  weights.w1 = w1.data();
  weights.w2 = w2.data();
  try {
    megamoe::Group group(problem, megamoe::SymmetricMemory::host(problem.ranks));
    const std::vector<megamoe::RankCall> calls(2, {.y = nullptr, .weights = &weights});
    group.forward(calls);
    std::printf("megamoe %s: %u call finished\n", megamoe::version(), group.layer(1).check().epoch);
  } catch (const megamoe::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
