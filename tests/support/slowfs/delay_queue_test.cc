#include "tests/support/slowfs/delay_queue.h"

#include <atomic>
#include <future>
#include <memory>

#include "tests/support/catch.h"

namespace clairfs::slowfs {
namespace {

TimePoint in(std::chrono::seconds delay) {
  return SteadyClock().now() + delay;
}

/// A job whose outcome can be waited for.
struct Probe {
  std::shared_ptr<std::promise<Outcome>> promise = std::make_shared<std::promise<Outcome>>();
  std::future<Outcome> outcome = promise->get_future();
  DelayQueue::Job job() {
    return [p = promise](Outcome o) { p->set_value(o); };
  }
};

TEST_CASE("a due job overtakes those that sleep") {
  DelayQueue queue(1);
  Probe far;
  Probe near;
  queue.push(in(std::chrono::hours(1)), far.job());
  queue.push(in(std::chrono::seconds(0)), near.job());
  CHECK(near.outcome.get() == Outcome::due);
  CHECK(far.outcome.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

TEST_CASE("shut-down runs all that sleeps at once") {
  Probe held;
  Probe plain;
  {
    DelayQueue queue(2);
    queue.push(in(std::chrono::hours(1)), held.job(), 7);
    queue.push(in(std::chrono::hours(1)), plain.job());
  }
  CHECK(held.outcome.get() == Outcome::shut_down);
  CHECK(plain.outcome.get() == Outcome::shut_down);
}

TEST_CASE("held jobs are let go, by tag or all") {
  DelayQueue queue(2);
  Probe first;
  Probe second;
  Probe plain;
  queue.push(in(std::chrono::hours(1)), first.job(), 1);
  queue.push(in(std::chrono::hours(1)), second.job(), 2);
  queue.push(in(std::chrono::hours(1)), plain.job());
  queue.interrupt(1);
  CHECK(first.outcome.get() == Outcome::interrupted);
  CHECK(second.outcome.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  queue.release_held();
  CHECK(second.outcome.get() == Outcome::due);
  CHECK(plain.outcome.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

TEST_CASE("many jobs run once each") {
  std::atomic<int> ran = 0;
  {
    DelayQueue queue(8);
    Probe last;
    const TimePoint start = SteadyClock().now();
    for (int i = 0; i < 1000; ++i)
      queue.push(start + std::chrono::microseconds(10 * (i % 100)), [&](Outcome) { ++ran; });
    queue.push(start + std::chrono::milliseconds(50), last.job());
    CHECK(last.outcome.get() == Outcome::due);
  }
  CHECK(ran == 1000);
}

}  // namespace
}  // namespace clairfs::slowfs
