// What a program that reads HDF5 files may say, and what it may not. Real files:
// tests/plan/records/test_hdf5_real.py.
#include "plan/formats/hdf5/layout.h"

#include <cerrno>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;
using namespace clairfs::hdf5;

namespace {

constexpr uint64_t kFileBytes = 1 << 20;
constexpr auto kContiguous = static_cast<uint64_t>(Storage::contiguous);
constexpr auto kChunked = static_cast<uint64_t>(Storage::chunked);
constexpr auto kCompact = static_cast<uint64_t>(Storage::compact);

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

Status say(Layout& layout, const DatasetHead& head, const std::vector<StoredChunk>& chunks = {}) {
  if (Status status = layout.take(Say::dataset, bytes_of(head)); !status) return status;
  for (const StoredChunk& chunk : chunks) {
    if (Status status = layout.take(Say::chunks, bytes_of(chunk)); !status) return status;
  }
  return {};
}

std::string reason_of(const Status& status) {
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == EINVAL);
  return status.error().message;
}

/// A dataset of one file of that size, and the samples that the layout makes of it.
std::shared_ptr<const RecordTable> table_of(const Layout& layout, const DatasetSource& source) {
  RecordTableBuilder table(source.catalog, "hdf5");
  REQUIRE(layout.add_samples(*source.catalog->find("x"), table));
  return table.finish();
}

std::vector<std::pair<uint64_t, uint64_t>> places(const SampleIndex& index, uint32_t sample) {
  std::vector<std::pair<uint64_t, uint64_t>> all;
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece)
    all.emplace_back(index.range(sample, piece).offset, index.range(sample, piece).length);
  return all;
}

using Places = std::vector<std::pair<uint64_t, uint64_t>>;

}  // namespace

TEST_CASE("hdf5: a row is what is stored of it in each dataset") {
  const TempTree tree;
  tree.write("x", kFileBytes);
  const DatasetSource source = scanned(tree);
  Layout layout(3, kFileBytes);
  REQUIRE(say(layout, {kContiguous, 5, 1000, 2048, 0}));
  REQUIRE(say(layout, {kChunked, 5, 0, 0, 2},
              {{0, 9000, 70}, {0, 8000, 90}, {2, 9500, 20}}));  // the middle block was never written
  REQUIRE(say(layout, {kCompact, 5, 0, 0, 0}));
  REQUIRE(layout.finish());
  const auto table = table_of(layout, source);
  REQUIRE(table->size() == 5);
  CHECK(places(*table, 0) == Places{{2048, 1000}, {9000, 70}, {8000, 90}});
  CHECK(places(*table, 1) == Places{{3048, 1000}, {9000, 70}, {8000, 90}});
  CHECK(places(*table, 2) == Places{{4048, 1000}});
  CHECK(places(*table, 4) == Places{{6048, 1000}, {9500, 20}});
  CHECK(table->shares_bytes());
  CHECK(table->shared_ranges().empty());
}

TEST_CASE("hdf5: libhdf5 reads on past short rows of contiguous data, and past nothing else") {
  const TempTree tree;
  tree.write("x", kFileBytes);
  const DatasetSource source = scanned(tree);
  const auto end_of_read = [&](const DatasetHead& head, const std::vector<StoredChunk>& chunks) {
    Layout layout(1, kFileBytes);
    REQUIRE(say(layout, head, chunks));
    const auto table = table_of(layout, source);
    CHECK_FALSE(table->shares_bytes());
    return table->read_end(table->range(0, 0));
  };
  CHECK(end_of_read({kContiguous, 40, 3000, 100, 0}, {}) == 100 + kSieveBytes);
  CHECK(end_of_read({kContiguous, 4, 3000, 100, 0}, {}) == 100 + 4 * 3000);
  CHECK(end_of_read({kContiguous, 4, 70000, 100, 0}, {}) == 70100);
  CHECK(end_of_read({kChunked, 1, 0, 0, 1}, {{0, 100, 3000}}) == 3100);
}

TEST_CASE("hdf5: a dataset that is small beside the others is everybody's") {
  const TempTree tree;
  tree.write("x", kFileBytes);
  const DatasetSource source = scanned(tree);
  Layout layout(3, kFileBytes);
  REQUIRE(say(layout, {kContiguous, 100, 8, 0, 0}));
  REQUIRE(say(layout, {kChunked, 100, 0, 0, 50}, {{0, 2000, 100}, {1, 2100, 100}}));
  REQUIRE(say(layout, {kContiguous, 100, 5000, 4096, 0}));
  const auto table = table_of(layout, source);
  CHECK(places(*table, 99) == Places{{4096 + 99 * 5000, 5000}});
  const auto shared = table->shared_ranges();
  REQUIRE(shared.size() == 2);
  CHECK((shared[0].offset == 0 && shared[0].length == 800));
  CHECK((shared[1].offset == 2000 && shared[1].length == 200));
}

TEST_CASE("hdf5: data that was never written has no place") {
  const TempTree tree;
  tree.write("x", kFileBytes);
  const DatasetSource source = scanned(tree);
  Layout layout(2, kFileBytes);
  REQUIRE(say(layout, {kContiguous, 3, 8, kNowhere, 0}));
  REQUIRE(say(layout, {kChunked, 3, 0, 0, 2}));
  const auto table = table_of(layout, source);
  CHECK(table->size() == 3);
  CHECK(table->range_count(2) == 0);
}

TEST_CASE("hdf5: what no file can hold is refused") {
  const auto refused = [](const DatasetHead& head, const std::vector<StoredChunk>& chunks = {}) {
    Layout layout(1, kFileBytes);
    return reason_of(say(layout, head, chunks));
  };
  CHECK(refused({7, 1, 1, 0, 0}).find("storage") != std::string::npos);
  CHECK(refused({kContiguous, UINT32_MAX, 1, 0, 0}).find("32 bits") != std::string::npos);
  CHECK(refused({kContiguous, kFileBytes + 1, 0, 0, 0}).find("rows in") != std::string::npos);
  for (const DatasetHead& head :
       {DatasetHead{kContiguous, 2, kFileBytes / 2, 1, 0}, DatasetHead{kContiguous, 4, UINT64_MAX / 2, 0, 0},
        DatasetHead{kContiguous, 1, 1, kFileBytes, 0}, DatasetHead{kContiguous, 1, 1, UINT64_MAX - 1, 0}})
    CHECK(refused(head).find("within the file") != std::string::npos);
  CHECK(refused({kChunked, 5, 0, 0, 0}).find("without rows") != std::string::npos);
  const DatasetHead chunked{kChunked, 5, 0, 0, 2};
  CHECK(refused(chunked, {{3, 0, 10}}).find("beyond") != std::string::npos);
  CHECK(refused(chunked, {{1, 0, 10}, {0, 10, 10}}).find("order") != std::string::npos);
  for (const StoredChunk& chunk : {StoredChunk{0, 0, 0}, StoredChunk{0, kFileBytes, 1},
                                   StoredChunk{0, UINT64_MAX, 2}, StoredChunk{0, 1, UINT64_MAX}})
    CHECK(refused(chunked, {chunk}).find("within the file") != std::string::npos);
  CHECK(refused(chunked, {{0, 0, kFileBytes}, {0, 0, 1}}).find("upon") != std::string::npos);
  CHECK(refused({kContiguous, 5, 1, 0, 0}, {{0, 0, 1}}).find("no dataset") != std::string::npos);
}

TEST_CASE("hdf5: rows that lie in too many chunks are refused before they are numbered") {
  constexpr uint64_t kRows = 1 << 20;
  const auto with_chunks = [](uint64_t count) {
    Layout layout(1, 2 * kRows);
    std::vector<StoredChunk> chunks(count, {0, 0, 1});
    REQUIRE(say(layout, {kChunked, kRows, 0, 0, kRows}, chunks));
    return layout.finish();
  };
  CHECK(with_chunks(kMostPieces / kRows).ok());
  CHECK_THAT(reason_of(with_chunks(1000)), Contains("1048576000 pieces") && Contains("fewer rows"));
}

TEST_CASE("hdf5: pieces of chunks are counted as they are added") {
  const TempTree tree;
  tree.write("x", kFileBytes);
  const DatasetSource source = scanned(tree);
  Layout layout(3, kFileBytes);
  REQUIRE(say(layout, {kChunked, 5, 0, 0, 2}, {{0, 0, 500}, {0, 500, 500}, {2, 1000, 500}}));
  REQUIRE(say(layout, {kChunked, 5, 0, 0, 5}, {{0, 1500, 1}}));  // small, so no part of any row
  REQUIRE(say(layout, {kCompact, 5, 0, 0, 0}));
  REQUIRE(layout.finish());
  const auto table = table_of(layout, source);
  uint64_t added = 0;
  for (uint32_t row = 0; row < table->size(); ++row) added += table->range_count(row);
  CHECK(added == 5);
  CHECK(layout.pieces() == added);
}

TEST_CASE("hdf5: messages of another length, too many and too few") {
  Layout layout(2, kFileBytes);
  CHECK(reason_of(layout.take(Say::dataset, "short")).find("message") != std::string::npos);
  CHECK(reason_of(layout.take(Say::chunks, "short")).find("message") != std::string::npos);
  CHECK(reason_of(layout.take(static_cast<Say>(99), "")).find("message") != std::string::npos);
  CHECK(reason_of(layout.take(Say::chunks, bytes_of(StoredChunk{0, 0, 1}))).find("no dataset") !=
        std::string::npos);
  REQUIRE(say(layout, {kContiguous, 5, 1, 0, 0}));
  CHECK(reason_of(layout.finish()).find("fewer") != std::string::npos);
  REQUIRE(say(layout, {kContiguous, 6, 1, 0, 0}));
  CHECK(reason_of(layout.finish()).find("5 and of 6 rows") != std::string::npos);
  CHECK(reason_of(say(layout, {kContiguous, 5, 1, 0, 0})).find("more datasets") != std::string::npos);
}
