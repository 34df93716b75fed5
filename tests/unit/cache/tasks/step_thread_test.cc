#include "cache/tasks/step_thread.h"

#include <semaphore>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE(
    "a thread takes steps while they are busy, then when the alarm rings or it is time, and ends with it") {
  Alarm alarm;
  const SteadyClock clock;
  std::counting_semaphore<> stepped{0};
  int steps = 0;
  const std::vector<Turn> turns{{true, {}}, {false, {}}, {false, Duration(1)}, {false, {}}};
  StepThread thread("steps", alarm, clock, [&](TimePoint) {
    const Turn turn = turns[static_cast<size_t>(steps++)];
    stepped.release();
    return turn;
  });
  alarm.ring();
  stepped.acquire();  // answers the alarm
  stepped.acquire();  // was busy
  alarm.ring();
  stepped.acquire();  // answers the alarm
  stepped.acquire();  // looks again
  thread.stop();
  alarm.ring();
  CHECK(steps == 4);
  thread.stop();
}
