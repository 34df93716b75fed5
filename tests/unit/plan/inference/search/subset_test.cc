// Readers of a part of a dataset that is no part of random_split(). Of a shuffled part nobody knows how many
// samples are shuffled; what of a part is read in its own order may be an order of the whole.
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"
#include "tests/support/seen_opens.h"

namespace clairfs::seen_opens {
namespace {

constexpr uint32_t kAll = 600;

Samples every(uint32_t first, uint32_t end, uint32_t step = 1) {
  Samples numbers;
  for (uint32_t number = first; number < end; number += step) numbers.push_back(number);
  return numbers;
}

/// What train_test_split(range(kAll), test_size=0.2, random_state=42) trains on.
Samples trained_on() {
  const Samples all = node_order(*resolve_plan(*parse_plan("sampler=numpy.legacy seed=42"), 1), kAll, 0, 0);
  return {all.begin() + kAll / 5, all.end()};
}

/// Of who reads Subset(dataset, part) as `text` says of so many samples.
std::optional<FoundOrder> found_of(const Samples& part, const std::string& text) {
  std::mt19937 random(40);
  const Reader reader{kAll, {1, 8, 2}, 0};
  const auto count = static_cast<uint32_t>(part.size());
  Samples order = node_order(*resolve_plan(*parse_plan(text), 1), count, 0, 0);
  for (uint32_t& sample : order) sample = part[sample];
  return watch(reader, opens_of(reader, order, 200, random));
}

}  // namespace

TEST_CASE("the order of a part that is shuffled is taken for none of the whole") {
  for (const Samples& part : {every(0, 480), every(60, 540), every(0, kAll, 2), trained_on()}) {
    for (const char* text : {"sampler=torch.distributed seed=42", "sampler=torch.random seed=42",
                             "sampler=numpy.legacy seed=42", "sampler=python.random seed=42"}) {
      INFO(text << " of " << part.size() << " from " << part.front());
      CHECK(!found_of(part, text));
    }
  }
}

TEST_CASE("a part that is read in its own order is followed where that is one of the whole") {
  const auto split = found_of(trained_on(), "sampler=torch.sequential");
  REQUIRE(split);
  CHECK(split->plan.sampler == "numpy.legacy");
  CHECK(split->plan.seed == "42");
  CHECK(split->plan.start_sample < kAll / 5 + 16);  // the part's beginning, but for batches under way
  CHECK(split->plan.epochs == 1);

  const auto other = found_of(every(0, kAll, 2), "sampler=torch.sequential");  // as one rank of two
  REQUIRE(other);
  CHECK(other->plan.world == 2);
  CHECK(node_order(other->plan, kAll, 0, other->node) == every(0, kAll, 2));

  const auto beginning = found_of(every(0, 480), "sampler=torch.sequential");
  REQUIRE(beginning);
  CHECK(beginning->plan.sampler == "torch.sequential");
  CHECK(!found_of(every(60, 540), "sampler=torch.sequential"));  // it may be any folder's
}

}  // namespace clairfs::seen_opens
