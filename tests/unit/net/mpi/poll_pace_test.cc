#include "net/mpi/poll_pace.h"

#include <algorithm>
#include <chrono>

#include "tests/support/catch.h"

using namespace clairfs;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

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
  // Each look comes when the quiet is 9/8 as long as at the one before: 45 until it is 200 times as long as
  // at the first. Pauses of a sixteenth would take twice as many.
  CHECK(looks < 60);
  looks = 0;
  for (; now < start + milliseconds(1040); now += pace.pause(now)) ++looks;
  CHECK(looks <= 201);  // the second divided by kLongPause, and the look at its end
}

TEST_CASE("a long quiet adds a hundredth of it to what comes next, and 50 ms at most") {
  const TimePoint start{};
  const PollPace pace(start);
  TimePoint now = start + milliseconds(40);
  while (now < start + seconds(5)) {
    const Duration pause = pace.pause(now);
    REQUIRE(pause >= milliseconds(5));
    REQUIRE(pause <= std::max<Duration>(milliseconds(5), (now - start) / 100));
    now += pause;
  }
  for (const Duration quiet :
       {Duration(seconds(5)), Duration(seconds(6)), Duration(std::chrono::hours(1000))})
    CHECK(pace.pause(start + quiet) == milliseconds(50));
}

TEST_CASE("a node that nobody asks for anything looks twenty times a second") {
  const TimePoint start{};
  const PollPace pace(start);
  int looks = 0;
  for (TimePoint now = start + seconds(5); now < start + seconds(15); now += pace.pause(now)) ++looks;
  CHECK(looks <= 200);
}

TEST_CASE("what happens ends a long quiet at once") {
  const TimePoint start{};
  PollPace pace(start);
  const TimePoint late = start + seconds(100);
  CHECK(pace.pause(late) == PollPace::kLongestPause);
  pace.activity(late);
  CHECK(pace.pause(late) == Duration::zero());
  CHECK(pace.pause(late + milliseconds(8)) == milliseconds(1));
}
