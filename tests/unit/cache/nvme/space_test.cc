#include "cache/nvme/space.h"

#include <algorithm>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("the smallest run that fits is taken") {
  NvmeSpace space(1000);
  space.release({0, 10});
  space.release({20, 5});
  space.release({30, 7});
  CHECK(space.allocate_run(5) == std::vector<Extent>{{20, 5}});
  CHECK(space.allocate_run(6) == std::vector<Extent>{{30, 6}});
  CHECK(space.allocate_run(11).empty());
  CHECK(space.free_slots() == 11);
}

TEST_CASE("neighbours coalesce, but never over a segment's boundary") {
  NvmeSpace space(16);
  space.release({8, 8});
  space.release({16, 8});
  CHECK(space.runs() == 2);
  space.release({4, 2});
  space.release({6, 2});
  CHECK(space.runs() == 2);
  CHECK(space.allocate_run(13).empty());
  CHECK(space.allocate_run(12) == std::vector<Extent>{{4, 12}});
}

TEST_CASE("a chunk may be scattered over a bounded number of runs") {
  NvmeSpace space(1000);
  for (uint32_t i = 0; i < 10; ++i) space.release({i * 10, 3});
  CHECK(space.allocate_run(4).empty());
  CHECK(space.allocate_runs(10, 3).empty());
  CHECK(space.allocate_runs(31, 100).empty());
  CHECK(space.free_slots() == 30);
  const auto extents = space.allocate_runs(10, 4);
  CHECK(extents.size() == 4);
  CHECK(space.free_slots() == 20);
}

TEST_CASE("a little slack keeps chunks in few runs as they replace each other") {
  constexpr uint32_t kSlots = 1 << 16;
  const bool slack = GENERATE(true, false);
  std::mt19937 random(7);
  NvmeSpace space(kSlots);
  space.release({0, kSlots});
  std::vector<std::vector<Extent>> held;
  uint64_t runs = 0;
  constexpr int kSteps = 100'000;
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t wanted = 22 + random() % 12;  // 110 KB, give or take a fifth
    while (space.free_slots() < wanted + (slack ? kSlots / kSlackDivisor : 0)) {
      std::swap(held[random() % held.size()], held.back());
      for (const Extent& e : held.back()) space.release(e);
      held.pop_back();
    }
    held.push_back(space.allocate_run(wanted));
    if (held.back().empty()) held.back() = space.allocate_runs(wanted, 64);
    REQUIRE(!held.back().empty());
    if (step >= kSteps / 2) runs += held.back().size();
  }
  const double mean = static_cast<double>(runs) / (kSteps - kSteps / 2);
  INFO("runs a chunk: " << mean);
  CHECK((slack ? mean < 4 : mean > 6));
}

TEST_CASE("random allocation agrees with a map of slots") {
  constexpr uint32_t kSlots = 256;
  std::mt19937 random(7);
  NvmeSpace space(64);
  std::vector<bool> taken(kSlots, false);
  for (uint32_t s = 0; s < kSlots; s += 64) space.release({s, 64});
  std::vector<std::vector<Extent>> held;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 || held.empty()) {
      const uint32_t wanted = 1 + random() % 20;
      auto extents = space.allocate_run(wanted);
      if (extents.empty()) extents = space.allocate_runs(wanted, 4);
      if (extents.empty()) continue;
      uint32_t got = 0;
      for (const Extent& e : extents) {
        REQUIRE(e.first / 64 == (e.first + e.count - 1) / 64);
        for (uint32_t s = e.first; s < e.first + e.count; ++s) {
          REQUIRE(!taken[s]);
          taken[s] = true;
        }
        got += e.count;
      }
      REQUIRE(got == wanted);
      held.push_back(extents);
    } else {
      std::swap(held[random() % held.size()], held.back());
      for (const Extent& e : held.back()) {
        for (uint32_t s = e.first; s < e.first + e.count; ++s) taken[s] = false;
        space.release(e);
      }
      held.pop_back();
    }
    REQUIRE(space.free_slots() == static_cast<uint64_t>(std::count(taken.begin(), taken.end(), false)));
  }
  for (const auto& extents : held) {
    for (const Extent& e : extents) space.release(e);
  }
  CHECK(space.runs() == kSlots / 64);
}
