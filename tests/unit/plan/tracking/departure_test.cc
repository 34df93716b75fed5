#include "plan/tracking/departure.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

// Epoch 0 has sample p at position p, epoch 1 sample 100 + p.
KnownEpochs two_hundred_samples() {
  KnownEpochs epochs;
  for (const uint32_t number : {0U, 1U}) {
    std::vector<uint32_t> samples(100);
    std::iota(samples.begin(), samples.end(), 100 * number);
    auto sequence = std::make_shared<const EpochSequence>(Epoch(number), std::move(samples), 0);
    epochs.add(std::make_shared<const SequencePositions>(std::move(sequence)), uint64_t{number} * 100);
  }
  return epochs;
}

constexpr PlanPosition in_epoch_0(uint32_t position) {
  return {Epoch(0), position};
}

// An observation each of ticks [first, end), of samples of the same numbers.
std::deque<Sighting> seen_at(uint32_t first, uint32_t end) {
  std::deque<Sighting> seen;
  for (uint32_t tick = first; tick < end; ++tick) seen.push_back({tick, tick});
  return seen;
}

// Tick of the run's first observation.
uint64_t first_tick_of(const Departure& departure) {
  return departure.evidence(seen_at(0, 2000)).at(0).tick;
}

}  // namespace

TEST_CASE("a run of strays says where the reader was, what was due and what came") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  departure.begin(epochs, 142, in_epoch_0(5), 17);
  for (int times = 0; times < 3; ++times) departure.note_out_of_order();
  departure.note_in_order();
  CHECK(first_tick_of(departure) == 17);
  CHECK_FALSE(departure.divergence());
  REQUIRE(departure.first_difference());
  CHECK(departure.first_difference()->at == in_epoch_0(5));
  CHECK(departure.first_difference()->seen == 142U);
  CHECK(departure.first_difference()->out_of_order == 0);

  departure.note_suspended("why", 20, {});
  REQUIRE(departure.divergence());
  const Divergence& left = *departure.divergence();
  CHECK(left.at == in_epoch_0(5));
  CHECK(left.expected == 5U);
  CHECK(left.seen == 142U);
  CHECK(left.due == PlanPosition{Epoch(1), 42});
  CHECK(left.out_of_order == 3);
  CHECK(left.in_order == 1);
  CHECK(left.left_out == 0);
  CHECK_FALSE(left.found);
  CHECK(left.hint == "why");
}

TEST_CASE("the next run begins anew, and the first difference stays") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  departure.note_no_doubt(8);
  departure.begin(epochs, 142, in_epoch_0(5), 17);
  departure.note_out_of_order();
  departure.begin(epochs, 500, in_epoch_0(100), 90);
  departure.note_out_of_order();
  departure.note_found({Epoch(1), 7}, "there");
  REQUIRE(departure.divergence());
  const Divergence& left = *departure.divergence();
  CHECK(left.at == in_epoch_0(100));
  CHECK_FALSE(left.expected);  // at the end
  CHECK(left.seen == 500U);
  CHECK_FALSE(left.due);  // no epoch has it
  CHECK(left.out_of_order == 1);
  CHECK(left.found == PlanPosition{Epoch(1), 7});
  CHECK(left.hint == "there");
  CHECK(departure.first_difference()->at == in_epoch_0(5));
}

TEST_CASE("samples that are left out are a run of all that was seen, without another sample") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  departure.note_no_doubt(8);
  departure.begin(epochs, 142, in_epoch_0(5), 17);
  departure.note_out_of_order();
  departure.begin_left_out(epochs, in_epoch_0(60), 48);
  departure.note_suspended("why", 80, {});
  CHECK(first_tick_of(departure) == 0);
  const Divergence& left = departure.divergence().value();
  CHECK(left.at == in_epoch_0(60));
  CHECK(left.expected == 60U);
  CHECK_FALSE(left.seen);
  CHECK_FALSE(left.due);
  CHECK(left.left_out == 48);
  CHECK(left.out_of_order == 0);
}

TEST_CASE("a reader is certain to follow after eight observations in order, or when it was found") {
  Departure departure;
  CHECK_FALSE(departure.certain());
  departure.note_no_doubt(7);
  CHECK_FALSE(departure.certain());
  departure.note_no_doubt(8);
  CHECK(departure.certain());
  departure.note_suspended("why", 20, {});
  CHECK_FALSE(departure.certain());
  departure.note_found(in_epoch_0(50), "there");
  CHECK(departure.certain());
}

TEST_CASE("a reader that was not followed for certain left at the first doubt") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  departure.begin(epochs, 142, in_epoch_0(4), 5);
  departure.note_no_doubt(7);
  departure.begin(epochs, 143, in_epoch_0(9), 15);
  CHECK(departure.place() == in_epoch_0(4));
  CHECK(first_tick_of(departure) == 15);
  departure.note_no_doubt(8);
  departure.begin(epochs, 144, in_epoch_0(20), 30);
  CHECK(departure.place() == in_epoch_0(20));
  departure.begin(epochs, 145, in_epoch_0(30), 45);
  CHECK(departure.place() == in_epoch_0(30));
  // After a suspension nothing is certain again, until the reader is found.
  departure.note_suspended("why", 50, {});
  departure.begin(epochs, 146, in_epoch_0(40), 60);
  departure.begin(epochs, 147, in_epoch_0(50), 75);
  CHECK(departure.place() == in_epoch_0(40));
  departure.note_found(in_epoch_0(10), "there");
  departure.begin(epochs, 148, in_epoch_0(60), 90);
  CHECK(departure.place() == in_epoch_0(60));
}

TEST_CASE("a reader that is found three times in 256 observations is not where it was found") {
  const KnownEpochs epochs = two_hundred_samples();
  const auto third_at = [&epochs](Departure& departure, uint64_t tick) {
    departure.note_no_doubt(8);
    departure.begin(epochs, 142, in_epoch_0(10), 1000);
    departure.note_out_of_order();
    CHECK_FALSE(departure.flutters(1008));
    departure.note_found(in_epoch_0(70), "there");
    departure.begin(epochs, 143, in_epoch_0(20), 1100);
    CHECK_FALSE(departure.flutters(1108));
    departure.note_found(in_epoch_0(80), "there");
    departure.begin(epochs, 144, in_epoch_0(30), 1200);
    return departure.flutters(tick);
  };
  Departure soon;
  CHECK(third_at(soon, 1256));
  CHECK(soon.place() == in_epoch_0(10));  // of the first run, which is counted from its first stray
  CHECK(first_tick_of(soon) == 1000);
  soon.note_suspended("why", 1256, {});
  CHECK(soon.divergence()->seen == 142U);
  CHECK(soon.divergence()->out_of_order == 1);
  CHECK_FALSE(soon.divergence()->found);

  Departure later;
  CHECK_FALSE(third_at(later, 1257));
  CHECK(later.place() == in_epoch_0(30));
  CHECK(first_tick_of(later) == 1200);

  Departure at_once;
  for (const uint32_t tick : {10U, 20U}) {
    at_once.begin(epochs, 100 + tick, in_epoch_0(tick), tick - 8);
    CHECK_FALSE(at_once.flutters(tick));
    at_once.note_found(in_epoch_0(90), "there");
  }
  at_once.begin(epochs, 130, in_epoch_0(30), 22);
  CHECK(at_once.flutters(30));
  CHECK(at_once.place() == in_epoch_0(10));
  CHECK(first_tick_of(at_once) == 2);
}

TEST_CASE("why a reader left is asked for at once, and when 128 more observations were seen") {
  Departure departure;
  CHECK_FALSE(departure.wants_diagnosis(20));
  CHECK_FALSE(departure.set_hint("of no use"));  // nothing has left
  CHECK_FALSE(departure.divergence());
  departure.note_suspended("why", 20, {});
  CHECK(departure.wants_diagnosis(20));
  CHECK(departure.set_hint("why"));  // nobody knew that there is no more to say
  CHECK_FALSE(departure.wants_diagnosis(20));
  CHECK_FALSE(departure.wants_diagnosis(147));
  CHECK(departure.wants_diagnosis(148));
  CHECK_FALSE(departure.set_hint("why"));
  CHECK_FALSE(departure.wants_diagnosis(1000));
  CHECK(departure.set_hint("therefore"));
  CHECK(departure.divergence()->hint == "therefore");

  departure.note_suspended("again", 2000, {});
  CHECK(departure.divergence()->hint == "again");
  CHECK_FALSE(departure.wants_diagnosis(1999));
  CHECK(departure.wants_diagnosis(2000));
  CHECK(departure.set_hint("again"));
}

TEST_CASE("a run's observations are those that are left of it") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  CHECK(departure.evidence(seen_at(1, 5)).size() == 4);
  departure.begin(epochs, 142, in_epoch_0(5), 17);
  CHECK(departure.evidence(seen_at(1, 17)).empty());
  CHECK(departure.evidence(seen_at(1, 20)).size() == 3);
  CHECK(departure.evidence(seen_at(1, 20)).front().tick == 17);
  CHECK(departure.evidence(seen_at(30, 94)).front().tick == 30);
}

TEST_CASE("around a suspension what was seen before it is kept, and what comes then until it is enough") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  departure.begin(epochs, 142, in_epoch_0(0), 17);
  departure.note_suspended("why", 29, seen_at(1, 30));  // never followed for certain
  CHECK(departure.around_suspension().size() == 29);
  for (const Sighting& sighting : seen_at(30, 130)) departure.note_after(sighting);
  const std::vector<Sighting>& kept = departure.around_suspension();
  REQUIRE(kept.size() == kSightings);
  CHECK(kept.front().tick == 1);
  CHECK(kept.back().tick == kSightings);
}

TEST_CASE("of a reader that went another way from an epoch's beginning on, only that is kept") {
  const KnownEpochs epochs = two_hundred_samples();
  const auto first_kept = [&epochs](uint32_t position, bool certain) {
    Departure departure;
    departure.note_no_doubt(certain ? 8 : 7);
    departure.begin(epochs, 42, {Epoch(1), position}, 17);
    departure.note_suspended("why", 29, seen_at(1, 30));
    return departure.around_suspension().at(0).tick;
  };
  CHECK(first_kept(0, true) == 17);
  CHECK(first_kept(1, true) == 1);
  CHECK(first_kept(0, false) == 1);
}

TEST_CASE("a reader has left for good if it goes through files, or is seen at more samples than there are") {
  const KnownEpochs epochs = two_hundred_samples();
  Departure departure;
  departure.begin(epochs, 142, in_epoch_0(5), 17);
  departure.note_suspended("why", 29, {});
  // 125 observations may be 100 samples, some of which were looked at twice.
  CHECK_FALSE(departure.for_good(100, 17 + 125));
  CHECK(departure.for_good(100, 17 + 126));
  for (const Access kind : {Access::read, Access::read_on, Access::open}) departure.note_after(kind);
  CHECK_FALSE(departure.for_good(100, 40));
  departure.note_after(Access::read_through);
  departure.note_after(Access::read);
  CHECK(departure.for_good(100, 40));
  departure.note_found(in_epoch_0(50), "there");
  CHECK_FALSE(departure.for_good(100, 40));
}
