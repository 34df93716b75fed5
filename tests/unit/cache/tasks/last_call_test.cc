#include "cache/tasks/last_call.h"

#include <future>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

TEST_CASE("a call that was called off is not made") {
  int made = 0;
  LastCall call([&] { ++made; });
  CHECK(call.call_off(0ms));
  CHECK_FALSE(call.make());
  CHECK(made == 0);
}

TEST_CASE("whoever calls off a call waits for one that has begun, no longer than he wants to") {
  std::promise<void> begun;
  std::promise<void> end;
  LastCall call([&] {
    begun.set_value();
    end.get_future().wait();
  });
  auto made = std::async(std::launch::async, [&] { return call.make(); });
  begun.get_future().wait();
  CHECK_FALSE(call.call_off(1ms));
  end.set_value();
  CHECK(call.call_off(1h));
  CHECK(made.get());
}
