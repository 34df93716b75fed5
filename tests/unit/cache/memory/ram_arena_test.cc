#include "cache/memory/ram_arena.h"

#include <cstring>
#include <random>
#include <thread>

#include <sys/mman.h>

#include "tests/support/catch.h"
#include "tests/support/eventually.h"

using namespace clairfs;

namespace {

void fill(const Block& block, int value) {
  for (const iovec& run : block.all()) std::memset(run.iov_base, value, run.iov_len);
}

bool holds(const Block& block, int value) {
  for (const iovec& run : block.all()) {
    const auto* bytes = static_cast<const unsigned char*>(run.iov_base);
    for (size_t i = 0; i < run.iov_len; i += 512) {
      if (bytes[i] != value) return false;
    }
  }
  return true;
}

/// Bytes of the `size` ones from `begin` on.
uint64_t resident(void* begin, uint64_t size) {
  std::vector<unsigned char> pages(size / kPageSize);
  REQUIRE(::mincore(begin, size, pages.data()) == 0);
  uint64_t count = 0;
  for (const unsigned char page : pages) count += page & 1U;
  return count * kPageSize;
}

}  // namespace

TEST_CASE("an account never grants more than its capacity") {
  Gauge gauge;
  MemoryAccount account(3 * kPageSize, gauge);
  auto arena = std::move(*RamArena::create(3 * kPageSize));
  {
    auto one = arena->allocate(1, account);
    auto two = arena->allocate(kPageSize + 1, account);
    REQUIRE(one);
    REQUIRE(two);
    CHECK(two->capacity() == 2 * kPageSize);
    CHECK(account.used() == 3 * kPageSize);
    CHECK(gauge.value() == 3 * static_cast<int64_t>(kPageSize));
    CHECK(!arena->allocate(1, account));
  }
  CHECK(account.used() == 0);
  CHECK(!arena->allocate(4 * kPageSize, account));
  CHECK(arena->allocate(3 * kPageSize, account));
}

TEST_CASE("smaller units waste less") {
  Gauge gauge;
  MemoryAccount account(8 * kPageSize, gauge);
  auto arena = std::move(*RamArena::create(8 * kPageSize, kRamUnit));
  const auto odd = arena->allocate(kPageSize + 1, account);
  REQUIRE(odd);
  CHECK(odd->capacity() == kPageSize + kRamUnit);
  CHECK(account.used() == kPageSize + kRamUnit);
  std::vector<Block> rest;
  while (auto block = arena->allocate(5 * kRamUnit, account)) rest.push_back(std::move(*block));
  for (size_t i = 0; i < rest.size(); ++i) fill(rest[i], static_cast<int>(i + 1));
  for (size_t i = 0; i < rest.size(); ++i) CHECK(holds(rest[i], static_cast<int>(i + 1)));
  CHECK(rest.size() == (7 * kPageSize / kRamUnit - 1) / 5);
  // Of files of 110 KB, give or take a fifth, a quarter of a percent.
  uint64_t bytes = 0;
  uint64_t padded = 0;
  for (uint64_t length = 88'000; length <= 132'000; length += 7) {
    bytes += length;
    padded += round_to_ram_units(length);
  }
  CHECK(padded - bytes < bytes / 400);
}

TEST_CASE("slices cover exactly the bytes asked for") {
  Gauge gauge;
  MemoryAccount account(8 * kPageSize, gauge);
  auto arena = std::move(*RamArena::create(8 * kPageSize));
  auto block = arena->allocate(2 * kPageSize, account);
  REQUIRE(block);
  const auto all = block->slices(0, 5000);
  REQUIRE(all.size() == 1);
  CHECK(all[0].iov_len == 5000);
  const auto part = block->slices(4000, 200);
  CHECK(static_cast<std::byte*>(part[0].iov_base) - static_cast<std::byte*>(all[0].iov_base) == 4000);
  CHECK(block->slices(100, 0).empty());
}

TEST_CASE("free pages serve any request, whatever the order of frees") {
  constexpr uint64_t kPages = 256;
  Gauge gauge;
  MemoryAccount account(kPages * kPageSize, gauge);
  auto arena = std::move(*RamArena::create(kPages * kPageSize));
  std::mt19937 random(7);
  std::vector<std::pair<Block, int>> blocks;
  for (int step = 0; step < 5000; ++step) {
    const uint64_t pages = 1 + random() % 40;
    if (auto block = arena->allocate(pages * kPageSize, account)) {
      const int value = static_cast<int>(random() % 256);
      fill(*block, value);
      blocks.emplace_back(std::move(*block), value);
    } else {
      CHECK(account.used() + pages * kPageSize > account.capacity());
      const size_t victim = random() % blocks.size();
      REQUIRE(holds(blocks[victim].first, blocks[victim].second));
      std::vector<std::pair<Block, int>> kept;
      for (size_t i = 0; i < blocks.size(); ++i) {
        if (i != victim) kept.emplace_back(std::move(blocks[i]));
      }
      blocks = std::move(kept);
    }
  }
  for (const auto& [block, value] : blocks) CHECK(holds(block, value));
  blocks.clear();
  CHECK(account.used() == 0);
  auto whole = arena->allocate(kPages * kPageSize, account);
  REQUIRE(whole);
  CHECK(whole->all().size() == 1);  // everything coalesced again
}

TEST_CASE("memory becomes resident ahead of its use, as far as has been used") {
  constexpr uint64_t kMiB = 1 << 20;
  constexpr uint64_t kSize = 64 * kMiB;
  const auto probe = Mapping::anonymous(kPageSize);
  if (::madvise(probe->data(), kPageSize, MADV_POPULATE_WRITE) != 0) {
    WARN("skipped: needs Linux 5.14");
    return;
  }
  Gauge gauge;
  MemoryAccount account(kSize, gauge);
  auto arena = std::move(*RamArena::create(kSize));
  const auto first = arena->allocate(4 * kMiB, account);
  REQUIRE(first);
  void* const begin = first->all()[0].iov_base;
  const auto is = [&](uint64_t bytes) { return eventually([&] { return resident(begin, kSize) >= bytes; }); };
  CHECK(is(4 * kMiB));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // real time, in which more could come
  CHECK(resident(begin, kSize) <= 8 * kMiB);                   // with two huge pages that a step touches
  const auto second = arena->allocate(28 * kMiB, account);
  REQUIRE(second);
  CHECK(is(16 * kMiB));
}
