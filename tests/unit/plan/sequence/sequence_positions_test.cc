#include "plan/sequence/sequence_positions.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("positions of samples with any numbers") {
  const std::vector<uint32_t> samples = {3'000'000'000, 5, 3'000'000'000, UINT32_MAX};
  const auto count = GENERATE(1U, 2U, 3U, 4U);
  const std::vector<uint32_t> first(samples.begin(), samples.begin() + count);
  const SequencePositions positions(std::make_shared<const EpochSequence>(Epoch(0), first, 0));
  for (const uint32_t sample : {3'000'000'000U, 5U, UINT32_MAX, 0U, 4U}) {
    std::vector<uint32_t> expected;
    for (uint32_t at = 0; at < first.size(); ++at) {
      if (first[at] == sample) expected.push_back(at);
    }
    const auto found = positions.of(sample);
    CHECK(std::vector<uint32_t>(found.begin(), found.end()) == expected);
  }
}
