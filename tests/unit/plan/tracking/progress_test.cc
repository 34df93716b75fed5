#include "plan/tracking/progress.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr TimePoint kStart{std::chrono::seconds(1)};

void note_all(Progress& progress, int64_t from, int64_t to) {
  for (int64_t p = from; p < to; ++p) progress.note(p, kStart);
}

}  // namespace

TEST_CASE("safe is reorder_window before the furthest open but one") {
  Progress progress(10);
  progress.begin(100);
  CHECK(progress.next() == 100);
  CHECK(progress.safe() == 90);
  CHECK(progress.note(104, kStart) == 5);
  CHECK(progress.next() == 105);
  CHECK(progress.safe() == 90);
  CHECK(progress.note(102, kStart) == 0);
  CHECK(progress.next() == 105);
  CHECK(progress.safe() == 93);
  CHECK(progress.passed() == 5);
  CHECK(progress.longest_stray() == 2);
}

TEST_CASE("a band is reorder_window and two leaps wide") {
  Progress progress(10);
  progress.begin(100);
  CHECK(progress.band(8).low == 100 - 10 - 18);
  CHECK(progress.band(8).high == 99 + 18);
}

TEST_CASE("eight late opens in a row take the high_water back, seven do not") {
  Progress progress(4);
  progress.begin(0);
  note_all(progress, 0, 50);
  progress.note(90, kStart);  // a stray access
  note_all(progress, 50, 57);
  CHECK(progress.next() == 91);
  progress.note(57, kStart);
  CHECK(progress.next() == 58);
  CHECK(progress.safe() == 58 - 4);
}

TEST_CASE("late opens in a row of a worker that lags behind others widen reorder_window") {
  Progress progress(16);
  progress.begin(0);
  note_all(progress, 0, 60);
  note_all(progress, 68, 100);
  note_all(progress, 60, 68);
  CHECK(progress.next() == 100);
  CHECK(progress.reorder_window() == 100 - 60);
  note_all(progress, 100, 200);
  CHECK(progress.next() == 200);
  CHECK(progress.reorder_window() == 100 - 60);
}

TEST_CASE("late opens among others widen reorder_window, and each epoch takes half of it back") {
  Progress progress(4);
  progress.begin(0);
  note_all(progress, 0, 100);
  for (int64_t i = 0; i < 4; ++i) {
    progress.note(60 + i, kStart);
    progress.note(100 + i, kStart);
  }
  // The fourth open that is not late finds a score of four late ones less three quarters.
  CHECK(progress.reorder_window() == 103 - 60);
  progress.enter_epoch(105);
  CHECK(progress.reorder_window() == 4 + (43 - 4) / 2);
  CHECK(progress.planned_slack() == 4);
}

TEST_CASE("late opens widen reorder_window to an eighth of the epoch at most") {
  Progress progress(4);
  progress.begin(0);
  progress.set_epoch_length(160);
  note_all(progress, 0, 100);
  for (int64_t i = 0; i < 4; ++i) {
    progress.note(60 + i, kStart);
    progress.note(100 + i, kStart);
  }
  CHECK(progress.reorder_window() == 20);
}

TEST_CASE("the end of an epoch counts as opened when the reader is in the next") {
  Progress progress(4);
  progress.begin(0);
  progress.note(90, kStart);
  progress.note(101, kStart);
  CHECK(progress.safe() == 91 - 4);
  progress.enter_epoch(100);
  CHECK(progress.safe() == 100 - 4);
}

TEST_CASE("a reader that was found elsewhere has no past, and moves with its epoch") {
  Progress progress(4);
  progress.begin(0);
  note_all(progress, 0, 20);
  progress.jump(500, 498);
  CHECK(progress.next() == 501);
  CHECK(progress.safe() == 499 - 4);
  progress.shift(-400);
  CHECK(progress.next() == 101);
  CHECK(progress.safe() == 99 - 4);
}

TEST_CASE("the pace is that of the latest samples, whatever a pause took") {
  Progress progress(4);
  progress.begin(0);
  TimePoint now = kStart;
  for (int64_t p = 0; p < 2000; ++p) progress.note(p, now += std::chrono::milliseconds(2));
  CHECK(progress.samples_per_second() == Approx(500).epsilon(0.01));
  progress.note(2000, now += std::chrono::hours(1));
  CHECK(progress.samples_per_second() == Approx(500).epsilon(0.05));
  for (int64_t p = 2001; p < 4000; ++p) progress.note(p, now += std::chrono::milliseconds(1));
  CHECK(progress.samples_per_second() == Approx(1000).epsilon(0.01));
}

TEST_CASE("the first sample, which comes late or at once, does not stand for the pace") {
  const auto first = GENERATE(std::chrono::microseconds(100), std::chrono::microseconds(40'000));
  Progress progress(4);
  progress.begin(0);
  TimePoint now = kStart;
  progress.note(0, now);
  progress.note(1, now += first);
  for (int64_t p = 2; p <= 25; ++p) progress.note(p, now += std::chrono::milliseconds(2));
  CHECK(progress.samples_per_second() == Approx(25 / in_seconds(now - kStart)).epsilon(0.1));
}
