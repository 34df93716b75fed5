#include "net/mpi/wind_up.h"

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

const TimePoint kStop = TimePoint{} + 1000s;

/// How many looks a thread takes that sends all it has to and comes to look every `pause`.
int lingering_looks(Duration pause, bool receiving) {
  WindUp wind_up(kStop + 1s);
  int looks = 0;
  for (TimePoint now = kStop; wind_up.lingers_on(now, receiving); now += pause) ++looks;
  return looks;
}

}  // namespace

TEST_CASE("a thread that winds up sends on until all has left, or its time is over") {
  WindUp sent(kStop + 1s);
  CHECK(sent.sends_on(kStop, false));
  CHECK(!sent.sends_on(kStop, true));
  WindUp unsent(kStop + 1s);
  for (int i = 0; i < 2 * WindUp::kLeastLooks; ++i) CHECK(unsent.sends_on(kStop + 999ms, false));
  CHECK(!unsent.sends_on(kStop + 1s, false));
}

TEST_CASE("a thread that gets no processor until its time is over sends its last words all the same") {
  WindUp wind_up(kStop + 1s);
  int looks = 0;
  for (TimePoint now = kStop + 2s; wind_up.sends_on(now, looks == 2); now += 2s) ++looks;
  CHECK(looks == 2);
  looks = 0;
  for (TimePoint now = kStop + 10s; wind_up.sends_on(now, false); now += 2s) ++looks;
  CHECK(looks == WindUp::kLeastLooks - 2);
}

TEST_CASE("a thread lingers for a few milliseconds, longer for what is being cancelled") {
  CHECK(lingering_looks(500us, false) == 20);
  CHECK(lingering_looks(500us, true) == 200);
}

TEST_CASE("a thread that gets no processor while it lingers takes as many looks as if each took a moment") {
  CHECK(lingering_looks(1s, false) == 10);
  CHECK(lingering_looks(1s, true) == 100);
}
