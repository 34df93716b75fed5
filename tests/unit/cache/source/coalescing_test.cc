#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>

#include "cache/catalog/scan.h"
#include "cache/io/memory.h"
#include "cache/source/pfs_source.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

constexpr uint32_t kMergedChunk = 64 << 10;
constexpr size_t kAtOnce = PfsOptions{}.initial_concurrency;  // operations that are submitted at once

/// Reads wait until the test ends them.
class HeldReads final : public IoBackend {
 public:
  void submit(FileRead request) override { reads.push_back(std::move(request)); }
  void submit(Transfer) override { FAIL("not for sources"); }
  const char* kind() const override { return "test"; }

  std::deque<FileRead> reads;
};

/// Stands still until the test moves it.
class MergeClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint{} + moved_.load(); }
  void move(Duration by) { moved_ = moved_.load() + by; }

 private:
  std::atomic<Duration> moved_{Duration(std::chrono::hours(1))};
};

/// A file of many chunks and a source that is busy with as many others as it takes at once.
struct MergeFixture {
  explicit MergeFixture(const PfsOptions& pfs = {}) {
    tree.write("records", 200 * kMergedChunk);
    for (size_t i = 0; i < kAtOnce; ++i) tree.write("busy" + std::to_string(i), 100);
    ScanOptions options;
    options.chunk_size = kMergedChunk;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    records = *catalog->find("records");
    source =
        std::make_unique<PfsSource>(*catalog, Fd(), io, pfs, clock, metrics, log.logger(), [](FileId) {});
    for (size_t i = 0; i < kAtOnce; ++i) fetch(*catalog->find("busy" + std::to_string(i)), 0, 100);
    REQUIRE(io.reads.size() == kAtOnce);
  }

  /// Its number in `results`.
  size_t fetch(FileId file, uint64_t offset, uint64_t length,
               Priority priority = {Priority::Kind::prefetch, 0}, bool rest = false, bool with_next = false) {
    const size_t number = results.size();
    results.emplace_back();
    memory.emplace_back(length);
    source->start({file,
                   offset,
                   length,
                   {{memory.back().data(), length}},
                   std::make_shared<Demand>(priority),
                   FetchScope::anywhere,
                   [this, number](const Fetched& result) {
                     REQUIRE(!results[number]);
                     results[number] = result ? 0 : result.error().code;
                   },
                   rest,
                   with_next});
    return number;
  }
  size_t fetch_chunk(uint64_t chunk, Priority priority = {Priority::Kind::prefetch, 0}) {
    return fetch(records, chunk * kMergedChunk, kMergedChunk, priority);
  }

  /// Ends the oldest read: with an error, or after so many bytes.
  void end(int error, uint64_t bytes = UINT64_MAX) {
    const FileRead read = std::move(io.reads.front());
    io.reads.pop_front();
    if (error != 0) return read.done(Error{error, "injected"});
    FileRead::Outcome outcome;
    outcome.bytes = std::min(bytes, total_bytes(read.memory));
    outcome.stamp = catalog->stamp(*catalog->find(read.path));
    read.done(std::move(outcome));
  }
  /// So that the source has room for what waits.
  void end_busy() {
    while (io.reads.front().path != "records") end(0);
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  MergeClock clock;
  HeldReads io;
  std::shared_ptr<const Catalog> catalog;
  FileId records;
  std::unique_ptr<PfsSource> source;
  std::deque<std::vector<char>> memory;
  std::deque<std::optional<int>> results;  // errno; 0: read
};

}  // namespace

TEST_CASE("neighbouring fetches that wait are one operation, into the memory of each") {
  MergeFixture f;
  const uint64_t reads = f.metrics.pfs_reads.value();
  const size_t first = f.fetch_chunk(4);
  f.fetch_chunk(3);
  f.fetch_chunk(5);
  const size_t lone = f.fetch_chunk(7);
  f.end_busy();
  REQUIRE(f.io.reads.size() == 2);
  CHECK(f.metrics.pfs_reads.value() == reads + 2);
  CHECK(f.metrics.pfs_in_flight.value() == 2);
  const FileRead& read = f.io.reads.front();
  CHECK(read.offset == 3 * kMergedChunk);
  REQUIRE(read.memory.size() == 3);
  CHECK(read.memory[0].iov_base == f.memory[first + 1].data());
  CHECK(read.memory[1].iov_base == f.memory[first].data());
  CHECK(read.memory[2].iov_base == f.memory[first + 2].data());
  f.end(0);
  for (size_t i = first; i < lone; ++i) CHECK(f.results[i] == 0);
  CHECK(!f.results[lone]);
  f.end(0);
  CHECK(f.results[lone] == 0);
  CHECK(f.metrics.pfs_bytes.value() == kAtOnce * 100 + 4 * kMergedChunk);
  CHECK(f.metrics.pfs_in_flight.value() == 0);
}

TEST_CASE("a source that does not merge reads each fetch by itself") {
  PfsOptions pfs;
  pfs.merge = false;
  MergeFixture f(pfs);
  for (const uint64_t chunk : {3, 4, 5}) f.fetch_chunk(chunk);
  f.end_busy();
  CHECK(f.io.reads.size() == 3);
  while (!f.io.reads.empty()) f.end(0);
}

TEST_CASE("what is asked of a source that is not busy is read at once") {
  MergeFixture f;
  while (!f.io.reads.empty()) f.end(0);
  for (uint64_t chunk = 0; chunk < 4; ++chunk) f.fetch_chunk(chunk);
  CHECK(f.io.reads.size() == 4);
  while (!f.io.reads.empty()) f.end(0);
}

TEST_CASE("what is asked for together is read together, also by a source that is not busy") {
  MergeFixture f;
  while (!f.io.reads.empty()) f.end(0);
  f.source->gather();
  for (const uint64_t chunk : {0, 2, 1, 5}) f.fetch_chunk(chunk);
  CHECK(f.io.reads.empty());
  f.source->gathered();
  REQUIRE(f.io.reads.size() == 2);
  CHECK(f.io.reads[0].memory.size() == 3);
  CHECK(f.io.reads[1].memory.size() == 1);
  f.fetch_chunk(7);
  CHECK(f.io.reads.size() == 3);
  while (!f.io.reads.empty()) f.end(0);
}

TEST_CASE("where only fills wait, a source that is idle gets more of them at once") {
  MergeFixture f;
  while (!f.io.reads.empty()) f.end(0);
  for (uint64_t chunk = 0; chunk < 200; chunk += 2) f.fetch_chunk(chunk, {Priority::Kind::background, chunk});
  CHECK(f.io.reads.size() == FillLimit::kLeast);
  size_t most = 0;
  while (!f.io.reads.empty()) {
    const size_t at_once = f.io.reads.size();
    most = std::max(most, at_once);
    f.clock.move(std::chrono::milliseconds(1));
    for (size_t i = 0; i < at_once; ++i) f.end(0);
  }
  CHECK(most > PfsOptions{}.least_concurrency);
}

TEST_CASE("a reader, a whole file and what was kept for long do not wait for neighbours to come") {
  PfsOptions pfs;
  pfs.stuck = std::chrono::hours(1);  // else the source's own thread looks, too
  MergeFixture f(pfs);
  while (!f.io.reads.empty()) f.end(0);
  f.source->gather();
  const size_t kept = f.fetch_chunk(0, {Priority::Kind::prefetch, 1});
  CHECK(f.io.reads.empty());
  f.fetch(*f.catalog->find("busy0"), 0, 100, {Priority::Kind::prefetch, 0});
  CHECK(f.io.reads.size() == 1);
  f.fetch_chunk(5, {});
  REQUIRE(f.io.reads.size() == 2);
  CHECK(f.io.reads[1].offset == 5 * kMergedChunk);
  f.clock.move(std::chrono::seconds(1));
  f.fetch_chunk(9);
  CHECK(f.io.reads.size() == 4);
  while (!f.io.reads.empty()) f.end(0);
  CHECK(f.results[kept] == 0);
}

TEST_CASE("twice as many operations do not pay that bring no more than fewer larger ones did") {
  PfsOptions pfs;
  pfs.stuck = std::chrono::hours(1);  // else the source's own thread looks, too
  MergeFixture f(pfs);
  for (uint64_t chunk = 0; chunk < 20; ++chunk) {
    if (chunk % 5 != 4) f.fetch_chunk(chunk);
  }
  for (uint64_t chunk = 30; chunk < 100; chunk += 2) f.fetch_chunk(chunk);
  const auto end_after = [&](Duration took) {
    f.clock.move(took);
    for (size_t i = 0; i < kAtOnce; ++i) f.end(0);
  };
  end_after({});  // the busy ones, which say nothing of the limit
  REQUIRE(f.io.reads.size() == kAtOnce);
  for (const FileRead& read : f.io.reads) REQUIRE(read.memory.size() == 4);
  // A source that needs 2.5 ms for each fetch, whatever is under way.
  end_after(std::chrono::milliseconds(40));
  REQUIRE(f.io.reads.size() == 2 * kAtOnce);  // it is tried
  for (const int milliseconds : {20, 0, 20}) {
    CHECK(f.io.reads.back().memory.size() == 1);
    end_after(std::chrono::milliseconds(milliseconds));
  }
  CHECK(static_cast<size_t>(f.metrics.pfs_concurrency.value()) == 2 * kAtOnce);  // in vain
  while (!f.io.reads.empty()) f.end(0);
}

TEST_CASE("a large operation of neighbours takes two places, so that others wait and are read together") {
  constexpr uint64_t kRun = FetchQueue::kMostBytes / kMergedChunk / 2 + 1;
  PfsOptions pfs;
  pfs.stuck = std::chrono::hours(1);  // else the source's own thread looks, too
  MergeFixture f(pfs);
  for (uint64_t run = 0; run < kAtOnce; ++run) {
    for (uint64_t chunk = 0; chunk < kRun; ++chunk) f.fetch_chunk(run * (kRun + 1) + chunk);
  }
  f.end_busy();
  for (size_t ended = 0; ended < 3; ++ended) {
    REQUIRE(f.io.reads.size() == kAtOnce / 2);
    for (const FileRead& read : f.io.reads) CHECK(read.memory.size() == kRun);
    f.end(0);
    if (ended == 1) f.fetch_chunk(100 + kRun);
  }
  CHECK(f.io.reads.size() == 2);  // the last large one, and the small one
  while (!f.io.reads.empty()) f.end(0);
}

TEST_CASE("of a merged read that ends early each fetch has what there is of it") {
  MergeFixture f;
  const size_t first = f.fetch_chunk(0);
  f.fetch_chunk(1);
  f.fetch_chunk(2);
  f.end_busy();
  REQUIRE(f.io.reads.size() == 1);
  f.end(0, kMergedChunk + 10);
  CHECK(f.results[first] == 0);
  CHECK(f.results[first + 1] == ESTALE);
  CHECK(f.results[first + 2] == ESTALE);
  CHECK(!f.source->troubles().stale.empty());
  CHECK(f.source->troubles().failed.empty());
}

TEST_CASE("where a merged read fails each fetch is repeated by itself") {
  MergeFixture f;
  const size_t first = f.fetch_chunk(0);
  f.fetch_chunk(1);
  f.fetch_chunk(2);
  f.end_busy();
  f.end(EIO);
  REQUIRE(f.io.reads.size() == 3);
  CHECK(!f.results[first]);
  f.end(0);
  f.end(EIO);
  f.end(0);
  CHECK(f.results[first] == 0);
  CHECK(f.results[first + 1] == EIO);
  CHECK(f.results[first + 2] == 0);
  CHECK(f.metrics.pfs_errors.value() == 1);
  CHECK_THAT(f.source->troubles().failed, Contains("(Input/output error)"));
  CHECK(f.io.reads.empty());
}

TEST_CASE("a merged read without a descriptor waits as one, and after stop() each fetch fails") {
  MergeFixture f;
  const size_t first = f.fetch_chunk(0);
  f.fetch_chunk(1);
  f.end(0);
  REQUIRE(f.io.reads.back().memory.size() == 2);
  std::rotate(f.io.reads.begin(), f.io.reads.end() - 1, f.io.reads.end());
  f.end(EMFILE);
  CHECK(f.metrics.pfs_errors.value() == 0);
  f.end_busy();
  REQUIRE(f.io.reads.size() == 1);
  CHECK(f.io.reads.front().memory.size() == 2);
  f.source->stop();
  f.end(EIO);
  CHECK(f.results[first] == EIO);
  CHECK(f.results[first + 1] == EIO);
}

TEST_CASE("stop() cancels what waits to be merged") {
  MergeFixture f;
  const size_t first = f.fetch_chunk(0);
  f.fetch_chunk(1);
  f.source->stop();
  CHECK(f.results[first] == ECANCELED);
  CHECK(f.results[first + 1] == ECANCELED);
  while (!f.io.reads.empty()) f.end(0);
}

TEST_CASE("merged reads of several threads bring the file's bytes, while priorities rise") {
  TempTree tree;
  constexpr uint64_t kPiece = 10'000;
  constexpr size_t kPieces = 400;
  tree.write("records", kPieces * kPiece);
  std::ifstream file(tree.path() + "/records", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock;
  ScanOptions options;
  options.chunk_size = kMergedChunk;
  const auto catalog = *scan_catalog(tree.path(), options, log.logger());
  const FileId records = *catalog->find("records");
  PfsOptions few;
  few.initial_concurrency = few.most_concurrency = 2;
  std::vector<std::string> got(kPieces, std::string(kPiece, '\0'));
  AwaitedCount read;
  const auto io = std::move(*make_io_backend({IoKind::threads, 4, "test-io"}, log.logger()));
  PfsSource source(*catalog, Fd(::open(tree.path().c_str(), O_PATH | O_DIRECTORY)), *io, few, clock, metrics,
                   log.logger(), [](FileId) {});
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < kPieces; i += 4) {
        const auto demand = std::make_shared<Demand>(Priority{Priority::Kind::background, i});
        source.start({records,
                      i * kPiece,
                      kPiece,
                      {{got[i].data(), kPiece}},
                      demand,
                      FetchScope::anywhere,
                      [&](const Fetched& result) {
                        if (result) read.raise();
                      }});
        if (i % 3 == 0 && demand->raise({})) source.demand_changed(*demand);
      }
    });
  }
  threads.clear();
  CHECK(read.reaches(kPieces));
  size_t wrong = 0;
  for (size_t i = 0; i < kPieces; ++i) wrong += got[i] != bytes.substr(i * kPiece, kPiece) ? 1 : 0;
  CHECK(wrong == 0);
  CHECK(metrics.pfs_reads.value() <= kPieces);  // how many meet in the queue is a matter of timing
  CHECK(metrics.pfs_bytes.value() == kPieces * kPiece);
}

TEST_CASE("the rest of a chunk is read with its part until it is known that this saves nothing") {
  // What is saved, in bytes: none, less than a quarter of a rest, less than a third of it, and far more.
  const Duration each = std::chrono::microseconds(GENERATE(0, 70, 100, 5000));
  constexpr uint64_t kHalf = kMergedChunk / 2;
  constexpr uint64_t kPlace = 150 * kMergedChunk;
  MergeFixture f;
  // At 100 MB/s, one operation after the other.
  const auto end_next = [&] {
    f.clock.move(each + total_bytes(f.io.reads.front().memory) * std::chrono::nanoseconds(10));
    f.end(0);
  };
  const auto read_at = [&](uint64_t offset) {
    return std::find_if(f.io.reads.begin(), f.io.reads.end(), [offset](const FileRead& read) {
      return read.path == "records" && read.offset == offset;
    });
  };
  const auto pieces_read_at = [&](uint64_t place) {
    f.source->gather();
    f.fetch(f.records, place, kHalf, {Priority::Kind::prefetch, 5});
    f.fetch(f.records, place + kHalf, kHalf, {Priority::Kind::background, UINT64_MAX}, true);
    f.source->gathered();
    while (!f.io.reads.empty() && read_at(place) == f.io.reads.end()) end_next();
    REQUIRE(read_at(place) != f.io.reads.end());
    return read_at(place)->memory.size();
  };
  CHECK(pieces_read_at(kPlace) == 2);
  for (uint64_t i = 0; i < 48; ++i) {
    f.fetch(f.records, 2 * i * kMergedChunk, i % 2 == 0 ? kMergedChunk : kMergedChunk / 4);
    end_next();
  }
  CHECK(pieces_read_at(kPlace + 2 * kMergedChunk) == (each >= std::chrono::microseconds(100) ? 2 : 1));
  while (!f.io.reads.empty()) end_next();
}

TEST_CASE("a fetch waits for the one that comes with it, and both begin at once") {
  MergeFixture f;
  while (!f.io.reads.empty()) f.end(0);
  f.fetch(f.records, 3 * kMergedChunk, kMergedChunk, {Priority::Kind::prefetch, 5}, false, true);
  CHECK(f.io.reads.empty());
  f.fetch(f.records, 4 * kMergedChunk, kMergedChunk, {Priority::Kind::background, UINT64_MAX}, true);
  REQUIRE(f.io.reads.size() == 1);
  CHECK(f.io.reads.front().memory.size() == 2);
  f.end(0);
}
