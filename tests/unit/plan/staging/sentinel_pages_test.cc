#include "plan/staging/sentinel_pages.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr FileId kShard(1);

PageRange page_number(uint64_t number) {
  return {kShard, number * kPageSize, (number + 1) * kPageSize};
}

SentinelOf sentinel(uint64_t position) {
  return {nullptr, static_cast<uint32_t>(100 + position), position};
}

}  // namespace

TEST_CASE("a READ of a sentinel's page tells whose it is, once") {
  SentinelPages pages;
  CHECK_FALSE(pages.take(kShard, 0, 1 << 20));
  pages.open(page_number(5), sentinel(7));
  pages.keep(page_number(5), sentinel(7), std::string(kPageSize, 'x'));
  CHECK_FALSE(pages.take(kShard, 0, 5 * kPageSize));
  CHECK_FALSE(pages.take(kShard, 6 * kPageSize, kPageSize));
  CHECK_FALSE(pages.take(FileId(2), 0, 1 << 20));
  const auto hit = pages.take(kShard, 5 * kPageSize + 100, 200);
  REQUIRE(hit);
  CHECK(hit->of == sentinel(7));
  CHECK(hit->bytes == std::string(200, 'x'));
  CHECK_FALSE(pages.take(kShard, 5 * kPageSize, kPageSize));
}

TEST_CASE("a READ of more than the page tells the same, and is answered by somebody else") {
  SentinelPages pages;
  for (const uint64_t position : {9, 3, 6}) {
    pages.open(page_number(position), sentinel(position));
    pages.keep(page_number(position), sentinel(position), std::string(kPageSize, 'x'));
  }
  const auto hit = pages.take(kShard, 0, 8 * kPageSize);
  REQUIRE(hit);
  CHECK(hit->of == sentinel(3));
  CHECK_FALSE(hit->bytes);
  CHECK_FALSE(pages.take(kShard, 6 * kPageSize, kPageSize));
  CHECK(pages.take(kShard, 9 * kPageSize, kPageSize));
}

TEST_CASE("pushes leave out what is open") {
  SentinelPages pages;
  const PageRange range{kShard, 0, 10 * kPageSize};
  CHECK(pages.without_open(range) == std::vector{range});
  pages.open(page_number(0), sentinel(1));
  pages.open(page_number(4), sentinel(2));
  pages.open(page_number(5), sentinel(3));
  CHECK(pages.without_open(range) ==
        std::vector<PageRange>{{kShard, kPageSize, 4 * kPageSize}, {kShard, 6 * kPageSize, 10 * kPageSize}});
  CHECK(pages.without_open(page_number(4)).empty());
  pages.close({kShard, 4 * kPageSize, 5 * kPageSize});
  pages.close(page_number(5), nullptr, 2);  // another's
  CHECK(pages.without_open(range) ==
        std::vector<PageRange>{{kShard, kPageSize, 5 * kPageSize}, {kShard, 6 * kPageSize, 10 * kPageSize}});
  pages.close(page_number(5), nullptr, 3);
  CHECK(pages.without_open(range) == std::vector<PageRange>{{kShard, kPageSize, 10 * kPageSize}});
}

TEST_CASE("a page that becomes another's sentinel has none of the bytes that were kept before") {
  SentinelPages pages;
  pages.open(page_number(0), sentinel(1));
  pages.keep(page_number(0), sentinel(1), std::string(kPageSize, 'x'));
  pages.open(page_number(0), sentinel(2));
  pages.keep(page_number(0), sentinel(1), std::string(kPageSize, 'x'));
  const auto hit = pages.take(kShard, 0, kPageSize);
  REQUIRE(hit);
  CHECK(hit->of == sentinel(2));
  CHECK_FALSE(hit->bytes);
}

TEST_CASE("no more than so many bytes are kept, and all pages still tell") {
  SentinelPages pages;
  constexpr uint64_t kPages = SentinelPages::kMostKept + 10;
  for (uint64_t p = 0; p < kPages; ++p) {
    pages.open(page_number(p), sentinel(p));
    pages.keep(page_number(p), sentinel(p), std::string(kPageSize, 'x'));
  }
  uint64_t kept = 0;
  for (uint64_t p = 0; p < kPages; ++p) {
    const auto hit = pages.take(kShard, p * kPageSize, kPageSize);
    REQUIRE(hit);
    kept += hit->bytes ? 1 : 0;
  }
  CHECK(kept == SentinelPages::kMostKept);
}
