#include "cache/tasks/idle_thread.h"

#include <future>
#include <memory>

#include <sched.h>

#include "tests/support/catch.h"
#include "tests/support/eventually.h"

using namespace clairfs;

TEST_CASE("work runs when a core is idle, and is waited for") {
  int policy = -1;
  IdleThread thread("idle", [&] { policy = ::sched_getscheduler(0); });
  CHECK(thread.wait());
  CHECK(policy == SCHED_IDLE);
  thread.hurry();  // too late
  CHECK(thread.wait());
}

TEST_CASE("work that somebody waits for need not wait for an idle core") {
  int policy = -1;
  IdleThread thread(
      "idle", [&] { policy = ::sched_getscheduler(0); }, false);
  CHECK(thread.wait());
  CHECK(policy == ::sched_getscheduler(0));
}

TEST_CASE("work is waited for as long as one likes, and goes on") {
  std::promise<void> go;
  IdleThread thread("idle", [&go] { go.get_future().wait(); });
  CHECK(!thread.is_over_within(std::chrono::milliseconds(1)));
  go.set_value();
  CHECK(thread.is_over_within(std::chrono::minutes(1)));
  CHECK(thread.wait());
}

TEST_CASE("work that does not come to its end is left behind, with what it owns") {
  auto go = std::make_shared<std::promise<void>>();
  struct Owned {
    explicit Owned(AwaitedCount& its_ends) : ends(its_ends) {}
    ~Owned() { ends.raise(); }
    AwaitedCount& ends;
  };
  AwaitedCount ends;
  auto owned = std::make_shared<Owned>(ends);
  const std::weak_ptr<Owned> seen = owned;
  {
    IdleThread thread("idle", [go, owned] { go->get_future().wait(); });
    owned.reset();
    thread.hurry();
    CHECK(!thread.wait(std::chrono::milliseconds(1)));
    CHECK(!thread.wait());
    CHECK(!seen.expired());
  }
  CHECK(!seen.expired());
  go->set_value();
  CHECK(ends.reaches(1));
  CHECK(seen.expired());
}

TEST_CASE("work that is hurried while it is waited for ends as any other") {
  std::promise<void> go;
  IdleThread thread("idle", [&go] { go.get_future().wait(); });
  std::thread hurries([&] {
    thread.hurry();
    go.set_value();
  });
  CHECK(thread.wait(std::chrono::minutes(1)));
  hurries.join();
}
