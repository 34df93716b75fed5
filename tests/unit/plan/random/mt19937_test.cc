#include "plan/random/mt19937.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

template <class Engine, class Draw>
std::vector<uint32_t> draws(Engine& engine, size_t count, Draw draw) {
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = draw(engine);
  return words;
}

std::vector<uint32_t> draws(Mt19937& engine, size_t count) {
  return draws(engine, count, [](Mt19937& e) { return e.next32(); });
}

}  // namespace

TEST_CASE("the words are those of std::mt19937") {
  for (const uint32_t seed : {0U, 1U, 42U, 0xffffffffU}) {
    Mt19937 ours(seed);
    std::mt19937 standard(seed);
    CHECK(draws(ours, 2000) ==
          draws(standard, 2000, [](std::mt19937& e) { return static_cast<uint32_t>(e()); }));
  }
}

TEST_CASE("init_by_array gives the first outputs of mt19937ar.out") {
  const std::vector<uint32_t> key = {0x123, 0x234, 0x345, 0x456};
  Mt19937 engine = Mt19937::from_key(key);
  CHECK(draws(engine, 5) == std::vector<uint32_t>{1067595299, 955945823, 477289528, 4107218783, 4228976476});
}

TEST_CASE("discarding is drawing") {
  for (const uint64_t skipped : {0, 1, 623, 624, 625, 1247, 1248, 1249, 100000}) {
    Mt19937 skipping(7);
    Mt19937 drawing(7);
    draws(skipping, 100);
    draws(drawing, 100 + skipped);
    skipping.discard(skipped);
    INFO(skipped);
    CHECK(draws(skipping, 1300) == draws(drawing, 1300));
  }
}

TEST_CASE("drawing until an output stops behind it") {
  for (const uint64_t at : {0, 1, 522, 523, 524, 1147, 5000}) {
    Mt19937 drawing(7);
    Mt19937 searching(7);
    draws(drawing, 100 + at);
    const uint32_t wanted = drawing.next32();
    draws(searching, 100);
    INFO(at);
    Mt19937 short_of_it = searching;
    CHECK(short_of_it.draw_until(wanted, at) == std::nullopt);
    CHECK(short_of_it.next32() == wanted);
    CHECK(searching.draw_until(wanted, at + 1) == at);
    CHECK(draws(searching, 1300) == draws(drawing, 1300));
  }
}
