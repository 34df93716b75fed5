#include "plan/inference/watched/sighting.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/formats/samples/fixed_records.h"
#include "plan/formats/samples/record_table.h"
#include "tests/support/catch.h"
#include "tests/support/made_up_catalog.h"
#include "tests/unit/plan/inference/watched/kernel_reads.h"

using namespace clairfs;

namespace {

using Way = KernelReads::Way;

constexpr FileId kPacked{1};
constexpr uint64_t kHeader = 128;

/// Rows of one size in the catalog's only file, as in an npy file.
std::shared_ptr<const SampleIndex> rows_of(uint64_t bytes, uint32_t count) {
  auto rows = std::make_shared<FixedRecords>(made_up_catalog({kHeader + bytes * count}), "npy",
                                             RecordLayout{kHeader, bytes, bytes});
  rows->add(kPacked, count);
  rows->finish();
  return rows;
}

/// Samples, and how often it was asked where a piece of one is.
class CountedSamples final : public SampleIndex {
 public:
  explicit CountedSamples(std::shared_ptr<const SampleIndex> samples) : samples_(std::move(samples)) {}

  std::string_view format() const override { return samples_->format(); }
  uint32_t size() const override { return samples_->size(); }
  uint32_t range_count(uint32_t sample) const override { return samples_->range_count(sample); }
  ByteRange range(uint32_t sample, uint32_t piece) const override {
    ++asked;
    return samples_->range(sample, piece);
  }
  void samples_of(FileId file, uint64_t offset, uint64_t length,
                  const std::function<void(uint32_t sample)>& visit) const override {
    samples_->samples_of(file, offset, length, visit);
  }
  std::string path(uint32_t sample) const override { return samples_->path(sample); }
  uint64_t memory_bytes() const override { return samples_->memory_bytes(); }

  mutable uint64_t asked = 0;

 private:
  const std::shared_ptr<const SampleIndex> samples_;
};

/// What a lone READ shows.
std::optional<uint32_t> shown_by(const SampleIndex& rows, FileId file, uint64_t offset, uint64_t length) {
  return Sightings(rows).next(file, offset, length);
}

/// What the first of each record's READs show, when so many records are read in a random order.
struct Shown {
  int right = 0;
  int wrong = 0;
  int nothing = 0;
};

Shown shown_of(const SampleIndex& rows, uint64_t size, int most, Way way, uint64_t around = 128 << 10) {
  std::mt19937 random(7);
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  KernelReads kernel(size, way, around);
  Sightings sightings(rows);
  Shown shown;
  for (int i = 0; i < most; ++i) {
    const uint32_t record = order[static_cast<size_t>(i)];
    const ByteRange row = rows.range(record, 0);
    bool is_first = true;
    for (const auto& [offset, length] : kernel.touch(row.offset, row.length)) {
      const auto seen = sightings.next(kPacked, offset, length);
      if (!std::exchange(is_first, false)) continue;
      ++(!seen ? shown.nothing : *seen == record ? shown.right : shown.wrong);
    }
  }
  return shown;
}

}  // namespace

TEST_CASE("a READ of a record shows it, whether it comes as one or page by page") {
  for (const uint64_t bytes : {5001, 110'000}) {
    constexpr uint32_t kRows = 4000;
    const auto rows = rows_of(bytes, kRows);
    for (const Way way : {Way::pread, Way::page_by_page}) {
      const Shown shown = shown_of(*rows, kHeader + bytes * kRows, 100, way);
      INFO(bytes << " right " << shown.right << " wrong " << shown.wrong << " nothing " << shown.nothing);
      CHECK(shown.right >= 94);
      CHECK(shown.wrong <= 6);
    }
  }
}

TEST_CASE("of what lies around a fault the middle shows the record") {
  for (const uint64_t bytes : {5001, 110'000}) {
    for (const uint64_t around : {128 << 10, 1 << 20}) {
      const auto count = static_cast<uint32_t>((4ULL << 30) / bytes);
      const auto rows = rows_of(bytes, count);
      const Shown shown = shown_of(*rows, kHeader + bytes * count, 100, Way::around, around);
      INFO(bytes << " " << around << " right " << shown.right << " wrong " << shown.wrong);
      CHECK(shown.right >= 90);
      CHECK(shown.wrong <= 5);
    }
  }
}

// Of a hundred READs and some more, which bring the whole file.
TEST_CASE("what is left of the pages around a fault shows the record by what lies beside it") {
  const auto rows = rows_of(80'000, 1000);
  const Shown shown = shown_of(*rows, kHeader + 80'000 * 1000, 1000, Way::around, 1 << 20);
  INFO("right " << shown.right << " wrong " << shown.wrong << " nothing " << shown.nothing);
  CHECK(shown.right >= 60);
  CHECK(shown.wrong <= 5);
}

TEST_CASE("what was asked for before says at which end the pages around a fault were cut off") {
  const auto rows = rows_of(kPageSize, 2000);  // each begins in a page of its own, behind the header
  const auto asks = [](Sightings& sightings, uint64_t first, uint64_t end) {
    return sightings.next(kPacked, first * kPageSize, (end - first) * kPageSize);
  };
  Sightings sightings(*rows);
  CHECK(asks(sightings, 1000, 1128) == 1064U);
  CHECK(asks(sightings, 1128, 1200) == 1136U);  // up to half of 128 pages behind the fault
  CHECK(asks(sightings, 920, 1000) == 984U);    // from half of them before it
  CHECK(!asks(sightings, 1200, 1328));          // readahead behind what is there
  CHECK(asks(sightings, 1400, 1528) == 1464U);
  CHECK(!asks(sightings, 1328, 1400));          // cut off at both ends
  CHECK(!asks(sightings, 1600, 1660));          // a fault would have brought more
  CHECK(!asks(sightings, 0, 128));              // what lies around it begins with the file
  CHECK(asks(sightings, 1100, 1228) == 1164U);  // they were given up, and maybe what lies beside them
  CHECK(asks(sightings, 1228, 1300) == 1236U);
}

TEST_CASE("what may be of several records, or of none, shows nothing") {
  const auto rows = rows_of(110'000, 1000);
  CHECK(!shown_by(*rows, kPacked, 0, 0));
  CHECK(!shown_by(*rows, kPacked, 0, 128 << 10));                    // the header, and what lies behind it
  CHECK(!shown_by(*rows, kPacked, 400 * kPageSize, 200 << 10));      // a piece of what lies around a fault
  CHECK(!shown_by(*rows, FileId(2), 0, kPageSize));                  // another file
  CHECK(!shown_by(*rows, kPacked, 200'000 * kPageSize, kPageSize));  // behind the last
  const auto small = rows_of(1000, 100'000);
  const Shown shown = shown_of(*small, kHeader + 1000 * 100'000, 100, Way::page_by_page);
  CHECK(shown.right + shown.wrong == 0);
}

TEST_CASE("two samples of a page are looked at and no more") {
  constexpr uint64_t kPieces = 20;
  constexpr uint64_t kSamples = 100;
  RecordTableBuilder builder(made_up_catalog({1 << 20}), "hdf5");
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    REQUIRE(builder.add_sample());
    for (uint64_t piece = 0; piece < kPieces; ++piece)
      REQUIRE(builder.add_range({kPacked, piece * kPageSize + sample * 40, 40}));
  }
  const CountedSamples samples(builder.finish());
  CHECK(!shown_by(samples, kPacked, 7 * kPageSize, kPageSize));
  CHECK(samples.asked == 2 * kPieces);
}

TEST_CASE("a READ that begins within a record shows it") {
  const auto rows = rows_of(110'000, 1000);
  const uint64_t inside = round_to_pages(rows->range(500, 0).offset) + kPageSize;
  CHECK(shown_by(*rows, kPacked, inside, 8 * kPageSize) == 500U);
}

TEST_CASE("both values of a sample show it, and the page of several samples' values none") {
  const auto catalog = made_up_catalog({1 << 20});
  RecordTableBuilder builder(catalog, "lmdb");
  for (uint64_t i = 0; i < 2; ++i) {
    REQUIRE(builder.add_sample());
    REQUIRE(builder.add_range({kPacked, (10 + 10 * i) * kPageSize + 16, 9 * kPageSize}));
    REQUIRE(builder.add_range({kPacked, 50 * kPageSize + 100 * i, 50}));
  }
  REQUIRE(builder.add_sample());
  REQUIRE(builder.add_range({kPacked, 60 * kPageSize, 100}));
  REQUIRE(builder.add_range({kPacked, 60 * kPageSize + 200, 100}));
  const auto table = builder.finish();
  CHECK(shown_by(*table, kPacked, 20 * kPageSize, 10 * kPageSize) == 1U);
  CHECK(!shown_by(*table, kPacked, 50 * kPageSize, kPageSize));
  CHECK(shown_by(*table, kPacked, 60 * kPageSize, kPageSize) == 2U);
  CHECK(!shown_by(*table, kPacked, 70 * kPageSize, kPageSize));  // of the tree, say
}
