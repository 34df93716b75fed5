#include "plan/staging.h"

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

#include "cache/catalog_scan.h"
#include "tests/support/captured_log.h"
#include "tests/support/fake_source.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// Remembers what was pushed and checks every byte of it.
class FakePages final : public PageCache {
 public:
  explicit FakePages(const Catalog& catalog) : catalog_(catalog) {}

  Status push(FileId file, uint64_t offset, const std::vector<iovec>& memory) override {
    MutexLock lock(mutex_);
    uint64_t at = offset;
    for (const iovec& part : memory) {
      const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
      for (size_t i = 0; i < part.iov_len; ++i) wrong_ += bytes[i] == fake_byte(file, at++) ? 0 : 1;
    }
    const bool aligned = offset % kPageSize == 0 && (at % kPageSize == 0 || at == catalog_.stamp(file).size);
    if (!aligned || at > catalog_.stamp(file).size) ++wrong_;
    cached_[file] += at - offset;
    order_.push_back(file);
    return {};
  }
  void drop(FileId file, uint64_t, uint64_t) override {
    MutexLock lock(mutex_);
    cached_.erase(file);
    ++drops_;
  }

  uint64_t cached_bytes() {
    MutexLock lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [file, bytes] : cached_) sum += bytes;
    return sum;
  }
  bool whole(FileId file) {
    MutexLock lock(mutex_);
    return cached_[file] == catalog_.stamp(file).size;
  }
  std::vector<FileId> order() {
    MutexLock lock(mutex_);
    return order_;
  }
  uint64_t wrong() {
    MutexLock lock(mutex_);
    return wrong_;
  }
  uint64_t drops() {
    MutexLock lock(mutex_);
    return drops_;
  }

 private:
  const Catalog& catalog_;
  Mutex mutex_;
  std::map<FileId, uint64_t> cached_ GUARDED_BY(mutex_);
  std::vector<FileId> order_ GUARDED_BY(mutex_);
  uint64_t wrong_ GUARDED_BY(mutex_) = 0;
  uint64_t drops_ GUARDED_BY(mutex_) = 0;
};

struct Fixture {
  Fixture(uint32_t files, uint64_t size, const std::string& plan, uint64_t budget, uint64_t ram,
          uint32_t chunk_size = 4 << 20) {
    for (uint32_t i = 0; i < files; ++i) tree.write("f" + std::to_string(10000 + i), size);
    ScanOptions options;
    options.chunk_size = chunk_size;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    policy.emplace(*catalog);
    cache = std::move(*ChunkCache::create({*catalog, source, {}, *policy, metrics, log.logger()}, ram));
    pages.emplace(*catalog);
    staging.emplace(*cache, *policy, *catalog, *pages, clock, metrics, StagingOptions{budget});
    DatasetSource dataset;
    dataset.catalog = catalog;
    run = *PlanRun::make(*parse_plan(plan), dataset, {});
    REQUIRE(run->prepare().ok());
    staging->add(run);
  }
  ~Fixture() {
    staging->stop();
    CHECK(cache->stop(5s));
    CHECK(pages->wrong() == 0);
  }

  /// Waits for what another thread brings about; false after ten seconds.
  static bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  /// The reader opens the next sample; true if its pages were all there.
  bool read_next(uint64_t position) {
    const Horizon horizon = run->horizon();
    const uint32_t sample = horizon.sample_at(position);
    const FileId file = run->index().range(sample, 0).file;
    if (pages->whole(file)) return true;
    const std::vector<uint32_t> samples = run->samples_of(file, 0, 1);
    run->tracker().observe(samples, Access::read, clock.now());
    REQUIRE(run->prepare().ok());
    staging->wake();
    return false;
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  SteadyClock clock;
  FakeSource source;
  std::shared_ptr<const Catalog> catalog;
  std::optional<NextUsePolicy> policy;
  std::unique_ptr<ChunkCache> cache;
  std::optional<FakePages> pages;
  std::optional<Staging> staging;
  std::shared_ptr<PlanRun> run;
};

}  // namespace

TEST_CASE("the window is pushed in the order of the plan and no further than the budget") {
  constexpr uint64_t kSize = 20000;
  constexpr uint64_t kBudget = 40 * kSize;
  Fixture f(200, kSize, "seed=1 format=files epochs=2", kBudget, 0);
  REQUIRE(Fixture::eventually([&] { return f.staging->ahead("default") == 40; }));
  std::this_thread::sleep_for(50ms);
  CHECK(f.staging->ahead("default") == 40);
  CHECK(f.pages->cached_bytes() <= kBudget);
  const Horizon horizon = f.run->horizon();
  const auto order = f.pages->order();
  for (size_t i = 0; i < order.size(); ++i) {
    CHECK(order[i] == f.run->index().range(horizon.sample_at(i), 0).file);
  }
}

TEST_CASE("the window moves with the reader over epochs, and what was read is dropped") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 300;
  const uint64_t ram = GENERATE(0ULL, 100ULL * 20480, 1000ULL * 20480);
  Fixture f(kFiles, kSize, "seed=1 format=files epochs=3", 50 * kSize, ram);
  uint64_t seen = 0;
  for (uint64_t p = 0; p < 3 * kFiles; ++p) {
    // A reader that waits for the window never gets ahead of it.
    REQUIRE(Fixture::eventually([&] { return f.staging->ahead("default") >= 10 || p + 50 > 3 * kFiles; }));
    seen += f.read_next(p) ? 0 : 1;
    CHECK(f.pages->cached_bytes() <= 120 * kSize);  // the window, and what the tracker is not yet sure of
  }
  CHECK(f.run->tracker().status().suspensions == 0);
  CHECK(f.run->tracker().status().out_of_order == 0);
  CHECK(seen < 3 * kFiles / 3);
  CHECK(Fixture::eventually([&] { return f.pages->drops() > 2 * kFiles; }));
  if (ram > kFiles * 20480ULL) CHECK(f.source.fetches == kFiles);
}

TEST_CASE("samples larger than the transit memory are staged in pieces") {
  constexpr uint32_t kChunk = 64 << 10;
  const uint64_t size = 2 * ChunkCache::transit_capacity(kChunk) + 12345;
  Fixture f(3, size, "seed=1 format=files epochs=1", 2 * size, 0, kChunk);
  CHECK(Fixture::eventually([&] { return f.staging->ahead("default") == 2; }));
  CHECK(f.metrics.transit_bytes.value() <= f.metrics.transit_capacity.value());
}

TEST_CASE("a sample larger than the budget is left to the reader and does not stop the others") {
  Fixture f(20, 100000, "seed=1 format=files epochs=1", 50000, 0);
  // One at a time: what lies before the reader's next sample counts as handed on.
  CHECK(Fixture::eventually([&] { return f.staging->ahead("default") == 1; }));
  std::this_thread::sleep_for(50ms);
  CHECK(f.staging->ahead("default") == 1);
  CHECK(f.source.fetches == 0);
  CHECK(f.pages->order().empty());
}

TEST_CASE("a dataset that fits the budget is pushed once and not dropped") {
  constexpr uint32_t kFiles = 50;
  Fixture f(kFiles, 20000, "seed=1 format=files epochs=3", 1 << 24, 0);
  for (uint64_t p = 0; p < 3 * kFiles; ++p) {
    REQUIRE(Fixture::eventually([&] { return f.staging->ahead("default") >= 1; }));
    f.read_next(p);
  }
  std::set<FileId> once;
  for (const FileId file : f.pages->order()) once.insert(file);
  CHECK(once.size() == kFiles);
  CHECK(f.source.fetches <= kFiles + 10);  // only sentinels, whose pages are missing, are fetched again
}

TEST_CASE("a plan that is removed stops pushing, and its cache goes back to first touch") {
  Fixture f(100, 20000, "seed=1 format=files", 10 * 20000, 1 << 24);
  REQUIRE(Fixture::eventually([&] { return f.staging->ahead("default") == 10; }));
  f.staging->remove("default");
  CHECK(f.staging->ahead("default") == 0);
  CHECK(f.policy->place(ChunkId(0), 20480, {1 << 20, 0}).tier == Tier::ram);
}
