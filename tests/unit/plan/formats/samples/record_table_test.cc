#include "plan/formats/samples/record_table.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Files f0, f1 ... of these sizes below the root, numbered from 1 on.
std::shared_ptr<const Catalog> files_of(const std::vector<uint64_t>& sizes) {
  CatalogBuilder builder("/source", 1 << 20, static_cast<uint32_t>(sizes.size()) + 1);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  for (size_t i = 0; i < sizes.size(); ++i) {
    attributes.size = sizes[i];
    builder.add(root, "f" + std::to_string(i), attributes);
  }
  return builder.finish(0, 0).value();
}

using Samples = std::vector<uint32_t>;
using Model = std::vector<std::vector<ByteRange>>;

Samples samples_at(const SampleIndex& index, FileId file, uint64_t offset, uint64_t length) {
  Samples found;
  index.samples_of(file, offset, length, [&](uint32_t sample) { found.push_back(sample); });
  return found;
}

Samples model_samples_at(const Model& model, FileId file, uint64_t offset, uint64_t length) {
  const uint64_t likely_end = offset + (offset % 4096 == 0 ? 4096 : 1);
  std::array<Samples, 3> kinds;
  for (uint32_t sample = 0; sample < model.size(); ++sample) {
    size_t kind = kinds.size();
    for (const ByteRange& r : model[sample]) {
      if (r.file != file || r.length == 0 || length == 0) continue;
      if (r.offset >= offset + length || r.offset + r.length <= offset) continue;
      kind = std::min<size_t>(kind, r.offset < offset ? 1 : r.offset < likely_end ? 0 : 2);
    }
    if (kind < kinds.size()) kinds[kind].push_back(sample);
  }
  Samples all;
  for (const Samples& of_kind : kinds) all.insert(all.end(), of_kind.begin(), of_kind.end());
  return all;
}

std::shared_ptr<const RecordTable> table_of(const std::shared_ptr<const Catalog>& catalog,
                                            const Model& model) {
  RecordTableBuilder builder(catalog, "ranges");
  for (const auto& ranges : model) {
    REQUIRE(builder.add_sample());
    for (const ByteRange& range : ranges) REQUIRE(builder.add_range(range));
  }
  return builder.finish();
}

void check_equal(const RecordTable& table, const Model& model) {
  REQUIRE(table.size() == model.size());
  for (uint32_t sample = 0; sample < table.size(); ++sample) {
    REQUIRE(table.range_count(sample) == model[sample].size());
    for (uint32_t piece = 0; piece < table.range_count(sample); ++piece) {
      const ByteRange range = table.range(sample, piece);
      const ByteRange& expected = model[sample][piece];
      REQUIRE(range.file == expected.file);
      REQUIRE(range.offset == expected.offset);
      REQUIRE(range.length == expected.length);
    }
  }
}

}  // namespace

TEST_CASE("a table of records is what was put in, whatever lies where") {
  std::mt19937 rng(GENERATE(range(0, 60)));
  const auto below = [&](uint64_t bound) { return rng() % bound; };
  std::vector<uint64_t> sizes(1 + below(4));
  for (uint64_t& size : sizes) size = below(3) == 0 ? below(3) : 20 + below(200);
  const auto catalog = files_of(sizes);
  const bool one_each = below(2) == 0;
  const bool in_order = below(3) == 0;
  const uint64_t longest = GENERATE(1, 4, 300);
  Model model(below(60));
  std::vector<uint64_t> written(sizes.size());  // in order: each range starts where the one before ended
  for (auto& ranges : model) {
    for (uint64_t left = one_each ? 1 : below(4); left > 0; --left) {
      const uint64_t f = below(sizes.size());
      const uint64_t offset = in_order ? written[f] : below(sizes[f] + 1);
      const uint64_t length = std::min(below(longest + 1), sizes[f] - offset);
      written[f] = offset + length;
      ranges.push_back({FileId(static_cast<uint32_t>(f) + 1), offset, length});
    }
  }
  const auto table = table_of(catalog, model);
  check_equal(*table, model);
  for (uint32_t f = 0; f < sizes.size(); ++f) {
    for (uint64_t offset = 0; offset < sizes[f] + 2; offset += 1 + below(5)) {
      for (const uint64_t length : {uint64_t{0}, uint64_t{1}, below(50), uint64_t{1} << 40}) {
        REQUIRE(samples_at(*table, FileId(f + 1), offset, length) ==
                model_samples_at(model, FileId(f + 1), offset, length));
      }
    }
  }
}

TEST_CASE("of the records in a READ of whole pages the likeliest is one that begins in the first") {
  Model model;
  for (uint64_t i = 0; i < 6; ++i) model.push_back(std::vector{ByteRange{FileId(1), 77 + 3000 * i, 3000}});
  const auto table = table_of(files_of({77 + 3000 * 6}), model);
  CHECK(samples_at(*table, FileId(1), 0, 4096) == Samples{0, 1});
  CHECK(samples_at(*table, FileId(1), 4096, 4096) == Samples{2, 1});
  CHECK(samples_at(*table, FileId(1), 8192, 4096) == Samples{3, 4, 2});
  CHECK(samples_at(*table, FileId(1), 8192, 8192) == Samples{3, 4, 2, 5});
  CHECK(samples_at(*table, FileId(1), 8193, 4096) == Samples{2, 3, 4});  // O_DIRECT
  CHECK(samples_at(*table, FileId(1), 9077, 4096) == Samples{3, 4});
}

TEST_CASE("a table of records takes ten bytes a record, and more only where it must") {
  constexpr uint64_t kRecord = 110'000;
  constexpr uint32_t kRecords = 100'000;
  const auto catalog = files_of({kRecord * kRecords, uint64_t{5} << 40});
  const auto bytes_a_record = [&](const std::function<void(RecordTableBuilder&, uint32_t)>& add) {
    RecordTableBuilder builder(catalog, "ranges");
    for (uint32_t i = 0; i < kRecords; ++i) add(builder, i);
    return static_cast<double>(builder.finish()->memory_bytes()) / kRecords;
  };
  const auto record = [](uint32_t i) { return ByteRange{FileId(1), i * kRecord, kRecord}; };
  CHECK(bytes_a_record([&](auto& b, uint32_t i) { REQUIRE(b.add_sample(record(i))); }) ==
        Approx(10).margin(0.1));
  CHECK(bytes_a_record([&](auto& b, uint32_t i) { REQUIRE(b.add_sample(record(kRecords - 1 - i))); }) ==
        Approx(14).margin(0.1));
  CHECK(bytes_a_record([&](auto& b, uint32_t i) {
          REQUIRE(b.add_sample(ByteRange{FileId(2), (uint64_t{1} << 40) + i, uint64_t{5} << 32}));
        }) == Approx(12).margin(0.1));
}

TEST_CASE("ranges beyond 4 GiB keep their place") {
  const auto catalog = files_of({3, uint64_t{9} << 40});
  const Model model{{{FileId(1), 3, 0}},
                    {{FileId(2), uint64_t{1} << 42, uint64_t{5} << 32}, {FileId(1), 0, 3}}};
  const auto table = table_of(catalog, model);
  check_equal(*table, model);
  CHECK(samples_at(*table, FileId(2), (uint64_t{1} << 42) + (uint64_t{5} << 32) - 1, 10) == Samples{1});
  CHECK(samples_at(*table, FileId(1), 0, 100) == Samples{1});
  CHECK(table->path(0) == "f0[0]");
  CHECK(table->path(1) == "f1[1]");
}

TEST_CASE("a range outside its file is refused, as are files beyond 256 TiB") {
  RecordTableBuilder builder(files_of({100, uint64_t{200} << 40, uint64_t{100} << 40}), "raw");
  REQUIRE(builder.add_sample());
  const auto outside = builder.add_range({FileId(1), 90, 11});
  REQUIRE(!outside);
  CHECK(outside.error().code == EINVAL);
  CHECK(outside.error().message == "11 bytes at 90 lie outside f0, which has 100");
  CHECK(!builder.add_range({FileId(1), 101, 0}));
  CHECK(!builder.add_range({FileId(1), UINT64_MAX, 2}));
  CHECK(!builder.share({FileId(1), 99, 2}));
  CHECK(builder.add_range({FileId(2), 0, 1}));
  const auto beyond = builder.add_range({FileId(3), 0, 1});
  REQUIRE(!beyond);
  CHECK(beyond.error().message.find("256 TiB") != std::string::npos);
  CHECK(builder.add_range({FileId(1), 100, 0}));
  CHECK(builder.finish()->range_count(0) == 2);
}

TEST_CASE("what is shared is merged, and belongs to no sample") {
  RecordTableBuilder builder(files_of({100, 100}), "lmdb");
  for (const ByteRange& range : {ByteRange{FileId(2), 8, 8},
                                 {FileId(1), 20, 10},
                                 {FileId(1), 0, 4},
                                 {FileId(1), 22, 3},
                                 {FileId(1), 4, 4},
                                 {FileId(1), 50, 0}}) {
    REQUIRE(builder.share(range));
  }
  builder.set_read_block(16);
  const auto table = builder.finish();
  const auto shared = table->shared_ranges();
  REQUIRE(shared.size() == 3);
  CHECK((shared[0].file == FileId(1) && shared[0].offset == 0 && shared[0].length == 8));
  CHECK((shared[1].file == FileId(1) && shared[1].offset == 20 && shared[1].length == 10));
  CHECK((shared[2].file == FileId(2) && shared[2].offset == 8 && shared[2].length == 8));
  CHECK(table->read_block() == 16);
  CHECK(table->shares_files());
  CHECK(table->size() == 0);
  CHECK(samples_at(*table, FileId(1), 0, 100).empty());
}

TEST_CASE("of short pieces readers may take more, up to the end of where they do") {
  RecordTableBuilder builder(files_of({100000, 5000}), "hdf5");
  for (const ByteRange& piece : {ByteRange{FileId(1), 100, 300},
                                 {FileId(1), 400, 1500},
                                 {FileId(1), 5800, 100},
                                 {FileId(1), 6000, 10},
                                 {FileId(2), 100, 10}})
    REQUIRE(builder.add_sample(piece));
  REQUIRE(builder.set_read_on({FileId(1), 100, 5900}, 1000));
  CHECK_FALSE(builder.set_read_on({FileId(2), 100, 5000}, 1000));
  const auto table = builder.finish();
  std::vector<uint64_t> ends;
  for (uint32_t sample = 0; sample < 5; ++sample) ends.push_back(table->read_end(table->range(sample, 0)));
  CHECK(ends == std::vector<uint64_t>{1100, 1900, 6000, 6010, 110});
  CHECK(table->read_block() == 1000);
  CHECK_FALSE(table->shares_bytes());
}

TEST_CASE("bytes that several samples have are known") {
  const auto shares = [](const std::vector<ByteRange>& ranges) {
    RecordTableBuilder builder(files_of({100, 100}), "ranges");
    for (const ByteRange& range : ranges) REQUIRE(builder.add_sample(range));
    return builder.finish()->shares_bytes();
  };
  CHECK_FALSE(shares({{FileId(1), 0, 50}, {FileId(1), 50, 50}, {FileId(2), 0, 50}}));
  CHECK_FALSE(shares({{FileId(1), 50, 50}, {FileId(1), 20, 0}, {FileId(1), 0, 50}}));
  CHECK(shares({{FileId(1), 0, 50}, {FileId(1), 0, 50}}));
  CHECK(shares({{FileId(1), 40, 5}, {FileId(1), 60, 5}, {FileId(1), 0, 50}}));
}
