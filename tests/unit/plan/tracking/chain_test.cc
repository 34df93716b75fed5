#include "plan/tracking/chain.h"

#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

// The sample's number is its position.
void identity(uint32_t sample, std::vector<uint32_t>& positions) {
  positions.push_back(sample);
}

std::vector<Sighting> numbered(const std::vector<uint32_t>& samples) {
  std::vector<Sighting> sightings;
  for (const uint32_t sample : samples) sightings.push_back({sample, sightings.size()});
  return sightings;
}

}  // namespace

TEST_CASE("few sightings tell in a long epoch, many are needed in a short one") {
  CHECK(telling_length(64, 1e-6) == 8);
  CHECK(telling_length(16, 0.01) <= 10);
  CHECK(telling_length(64, 0.3) > 40);
  CHECK(telling_length(64, 1.0) == 65);
  for (uint32_t count = 8; count < 64; ++count)
    CHECK(telling_length(count, 0.1) <= telling_length(count, 0.2));
}

TEST_CASE("a chain has an end, a high_water and a beginning") {
  const auto chain =
      find_chain(numbered({9000, 1, 500, 501, 503, 502, 504, 505, 77, 506, 507}), identity, 100000, {2, 1});
  REQUIRE(chain);
  CHECK(chain->length == 8);
  CHECK(chain->top == 507);
  CHECK(chain->second == 506);
  CHECK(chain->low == 500);
  CHECK(chain->since == 2);
}

TEST_CASE("what is no reader is no chain") {
  CHECK(!find_chain(numbered({5, 5, 5, 5, 5, 5, 5, 5, 5, 5}), identity, 100000, {2, 1}));
  CHECK(!find_chain(numbered({5, 6, 5, 6, 5, 6, 5, 6, 5, 6}), identity, 100000, {2, 1}));
  CHECK(!find_chain(numbered({90, 80, 70, 60, 50, 40, 30, 20, 10, 0}), identity, 100000, {2, 1}));
  CHECK(!find_chain(numbered({1, 2, 3, 4, 5, 6, 7}), identity, 100000, {2, 1}));
  // Over since.
  CHECK(
      !find_chain(numbered({1, 2, 3, 4, 5, 6, 7, 8, 9, 50000, 200, 7000, 90000}), identity, 100000, {2, 1}));
}

TEST_CASE("a sighting that may be of several samples is a link with whichever fits") {
  std::vector<Sighting> sightings;
  for (uint32_t i = 0; i < 10; ++i) sightings.push_back({90000 - 1000 * i, i, 0, false, {700 * i, 500 + i}});
  const auto chain = find_chain(sightings, identity, 100000, {2, 1});
  REQUIRE(chain);
  CHECK(chain->length == 10);
  CHECK(chain->low == 500);
  CHECK(chain->top == 509);
  // A sample that may be the one each time is one sample.
  for (Sighting& sighting : sightings) sighting.others = {500};
  CHECK(!find_chain(sightings, identity, 100000, {2, 1}));
}

TEST_CASE("chance makes no chain") {
  std::mt19937 random(3);
  const uint32_t others = GENERATE(0U, 3U);
  for (const uint32_t length : {200U, 1000U, 10000U, 1000000U}) {
    int found = 0;
    for (int trial = 0; trial < 500; ++trial) {
      std::vector<uint32_t> samples;
      for (size_t i = 0; i < kSightings; ++i) samples.push_back(random() % length);
      std::vector<Sighting> sightings = numbered(samples);
      for (Sighting& sighting : sightings) {
        for (uint32_t i = 0; i < others; ++i) sighting.others.push_back(random() % length);
      }
      if (find_chain(sightings, identity, length, {32, 1})) ++found;
    }
    CHECK(found == 0);
  }
}

TEST_CASE("a run is of sightings in a row, up to the newest, and goes on into the next epoch") {
  std::vector<uint32_t> samples{3, 17};
  for (uint32_t sample = 30; sample < 50; ++sample) samples.push_back(sample);
  const auto run = find_run(numbered(samples), identity, 60, 1);
  REQUIRE(run);
  CHECK(run->length == 20);
  CHECK(run->top == 49);
  CHECK(run->second == 48);
  CHECK(run->low == 30);
  CHECK(run->since == 2);
  CHECK(!find_run(numbered(samples), identity, 60, 30));  // any order is such a one
  samples.push_back(5);
  CHECK(!find_run(numbered(samples), identity, 60, 1));

  const auto of_two_epochs = [](uint32_t sample, std::vector<uint32_t>& positions) {
    positions.push_back(sample);
    positions.push_back(60 + sample);
  };
  samples.clear();
  for (uint32_t position = 50; position < 70; ++position) samples.push_back(position % 60);
  const auto over_both = find_run(numbered(samples), of_two_epochs, 120, 1);
  REQUIRE(over_both);
  CHECK(over_both->length == 20);
  CHECK(over_both->low == 50);
  CHECK(over_both->top == 69);
}

TEST_CASE("few sightings in a row are no run") {
  CHECK(!find_run(numbered({1, 2, 3, 4, 5, 6, 7}), identity, 100000, 1));
  CHECK(find_run(numbered({1, 2, 3, 4, 5, 6, 7, 8}), identity, 100000, 1));
  CHECK(!find_run({}, identity, 100000, 1));
}
