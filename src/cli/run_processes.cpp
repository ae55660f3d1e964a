#include <algorithm>
#include <deque>
#include <exception>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/children.hpp"
#include "cli/mailbox.hpp"
#include "cli/run_call.hpp"
#include "cli/run_cuda.hpp"
#include "host/devices.hpp"

namespace megamoe::cli {
namespace {

/// Unlike that of any other run on this machine.
std::string group_name() {
  static int count = 0;
  return fmt::format("run.{}.{}", getpid(), count++);
}

void run_rank(const RunRequest& request, const RunCase& run, const std::string& group, int rank,
              Mailbox& mailbox, Io& io) {
  // One process shows the progress of all.
  std::ostringstream nowhere;
  Io quiet{.out = nowhere, .err = nowhere};
  Io& shown = rank == 0 ? io : quiet;
  JoinOptions join;
  join.name = group;
  join.ranks = run.problem().ranks;
  join.rank = rank;
  join.deadline = join_deadline(request);
  try {
    if (request.backend == Backend::cuda) {
      const int device = find_devices().usable.at(static_cast<std::size_t>(rank));
      mailbox.put(call_cuda(request, run, SymmetricMemory::cuda_processes(join, device), shown));
    } else {
      mailbox.put(call_group(request, run, SymmetricMemory::shared(join), shown));
    }
  } catch (const Error& error) {
    mailbox.put_failure(error.code(), error.what());
  } catch (const std::exception& error) {
    mailbox.put_failure(ErrorCode::system, error.what());
  }
}

/// Throws RunFault unless every rank is done. A lost process is the cause, whatever others report;
/// next a rank that could not call, and only then the faults of those that waited.
void check_all(const std::deque<Mailbox>& mailboxes, const Children& children) {
  std::vector<std::string> reports;
  std::string lost;
  const Mailbox* first_failed = nullptr;
  for (const Mailbox& mailbox : mailboxes) {
    const auto rank = static_cast<int>(reports.size());
    std::string report;
    if (mailbox.state() == Mailbox::State::failed) {
      report = mailbox.failure_text();
      if (first_failed == nullptr || (first_failed->failure_code() == ErrorCode::fault &&
                                      mailbox.failure_code() != ErrorCode::fault))
        first_failed = &mailbox;
    } else if (mailbox.state() == Mailbox::State::empty) {
      const std::string& trouble = children.trouble(rank);
      report = fmt::format("the process of rank {} {}", rank,
                           trouble.empty() ? "ended without a report" : trouble);
      lost += (lost.empty() ? "" : "; ") + report;
    }
    reports.push_back(std::move(report));
  }
  if (lost.empty() && first_failed == nullptr) return;
  std::string message = lost;
  if (first_failed != nullptr) message += (lost.empty() ? "" : "; ") + first_failed->failure_text();
  const ErrorCode code = lost.empty() ? first_failed->failure_code() : ErrorCode::fault;
  throw RunFault(code, message, std::move(reports));
}

}  // namespace

RunOutput call_processes(const RunRequest& request, const RunCase& run, Io& io) {
  const std::string group = group_name();
  std::deque<Mailbox> mailboxes;
  for (int rank = 0; rank < run.problem().ranks; ++rank) mailboxes.emplace_back(request, run, rank);
  // Weights and tokens are there already: the processes share their pages.
  Children children(run.problem().ranks, [&](int rank) {
    run_rank(request, run, group, rank, mailboxes[static_cast<std::size_t>(rank)], io);
  });
  // Whoever still runs then waits for a rank that has ended, up to a deadline, or hangs.
  children.join(join_deadline(request) + 2 * request.deadline + std::chrono::seconds(5));
  check_all(mailboxes, children);
  RunOutput output;
  for (const Mailbox& mailbox : mailboxes) mailbox.take(output);
  return output;
}

}  // namespace megamoe::cli
