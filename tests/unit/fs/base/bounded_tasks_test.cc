#include "fs/base/bounded_tasks.h"

#include <atomic>
#include <cerrno>
#include <future>
#include <semaphore>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr auto kLong = std::chrono::minutes(1);  // no healthy run takes it

}  // namespace

TEST_CASE("a bounded task is answered with what it says") {
  BoundedTasks tasks("bounded", kLong);
  std::promise<int> good;
  std::promise<int> bad;
  tasks.post([] { return Status(); }, [&](const Status& status) { good.set_value(status ? 0 : 1); });
  tasks.post(
      [] {
        return Status(Error{ENOENT, "no such thing"});
      },
      [&](const Status& status) { bad.set_value(status ? 0 : status.error().code); });
  CHECK(good.get_future().get() == 0);
  CHECK(bad.get_future().get() == ENOENT);
}

TEST_CASE("a bounded task that takes too long is answered once, and goes on") {
  std::atomic<int> answers{0};
  std::atomic<bool> ended{false};
  std::promise<int> first;
  {
    BoundedTasks tasks("bounded", std::chrono::milliseconds(1));
    std::binary_semaphore answered{0};
    tasks.post(
        [&] {
          answered.acquire();
          ended = true;
          return Status();
        },
        [&](const Status& status) {
          if (++answers == 1) first.set_value(status ? 0 : status.error().code);
          answered.release();
        });
    CHECK(first.get_future().get() == EINPROGRESS);
    // Those behind it wait in vain, and are told so too.
    std::promise<void> second;
    tasks.post([] { return Status(); }, [&](const Status&) { second.set_value(); });
    second.get_future().get();
  }
  CHECK(ended);
  CHECK(answers == 1);
}
