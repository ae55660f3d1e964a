// The unfused chain as far as it needs no GPU: who sends what where, the bounds on its output, the
// libraries that it opens, and what the bench says about it.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/bench_result.hpp"
#include "cli/unfused/check_bounds.hpp"
#include "cli/unfused/library_file.hpp"
#include "cli/unfused/plan.hpp"
#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli::unfused {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t size(int i) { return static_cast<std::size_t>(i); }

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// What one row carries through the chain.
struct Label {
  int rank = -1;
  int token = -1;
  int expert = -1;
  bool operator==(const Label&) const = default;
};

/// What rank `dst` receives, rank after rank, as an exchange brings it.
std::vector<Label> exchanged(const std::vector<std::vector<Label>>& sent,
                             const std::vector<const std::vector<int>*>& rows_to, int dst) {
  std::vector<Label> received;
  for (std::size_t src = 0; src < sent.size(); ++src) {
    const std::vector<int>& to = *rows_to[src];
    const int first = total_rows(std::span(to).first(size(dst)));
    received.insert(received.end(), sent[src].begin() + first,
                    sent[src].begin() + first + to[size(dst)]);
  }
  return received;
}

/// Runs a chain with labels in place of rows, and returns [ranks] what each contribution is.
std::vector<std::vector<Label>> labels_through(const Problem& p,
                                               const std::vector<RankPlan>& plans) {
  std::vector<std::vector<Label>> sent(plans.size()), outputs(plans.size()), back(plans.size());
  std::vector<const std::vector<int>*> rows_to, rows_back;
  for (std::size_t r = 0; r < plans.size(); ++r) {
    for (const std::int32_t token : plans[r].sent) sent[r].push_back({static_cast<int>(r), token});
    rows_to.push_back(&plans[r].sent_rows);
    rows_back.push_back(&plans[r].returned_rows);
  }
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const RankPlan& plan = plans[r];
    std::vector<Label> inputs;
    for (int t = 0; t < plan.num_tokens; ++t) inputs.push_back({static_cast<int>(r), t});
    for (const Label& label : exchanged(sent, rows_to, static_cast<int>(r)))
      inputs.push_back(label);
    EXPECT_EQ(inputs.size(), size(plan.num_tokens + total_rows(plan.received_rows)));
    for (std::size_t row = 0; row < plan.source.size(); ++row) {
      Label label;
      if (plan.source[row] != kNoRow) label = inputs.at(size(plan.source[row]));
      const int local = plan.expert_of_row[row];
      EXPECT_GE(static_cast<int>(row), plan.expert_begin[size(local)]);
      EXPECT_LT(static_cast<int>(row), plan.expert_begin[size(local) + 1]);
      const bool shared = local >= p.experts_per_rank();
      label.expert = shared ? p.experts + local - p.experts_per_rank()
                            : static_cast<int>(r) * p.experts_per_rank() + local;
      outputs[r].push_back(label);
    }
    for (const std::int32_t row : plan.returned) back[r].push_back(outputs[r].at(size(row)));
  }
  std::vector<std::vector<Label>> contributions(plans.size());
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const std::vector<Label> gathered = exchanged(back, rows_back, static_cast<int>(r));
    EXPECT_EQ(gathered.size(), size(total_rows(plans[r].gathered_rows)));
    for (const std::int32_t row : plans[r].contribution) {
      if (row == kNoRow) {
        contributions[r].push_back({});
      } else if (row < plans[r].padded_rows()) {
        contributions[r].push_back(outputs[r].at(size(row)));
      } else {
        contributions[r].push_back(gathered.at(size(row - plans[r].padded_rows())));
      }
    }
  }
  return contributions;
}

void expect_right_contributions(const Problem& p, const std::vector<ref::TokenRouting>& routing) {
  const std::vector<RankPlan> plans = make_plan(p, routing);
  const auto contributions = labels_through(p, plans);
  for (int r = 0; r < p.ranks; ++r) {
    const ref::TokenRouting& from = routing[size(r)];
    ASSERT_EQ(contributions[size(r)].size(), size(from.num_tokens) * size(p.contributions()));
    for (int t = 0; t < from.num_tokens; ++t) {
      for (int k = 0; k < p.contributions(); ++k) {
        const std::int64_t expert =
            k < p.top_k ? from.topk_idx[size(t * p.top_k + k)] : p.experts + k - p.top_k;
        const Label expected = expert < 0 ? Label{} : Label{r, t, static_cast<int>(expert)};
        ASSERT_EQ(contributions[size(r)][size(t * p.contributions() + k)], expected)
            << "rank " << r << " token " << t << " slot " << k;
      }
    }
  }
}

TEST(UnfusedPlan, EveryContributionIsThatOfItsTokenAndExpert) {
  for (const int ranks : {1, 2, 4}) {
    for (const int shared : {0, 1}) {
      const Problem p = {.ranks = ranks,
                         .experts = 16,
                         .top_k = 4,
                         .hidden = 128,
                         .intermediate = 128,
                         .max_tokens_per_rank = 64,
                         .shared_experts = shared};
      std::vector<int> counts = {37, 0, 64, 5};
      counts.resize(size(ranks));
      for (const char* text : {"uniform", "balanced", "one-rank", "one-expert", "skewed",
                               "hot-expert", "hot-rank", "masked:0.5", "none"}) {
        SCOPED_TRACE(text);
        expect_right_contributions(p, ref::random_routing(p, counts, ref::parse_routing(text), 5));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Two ranks with two experts each: tokens 0 and 1 on rank 0, token 0 on rank 1.
std::vector<RankPlan> small_plan() {
  const Problem p = {.ranks = 2,
                     .experts = 4,
                     .top_k = 2,
                     .hidden = 128,
                     .intermediate = 128,
                     .max_tokens_per_rank = 2};
  return make_plan(p, std::vector<ref::TokenRouting>{{2, {3, 2, 0, -1}, {}}, {1, {3, 1}, {}}});
}

TEST(UnfusedPlan, SmallCaseByHand) {
  const std::vector<RankPlan> plans = small_plan();
  // Token 0 of rank 0 visits both experts of rank 1, and travels once.
  EXPECT_THAT(plans[0].sent, ElementsAre(0));
  EXPECT_THAT(plans[0].sent_rows, ElementsAre(0, 1));
  EXPECT_THAT(plans[0].received_rows, ElementsAre(0, 1));
  EXPECT_THAT(plans[0].expert_rows, ElementsAre(1, 1));
  EXPECT_THAT(plans[0].expert_begin, ElementsAre(0, 4, 8));
  EXPECT_THAT(plans[0].source, ElementsAre(1, -1, -1, -1, 2, -1, -1, -1));
  EXPECT_THAT(plans[0].returned, ElementsAre(4));
  EXPECT_THAT(plans[0].gathered_rows, ElementsAre(0, 2));
  EXPECT_THAT(plans[0].contribution, ElementsAre(8, 9, 0, -1));
  EXPECT_THAT(plans[1].source, ElementsAre(1, -1, -1, -1, 1, 0, -1, -1));
  EXPECT_THAT(plans[1].returned, ElementsAre(4, 0));
  EXPECT_THAT(plans[1].contribution, ElementsAre(5, 8));
}

TEST(UnfusedPlan, CountsAgreeBetweenRanksAndRowsArePadded) {
  const Problem p = {.ranks = 4,
                     .experts = 32,
                     .top_k = 6,
                     .hidden = 128,
                     .intermediate = 128,
                     .max_tokens_per_rank = 100};
  const auto routing = ref::random_routing(p, std::vector<int>{100, 3, 50, 77}, {}, 9);
  const std::vector<RankPlan> plans = make_plan(p, routing);
  for (std::size_t a = 0; a < 4; ++a) {
    EXPECT_EQ(plans[a].sent_rows[a], 0);
    EXPECT_EQ(plans[a].returned_rows[a], 0);
    EXPECT_EQ(size(total_rows(plans[a].sent_rows)), plans[a].sent.size());
    EXPECT_EQ(size(total_rows(plans[a].returned_rows)), plans[a].returned.size());
    for (std::size_t b = 0; b < 4; ++b) {
      EXPECT_EQ(plans[a].sent_rows[b], plans[b].received_rows[a]);
      EXPECT_EQ(plans[a].returned_rows[b], plans[b].gathered_rows[a]);
      EXPECT_LE(plans[a].sent_rows[b], plans[a].num_tokens);  // one copy per token
    }
    for (int e = 0; e < p.local_experts(); ++e) {
      EXPECT_EQ(plans[a].padded_rows_of(e) % kRowAlignment, 0);
      EXPECT_GE(plans[a].padded_rows_of(e), plans[a].expert_rows[size(e)]);
      EXPECT_LT(plans[a].padded_rows_of(e), plans[a].expert_rows[size(e)] + kRowAlignment);
    }
  }
}

TEST(UnfusedPlan, RefusesRoutingsThatDoNotFit) {
  const Problem p = {.ranks = 2,
                     .experts = 4,
                     .top_k = 2,
                     .hidden = 128,
                     .intermediate = 128,
                     .max_tokens_per_rank = 2};
  EXPECT_THAT(error_of([&] { make_plan(p, std::vector<ref::TokenRouting>(3)); }),
              AllOf(HasSubstr("3"), HasSubstr("2 ranks")));
  EXPECT_THAT(error_of([&] {
                make_plan(p, std::vector<ref::TokenRouting>{{2, {0, 1, 2}, {}}, {}});
              }),
              AllOf(HasSubstr("3 ids"), HasSubstr("2 tokens")));
}

TEST(UnfusedLibrary, SaysByNameWhatIsMissing) {
  ::unsetenv("MEGAMOE_TEST_LIBRARY");
  EXPECT_THAT(error_of([] { LibraryFile("MEGAMOE_TEST_LIBRARY", {"libnone.so.7"}); }),
              AllOf(HasSubstr("libnone.so.7"), HasSubstr("MEGAMOE_TEST_LIBRARY")));
  ::setenv("MEGAMOE_TEST_LIBRARY", "/nowhere/libother.so", 1);
  EXPECT_THAT(
      error_of([] { LibraryFile("MEGAMOE_TEST_LIBRARY", {"libm.so.6"}); }),
      AllOf(HasSubstr("MEGAMOE_TEST_LIBRARY = /nowhere/libother.so"), Not(HasSubstr("libm.so.6"))));
  ::setenv("MEGAMOE_TEST_LIBRARY", "libm.so.6", 1);
  const LibraryFile file("MEGAMOE_TEST_LIBRARY", {"libnone.so.7"});
  ::unsetenv("MEGAMOE_TEST_LIBRARY");
  double (*cosine)(double) = nullptr;
  file.find("cos", cosine);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_THAT(error_of([&] { file.find("ncclSend", cosine); }),
              AllOf(HasSubstr("libm.so.6"), HasSubstr("ncclSend")));
}

TEST(UnfusedCheck, SamplesHaveTheFirstAndTheLastToken) {
  EXPECT_THAT(sampled_tokens(0, 4), ElementsAre());
  EXPECT_THAT(sampled_tokens(3, 4), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampled_tokens(8192, 4), ElementsAre(0, 2730, 5460, 8191));
  EXPECT_THAT(sampled_tokens(9, 1), ElementsAre(0));
}

TEST(UnfusedCheck, AWrongRowIsAnErrorWithItsNumbers) {
  std::vector<std::uint16_t> exact(2 * 128);
  for (std::size_t i = 0; i < exact.size(); ++i)
    exact[i] = float_to_bf16(static_cast<float>(i % 7) - 3.0F);
  EXPECT_EQ(require_close(exact, exact, 128, {}, "itself").diff, 0);
  std::vector<std::uint16_t> wrong = exact;
  for (std::size_t i = 128; i < 256; ++i) wrong[i] = float_to_bf16(bf16_to_float(exact[i]) * 1.1F);
  EXPECT_THAT(error_of([&] { require_close(wrong, exact, 128, {}, "the reference"); }),
              AllOf(HasSubstr("the reference"), HasSubstr("row 1 "), HasSubstr("2.00e-02")));
  wrong = exact;
  wrong[5] = 0xFFFF;
  EXPECT_THAT(error_of([&] { require_close(wrong, exact, 128, {}, "the reference"); }),
              HasSubstr("differs"));
}

TEST(UnfusedCheck, BoundsAreTheLayersOrWhatTheCaseItselfIsOffBy) {
  std::vector<std::uint16_t> exact(128, float_to_bf16(1.0F));
  ref::TensorCoreOutput model{.y = exact, .doubt = {0}, .size = {0}};
  ChainBounds bounds = ChainBounds::from_case(model, exact, 128);
  EXPECT_EQ(bounds.diff, 3e-5);
  EXPECT_EQ(bounds.worst_row, 2e-2);
  for (std::uint16_t& value : model.y) value = float_to_bf16(1.03125F);
  bounds = ChainBounds::from_case(model, exact, 128);
  EXPECT_NEAR(bounds.worst_row, 2 * 0.03125, 1e-3);
  EXPECT_GT(bounds.diff, 4 * 0.03125 * 0.03125 / 2 * 0.9);
}

BenchRequest request_of(const BenchFlags& more) {
  BenchFlags flags = more;
  flags.problem.hidden = "4096";
  flags.problem.intermediate = "2048";
  flags.problem.experts = "64";
  flags.problem.top_k = "6";
  flags.problem.ranks = "2";
  flags.problem.tokens = "8,512";
  return resolve_bench(flags, {});
}

BenchFlags with_flag() {
  BenchFlags flags;
  flags.unfused = true;
  return flags;
}

BenchMeasurement with_unfused() {
  return {"NVIDIA H200",
          {{8, {180, 170}, {175, 185}, 0.75, "decode", {360, 364}, 2e-6},
           {512, {300, 310}, {310, 320}, 0.25, "prefill", {630, 640}, 3e-6}},
          "cuBLASLt 13.1.0, NCCL 2.28.9"};
}

TEST(UnfusedBench, JsonHasTheChainsTimes) {
  const BenchRequest request = request_of(with_flag());
  const auto json = nlohmann::json::parse(bench_json(request, with_unfused()));
  EXPECT_EQ(json[0]["unfused_us"], 362);
  EXPECT_EQ(json[0]["unfused_diff"], 2e-6);
  EXPECT_DOUBLE_EQ(json[0]["gain"].get<double>(), 362.0 / 180);
  EXPECT_EQ(json[1]["unfused_us"], 635);
  EXPECT_EQ(json[1]["unfused_note"], "cuBLASLt 13.1.0, NCCL 2.28.9");
}

TEST(UnfusedBench, WithoutLibrariesOurColumnsStandAlone) {
  const BenchRequest request = request_of(with_flag());
  BenchMeasurement measured = with_unfused();
  for (BenchTimes& row : measured.rows) row.unfused_us.clear();
  measured.unfused_note = "NCCL: libnccl.so.2 not found";
  const auto json = nlohmann::json::parse(bench_json(request, measured));
  EXPECT_TRUE(json[0]["unfused_us"].is_null());
  EXPECT_TRUE(json[0]["gain"].is_null());
  EXPECT_EQ(json[0]["unfused_note"], "NCCL: libnccl.so.2 not found");
  const std::string text = bench_text(request, measured);
  EXPECT_THAT(text, AllOf(HasSubstr("unfused: not timed, NCCL: libnccl.so.2 not found"),
                          Not(HasSubstr("gain"))));
  EXPECT_THAT(bench_chart(request, measured), Not(HasSubstr("unfused chain")));
}

TEST(UnfusedBench, TextAndChartHaveTheChain) {
  const BenchRequest request = request_of(with_flag());
  const std::string text = bench_text(request, with_unfused());
  EXPECT_THAT(text, AllOf(HasSubstr("unfused: cuBLASLt 13.1.0, NCCL 2.28.9"), HasSubstr("  gain"),
                          HasSubstr("2.01"), HasSubstr("  635"), HasSubstr("same ids")));
  EXPECT_THAT(bench_chart(request, with_unfused()), HasSubstr("unfused chain"));
  BenchMeasurement without = with_unfused();
  for (BenchTimes& row : without.rows) row.unfused_us.clear();
  EXPECT_THAT(bench_text(request_of({}), without), Not(HasSubstr("nfused")));
}

TEST(UnfusedBench, OtherPrecisionsAreRefused) {
  EXPECT_THAT(refusal_of({"bench", "--model", "flash", "--unfused", "--precision", "bf16"}),
              AllOf(HasSubstr("--unfused"), HasSubstr("bf16")));
}

TEST(UnfusedBench, OneSenderBringsAllTokens) {
  BenchFlags flags;
  flags.routing = "one-sender";
  const BenchRequest request = request_of(flags);
  EXPECT_THAT(request.tokens_of_ranks(512), ElementsAre(512, 0));
  EXPECT_EQ(request.routing_name(), "one-sender");
  EXPECT_THAT(request_of({}).tokens_of_ranks(512), ElementsAre(512, 512));
  const BenchRow row = bench_rows(request, with_unfused())[1];
  EXPECT_FALSE(row.mean_bound_us.has_value());
  EXPECT_GT(row.bound_us.value(), 0);
  const auto json = nlohmann::json::parse(bench_json(request, with_unfused()));
  EXPECT_EQ(json[0]["routing"], "one-sender");
}

}  // namespace
}  // namespace megamoe::cli::unfused
