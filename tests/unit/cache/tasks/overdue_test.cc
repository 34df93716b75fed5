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

TEST_CASE("what has ended behind a task that hangs is let go of, and what has not stays") {
  GivenUp given_up;
  std::vector<std::weak_ptr<Task>> ended;
  const auto hangs = std::make_shared<Task>();
  const auto hangs_too = std::make_shared<Task>();
  OverdueThread watch("watch", 10min, [&](const OverdueThread::TaskPtr& task) { given_up.add(task); });
  watch.add(hangs);
  for (int i = 0; i < 50'000; ++i) {
    const auto task = std::make_shared<Task>();
    ended.push_back(task);
    watch.add(task);
    (void)task->take();
    if (i == 10) watch.add(hangs_too);
  }
  CHECK(std::count_if(ended.begin(), ended.end(), [](const auto& task) { return !task.expired(); }) < 5000);
  CHECK(hangs.use_count() == 2);
  CHECK(hangs_too.use_count() == 2);
}
