#include "plan/run/index_ahead.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "plan/run/index_report.h"
#include "plan/spec/keys.h"

namespace clairfs {

void IndexAhead::stop() {
  std::shared_ptr<Work> work;  // ends outside the lock
  const MutexLock lock(mutex_);
  work.swap(work_);
}

Result<std::string> IndexAhead::ask(const PlanSpec& plan) {
  if (plan.reads_streams())
    return plan_error("format", plan.format,
                      "shards that are read from front to back need no index: nothing in them is looked at");
  std::shared_ptr<Work> over;
  const MutexLock lock(mutex_);
  if (work_ && work_->making->given() == plan) {
    const auto outcome = work_->making->outcome();
    if (!outcome) return fmt::format("indexing {} %\n", work_->making->percent());
    over = std::exchange(work_, nullptr);
    if (!*outcome) return outcome->error();
    return over->report;
  }
  if (work_ && !work_->making->outcome())
    return Error{EBUSY, "another index is being made: " + format_plan(work_->making->given())};
  over = std::exchange(work_, begin(plan));
  return std::string("indexing 0 %\n");
}

std::shared_ptr<IndexAhead::Work> IndexAhead::begin(const PlanSpec& plan) const {
  auto work = std::make_shared<Work>();
  const auto finish = [this, begun = clock_.now(), &report = work->report](
                          PlanMaking& making, const Result<std::shared_ptr<PlanRun>>& made) -> Status {
    if (!made) return made.error();
    report = index_report((*made)->index(), *source_.catalog, making.work(), clock_.now() - begun);
    return {};
  };
  work->making = std::make_unique<PlanMaking>(plan, source_, place_, place_.self, finish);
  (void)work->making->start();  // its outcome says the same
  return work;
}

}  // namespace clairfs
