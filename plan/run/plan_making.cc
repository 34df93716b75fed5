#include "plan/run/plan_making.h"

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace clairfs {
namespace {

// How often it is looked whether an index has been begun.
constexpr auto kIndexLook = std::chrono::milliseconds(20);

}  // namespace

PlanMaking::PlanMaking(PlanSpec given, const DatasetSource& source, JobPlace place, NodeId origin,
                       Finish finish, std::string files)
    : given_(std::move(given)),
      place_(place),
      origin_(origin),
      files_(std::move(files)),
      source_(source),
      finish_(std::move(finish)) {
  source_.work = work_;
}

Status PlanMaking::start() try {
  thread_ = NamedThread("plan-making", [this] { make(); });
  return {};
} catch (const std::system_error& refused) {
  const Status outcome = Error{EAGAIN, fmt::format("plan {}: {}", given_.name, no_thread(refused).message)};
  end(outcome);
  return outcome;
}

void PlanMaking::make() {
  end(finish_(*this, PlanRun::make(given_, source_, place_)));
}

void PlanMaking::end(const Status& outcome) {
  const MutexLock lock(mutex_);
  outcome_ = outcome;
  ended_.notify_all();
}

std::optional<Status> PlanMaking::outcome() const {
  const MutexLock lock(mutex_);
  return outcome_;
}

std::optional<Status> PlanMaking::wait(Duration patience) const {
  const auto patience_ends = std::chrono::steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (!outcome_) {
    if (work_->begun() && std::chrono::steady_clock::now() >= patience_ends) return std::nullopt;
    ended_.wait_for(lock, kIndexLook);
  }
  return outcome_;
}

}  // namespace clairfs
