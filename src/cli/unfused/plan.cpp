#include "cli/unfused/plan.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "config/refuse.hpp"

namespace megamoe::cli::unfused {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// The rank of a slot's expert, or -1.
int owner_of(const Problem& p, std::int64_t id) {
  return id < 0 || id >= p.experts ? -1 : static_cast<int>(id) / p.experts_per_rank();
}

/// One slot of a token, computed at some rank.
struct Pair {
  int src_rank, token, slot;
  int expert;  ///< local
  std::int32_t input_row;
};

class Planner {
 public:
  Planner(const Problem& problem, std::span<const ref::TokenRouting> routing)
      : p_(problem),
        routing_(routing),
        plans_(index(problem.ranks)),
        pairs_(index(problem.ranks)) {}

  std::vector<RankPlan> run() {
    for (int r = 0; r < p_.ranks; ++r) begin_rank(r);
    for (int src = 0; src < p_.ranks; ++src)
      for (int dst = 0; dst < p_.ranks; ++dst) dispatch(src, dst);
    for (int r = 0; r < p_.ranks; ++r) fill_experts(r);
    for (int r = 0; r < p_.ranks; ++r) number_returned(r);
    return std::move(plans_);
  }

 private:
  void begin_rank(int rank) {
    const ref::TokenRouting& from = routing_[index(rank)];
    const std::size_t slots = index(from.num_tokens) * index(p_.top_k);
    if (from.num_tokens < 0 || from.topk_idx.size() != slots) {
      refuse(fmt::format("the routing of rank {} has {} ids for {} tokens with top_k = {}", rank,
                         from.topk_idx.size(), from.num_tokens, p_.top_k));
    }
    RankPlan& plan = plans_[index(rank)];
    plan.num_tokens = from.num_tokens;
    for (std::vector<int>* counts :
         {&plan.sent_rows, &plan.received_rows, &plan.returned_rows, &plan.gathered_rows})
      counts->assign(index(p_.ranks), 0);
    plan.contribution.assign(index(from.num_tokens) * index(p_.contributions()), kNoRow);
  }

  /// Rows of src's tokens for dst's experts. Called with src ascending for each dst, which numbers
  /// what dst receives.
  void dispatch(int src, int dst) {
    RankPlan& from = plans_[index(src)];
    RankPlan& to = plans_[index(dst)];
    const int before = to.num_tokens + total_rows(to.received_rows);
    for (int token = 0; token < from.num_tokens; ++token) {
      const std::int32_t input_row = src == dst ? token : before + from.sent_rows[index(dst)];
      if (!add_pairs(src, dst, token, input_row) || src == dst) continue;
      from.sent.push_back(token);
      ++from.sent_rows[index(dst)];
    }
    to.received_rows[index(src)] = from.sent_rows[index(dst)];
  }

  /// False if the token does not visit dst.
  bool add_pairs(int src, int dst, int token, std::int32_t input_row) {
    bool visits = false;
    std::vector<Pair>& pairs = pairs_[index(dst)];
    const std::int64_t* ids = routing_[index(src)].topk_idx.data() + index(token) * index(p_.top_k);
    for (int slot = 0; slot < p_.top_k; ++slot) {
      if (owner_of(p_, ids[slot]) != dst) continue;
      const int expert = static_cast<int>(ids[slot]) - dst * p_.experts_per_rank();
      pairs.push_back({src, token, slot, expert, input_row});
      visits = true;
    }
    for (int shared = 0; src == dst && shared < p_.shared_experts; ++shared) {
      pairs.push_back({src, token, p_.top_k + shared, p_.experts_per_rank() + shared, input_row});
    }
    return visits;
  }

  /// Orders a rank's pairs by expert, and says where their outputs go. Pairs come by source rank,
  /// token and slot: the order in which a source gets them back.
  void fill_experts(int rank) {
    RankPlan& plan = plans_[index(rank)];
    const std::vector<Pair>& pairs = pairs_[index(rank)];
    plan.expert_rows.assign(index(p_.local_experts()), 0);
    for (const Pair& pair : pairs) ++plan.expert_rows[index(pair.expert)];
    plan.expert_begin.assign(1, 0);
    for (const int rows : plan.expert_rows) {
      const int padded = (rows + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
      plan.expert_begin.push_back(plan.expert_begin.back() + padded);
    }
    plan.source.assign(index(plan.padded_rows()), kNoRow);
    plan.expert_of_row.resize(plan.source.size());
    for (int e = 0; e < p_.local_experts(); ++e) {
      std::fill_n(plan.expert_of_row.begin() + plan.expert_begin[index(e)], plan.padded_rows_of(e),
                  e);
    }
    std::vector<int> next(plan.expert_begin.begin(), plan.expert_begin.end() - 1);
    for (const Pair& pair : pairs) {
      const int row = next[index(pair.expert)]++;
      plan.source[index(row)] = pair.input_row;
      if (pair.src_rank == rank) {
        contribution_of(pair) = row;
      } else {
        plan.returned.push_back(row);
        ++plan.returned_rows[index(pair.src_rank)];
      }
    }
    for (int src = 0; src < p_.ranks; ++src)
      plans_[index(src)].gathered_rows[index(rank)] = plan.returned_rows[index(src)];
  }

  /// The output rows of those that rank `rank` returns: after the owner's expert rows and what
  /// lower ranks return.
  void number_returned(int rank) {
    std::vector<int> next;
    next.reserve(plans_.size());
    for (const RankPlan& owner : plans_) {
      next.push_back(owner.padded_rows() + std::accumulate(owner.gathered_rows.begin(),
                                                           owner.gathered_rows.begin() + rank, 0));
    }
    for (const Pair& pair : pairs_[index(rank)])
      if (pair.src_rank != rank) contribution_of(pair) = next[index(pair.src_rank)]++;
  }

  std::int32_t& contribution_of(const Pair& pair) {
    return plans_[index(pair.src_rank)]
        .contribution[index(pair.token) * index(p_.contributions()) + index(pair.slot)];
  }

  const Problem& p_;
  std::span<const ref::TokenRouting> routing_;
  std::vector<RankPlan> plans_;
  std::vector<std::vector<Pair>> pairs_;  ///< [ranks] computed there
};

}  // namespace

int total_rows(std::span<const int> counts) {
  return std::accumulate(counts.begin(), counts.end(), 0);
}

std::vector<RankPlan> make_plan(const Problem& problem,
                                std::span<const ref::TokenRouting> routing) {
  if (routing.size() != index(problem.ranks)) {
    refuse(fmt::format("routings of {} ranks for a problem of {} ranks", routing.size(),
                       problem.ranks));
  }
  return Planner(problem, routing).run();
}

}  // namespace megamoe::cli::unfused
