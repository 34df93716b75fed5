#include "net/mpi/poll_pace.h"

#include "tests/support/catch.h"

using namespace clairfs;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("polling does not pause right after something happened") {
  const TimePoint start{};
  PollPace pace(start);
  CHECK(pace.pause(start) == Duration::zero());
  pace.activity(start + milliseconds(100));
  CHECK(pace.pause(start + milliseconds(100) + PollPace::kHot / 2) == Duration::zero());
}

TEST_CASE("pauses lengthen no wait by more than an eighth") {
  const TimePoint start{};
  const PollPace pace(start);
  TimePoint now = start + PollPace::kHot;
  while (now < start + milliseconds(40)) {
    const Duration pause = pace.pause(now);
    REQUIRE(pause > Duration::zero());
    REQUIRE(pause <= (now - start) / 8);
    now += pause;
  }
}

TEST_CASE("a long quiet takes few looks, and a short one not many more") {
  const TimePoint start{};
  const PollPace pace(start);
  int looks = 0;
  TimePoint now = start + PollPace::kHot;
  for (; now < start + milliseconds(40); now += pace.pause(now)) ++looks;
  CHECK(looks < 60);
  looks = 0;
  for (; now < start + milliseconds(1040); now += pace.pause(now)) ++looks;
  CHECK(looks <= 201);
}
