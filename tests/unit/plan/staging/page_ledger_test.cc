#include "plan/staging/page_ledger.h"

#include <map>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

/// Samples of any ranges.
class MadeUpIndex final : public SampleIndex {
 public:
  explicit MadeUpIndex(std::vector<std::vector<ByteRange>> samples, uint32_t block = 1,
                       bool shares_bytes = false)
      : samples_(std::move(samples)), block_(block), shares_bytes_(shares_bytes) {}

  std::string_view format() const override { return "made-up"; }
  uint32_t size() const override { return static_cast<uint32_t>(samples_.size()); }
  uint32_t range_count(uint32_t sample) const override {
    return static_cast<uint32_t>(samples_[sample].size());
  }
  ByteRange range(uint32_t sample, uint32_t piece) const override { return samples_[sample][piece]; }
  void samples_of(FileId, uint64_t, uint64_t, const std::function<void(uint32_t)>&) const override {}
  std::string path(uint32_t sample) const override { return std::to_string(sample); }
  uint64_t memory_bytes() const override { return 0; }
  uint32_t read_block() const override { return block_; }
  bool shares_bytes() const override { return shares_bytes_; }

 private:
  const std::vector<std::vector<ByteRange>> samples_;
  const uint32_t block_;
  const bool shares_bytes_;
};

}  // namespace

TEST_CASE("a sample takes whole pages, or all up to the end of its file") {
  const auto catalog = made_up_catalog({10000, 100000});
  const FileId small(1);
  const FileId large(2);
  const MadeUpIndex index({{{small, 0, 10000}}, {{large, 5000, 3000}, {large, 20000, 1}}, {{large, 0, 0}}});
  const PageLedger ledger(index, *catalog, false);
  CHECK(ledger.pages_of(0) == std::vector<PageRange>{{small, 0, 10000}});
  CHECK(ledger.sentinel_pages(0) == std::vector<PageRange>{{small, 8192, 10000}});
  CHECK(ledger.pages_of(1) == std::vector<PageRange>{{large, 4096, 8192}, {large, 16384, 20480}});
  CHECK(ledger.sentinel_pages(1) == std::vector<PageRange>{{large, 4096, 8192}, {large, 16384, 20480}});
  CHECK(ledger.pages_of(2).empty());
  CHECK(ledger.sentinel_pages(2).empty());
}

TEST_CASE("pages may be dropped with the last use that holds them") {
  const auto catalog = made_up_catalog({10000});
  const MadeUpIndex index({{{FileId(1), 0, 10000}}, {{FileId(1), 0, 10000}}});
  PageLedger ledger(index, *catalog, false);
  ledger.hold(0);
  ledger.hold(0);
  ledger.hold(1);
  const std::vector<PageRange> all{{FileId(1), 0, 10000}};
  CHECK(ledger.release(0).empty());
  CHECK(ledger.release(0) == all);
  CHECK(ledger.release(1) == all);
  ledger.hold(0);
  CHECK(ledger.release(0) == all);
}

TEST_CASE("a page that records share may be dropped with the last of them") {
  const auto catalog = made_up_catalog({100000});
  const FileId file(1);
  // 10 KB each, end to end from byte 1000 on.
  std::vector<std::vector<ByteRange>> records;
  for (uint64_t i = 0; i < 9; ++i) records.push_back({{file, 1000 + i * 10000, 10000}});
  const MadeUpIndex index(records);
  PageLedger ledger(index, *catalog, false);
  for (const uint32_t record : {0, 1, 2}) ledger.hold(record);
  CHECK(ledger.release(1) == std::vector<PageRange>{{file, 12288, 20480}});  // 11000 to 21000
  CHECK(ledger.release(0) == std::vector<PageRange>{{file, 0, 12288}});
  CHECK(ledger.release(2) == std::vector<PageRange>{{file, 20480, 32768}});

  ledger.hold(4);
  ledger.hold(5);
  ledger.hold(4);
  CHECK(ledger.release(4).empty());
  CHECK(ledger.release(4) == std::vector<PageRange>{{file, 40960, 49152}});  // 41000 to 51000
  CHECK(ledger.release(5) == std::vector<PageRange>{{file, 49152, 61440}});
}

TEST_CASE("what rows that were compressed together share may be dropped with the last of them") {
  const auto catalog = made_up_catalog({1000000});
  const ByteRange chunk{FileId(1), 10000, 50000};
  const ByteRange next{FileId(1), 60000, 50000};
  const MadeUpIndex index({{chunk}, {chunk}, {next}}, 1, true);
  PageLedger ledger(index, *catalog, false);
  for (const uint32_t row : {0, 1, 2}) ledger.hold(row);
  CHECK(ledger.release(0).empty());
  CHECK(ledger.release(1) == std::vector<PageRange>{{FileId(1), 8192, 57344}});
  CHECK(ledger.release(2) == std::vector<PageRange>{{FileId(1), 57344, 110592}});
}

TEST_CASE("the pages of records are free once nobody holds any of them, whatever the order") {
  const uint64_t length = GENERATE(700ULL, 3000ULL, 4096ULL, 9000ULL, 40000ULL);
  const uint64_t start = GENERATE(0ULL, 128ULL);
  const uint32_t block = GENERATE(1U, 2U, 4096U, 20000U);
  const auto catalog = made_up_catalog({start + 50 * length});
  const FileId file(1);
  std::vector<std::vector<ByteRange>> records;
  for (uint64_t i = 0; i < 50; ++i) records.push_back({{file, start + i * length, length}});
  const MadeUpIndex index(records, block);
  PageLedger ledger(index, *catalog, false);
  std::map<uint64_t, int> there;  // by page: records that need it
  std::set<uint64_t> cached;
  const auto pages = [&](uint32_t record, auto&& visit) {
    for (const PageRange& range : ledger.pages_of(record)) {
      for (uint64_t at = range.begin; at < range.end; at += kPageSize) visit(at);
    }
  };
  for (uint32_t step = 0; step < 2000; ++step) {
    const uint32_t record = step * 29 % 50;
    ledger.hold(record);
    pages(record, [&](uint64_t at) { ++there[at], cached.insert(at); });
    if (step < 7) continue;
    const uint32_t old = (step - 7) * 29 % 50;
    pages(old, [&](uint64_t at) { --there[at]; });
    for (const PageRange& range : ledger.release(old)) {
      for (uint64_t at = range.begin; at < range.end; at += kPageSize) cached.erase(at);
    }
    for (const auto& [at, needed] : there) REQUIRE(cached.contains(at) == (needed > 0));
  }
}

TEST_CASE("a record's sentinel page is the first that it fills alone, and not its last") {
  const auto catalog = made_up_catalog({1000000});
  const FileId file(1);
  const MadeUpIndex index({{{file, 128, 40000}},      // to 40128
                           {{file, 40960, 40960}},    // whole pages
                           {{file, 82000, 3000}},     // to 85000: two pages, none its own
                           {{file, 90000, 10000}},    // to 100000: one page of its own in the middle
                           {{file, 110592, 4096}}});  // one page
  const PageLedger ledger(index, *catalog, false);
  const auto page = [&](uint64_t number) { return PageRange{file, number * 4096, number * 4096 + 4096}; };
  CHECK(ledger.sentinel_pages(0) == std::vector{page(1)});
  CHECK(ledger.sentinel_pages(1) == std::vector{page(10)});
  CHECK(ledger.sentinel_pages(2) == std::vector{page(20)});
  CHECK(ledger.sentinel_pages(3) == std::vector{page(22)});
  CHECK(ledger.sentinel_pages(4) == std::vector{page(27)});
}

TEST_CASE("samples stay only in a plan that keeps them all") {
  const auto catalog = made_up_catalog({10000});
  const MadeUpIndex index({{{FileId(1), 0, 10000}}});
  PageLedger window(index, *catalog, false);
  window.note_whole(0);
  CHECK_FALSE(window.stays(0));
  PageLedger all(index, *catalog, true);
  CHECK_FALSE(all.stays(0));
  all.note_whole(0);
  CHECK(all.stays(0));
}
