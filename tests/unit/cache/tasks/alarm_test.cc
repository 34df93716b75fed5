#include "cache/tasks/alarm.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("an alarm that has rung is answered once") {
  Alarm alarm;
  CHECK_FALSE(alarm.answer());
  alarm.ring();
  alarm.ring();
  CHECK(alarm.wait(std::nullopt));
  CHECK(alarm.wait(Duration::zero()));  // nothing more: the time is over
  CHECK_FALSE(alarm.answer());
  alarm.ring();
  CHECK(alarm.answer());
}

TEST_CASE("nobody waits for an alarm that has ended") {
  Alarm alarm;
  alarm.end();
  CHECK(alarm.ended());
  CHECK_FALSE(alarm.wait(std::nullopt));
}
