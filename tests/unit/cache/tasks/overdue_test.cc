#include "cache/tasks/overdue.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cache/base/mutex.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

using Task = OverdueThread::Task;

/// What was given up.
struct GivenUp {
  void add(const OverdueThread::TaskPtr& task) {
    MutexLock lock(mutex);
    tasks.push_back(task);
  }
  bool has(const OverdueThread::TaskPtr& task) {
    MutexLock lock(mutex);
    return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
  }

  Mutex mutex;
  std::vector<OverdueThread::TaskPtr> tasks GUARDED_BY(mutex);
};

}  // namespace

TEST_CASE("what does not end is given up, once, and what ends is not") {
  GivenUp given_up;
  OverdueThread watch("watch", 1ms, [&](const OverdueThread::TaskPtr& task) { given_up.add(task); });
  const auto ends = std::make_shared<Task>();
  CHECK(ends->take());
  const auto hangs = std::make_shared<Task>();
  const auto hangs_too = std::make_shared<Task>();
  watch.add(ends);
  watch.add(hangs);
  CHECK(eventually([&] { return given_up.has(hangs); }));
  watch.add(hangs_too);
  CHECK(eventually([&] { return given_up.has(hangs_too); }));
  CHECK(!given_up.has(ends));
  CHECK(!hangs->take());
  CHECK(hangs->taken());
}

TEST_CASE("a thread that waits for what may take long ends at once") {
  GivenUp given_up;
  const auto hangs = std::make_shared<Task>();
  {
    OverdueThread watch("watch", 10min, [&](const OverdueThread::TaskPtr& task) { given_up.add(task); });
    watch.add(hangs);
  }
  CHECK(!given_up.has(hangs));
  CHECK(hangs->take());
  CHECK(hangs.use_count() == 1);
}
