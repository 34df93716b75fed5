// A plan that is being made, on its own thread: to find its samples in packed files may take as long as
// reading the files. Readers do not wait for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "plan/formats/index_work.h"
#include "plan/run/plan_run.h"

namespace clairfs {

/// Thread-safe.
class PlanMaking {
 public:
  /// Called once, on the plan's thread, with what was made; says what became of the plan.
  using Finish = std::function<Status(PlanMaking& making, Result<std::shared_ptr<PlanRun>> made)>;

  /// The objects that `finish` uses outlive the making. `origin`: the node that the plan was registered on.
  /// `files`: what tells its list files from what they are once they are edited; empty: unknown.
  PlanMaking(PlanSpec given, const DatasetSource& source, JobPlace place, NodeId origin, Finish finish,
             std::string files = "");
  /// Cancels it and waits for its thread.
  ~PlanMaking() { cancel(); }
  /// Begins. Once. Errors: EAGAIN if there is no thread for it, which is its outcome then.
  Status start();
  /// It is over with this outcome: what make() says; or, instead of start(), why a plan that was in force
  /// cannot go on.
  void end(const Status& outcome);

  const PlanSpec& given() const { return given_; }
  NodeId origin() const { return origin_; }
  JobPlace place() const { return place_; }
  const std::string& files() const { return files_; }

  /// The outcome: waits for it, but no longer than `patience` for an index. Nothing: the making goes on.
  std::optional<Status> wait(Duration patience) const;
  /// The same without waiting.
  std::optional<Status> outcome() const;

  /// Of its index.
  unsigned percent() const { return work_->percent(); }
  const IndexWork& work() const { return *work_; }
  /// Its next read fails.
  void cancel() { work_->cancel(); }

 private:
  void make();

  const PlanSpec given_;
  const JobPlace place_;
  const NodeId origin_;
  const std::string files_;
  const std::shared_ptr<IndexWork> work_ = std::make_shared<IndexWork>();
  DatasetSource source_;
  const Finish finish_;
  mutable Mutex mutex_;  // leaf
  mutable CondVar ended_;
  std::optional<Status> outcome_ GUARDED_BY(mutex_);
  NamedThread thread_;  // last: ends before the others go
};

}  // namespace clairfs
