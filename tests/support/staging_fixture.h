// A Staging over a catalog of equal files, with a source, a page cache and a reader under the test's control.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "cache/catalog/chunk_key.h"
#include "plan/staging/staging.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/fake_store.h"
#include "tests/support/made_up_catalog.h"

namespace clairfs {

/// Remembers what was pushed and checks every byte of it.
class FakePages final : public PageCache {
 public:
  explicit FakePages(const Catalog& catalog) : catalog_(catalog) {}

  /// What happens when something was pushed, before staging goes on.
  std::function<void()> on_push;

  Status push(FileId file, uint64_t offset, const std::vector<iovec>& memory) override {
    store(file, offset, memory);
    if (on_push) on_push();
    return {};
  }
  void drop(FileId file, uint64_t offset, uint64_t length) override {
    MutexLock lock(mutex_);
    auto& pages = cached_[file];
    pages.erase(pages.lower_bound(offset), pages.lower_bound(offset + length));
    ++drops_;
  }
  void expect_records(RecordPlans followed) override { records_ = followed; }

  std::optional<uint64_t> pages_of(FileId file, uint64_t offset, uint64_t length) override {
    MutexLock lock(mutex_);
    ++looks_;
    if (!tells_) return std::nullopt;
    return count(file, offset, length);
  }

  /// The kernel takes its pages back.
  void lose(FileId file) {
    MutexLock lock(mutex_);
    cached_.erase(file);
  }
  /// A READ's answer fills in what is missing.
  void fill(FileId file) {
    MutexLock lock(mutex_);
    add(file, 0, catalog_.stamp(file).size);
  }
  /// The same of a part of the file.
  void fill(FileId file, uint64_t offset, uint64_t length) {
    MutexLock lock(mutex_);
    add(file, offset, offset + length);
  }

  uint64_t cached_bytes() {
    MutexLock lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [file, pages] : cached_) {
      for (const uint64_t at : pages) sum += std::min<uint64_t>(kPageSize, catalog_.stamp(file).size - at);
    }
    return sum;
  }
  bool whole(FileId file) { return missing(file, 0, catalog_.stamp(file).size).empty(); }
  /// The beginnings of those pages of the range that are not there.
  std::vector<uint64_t> missing(FileId file, uint64_t offset, uint64_t length) {
    MutexLock lock(mutex_);
    std::vector<uint64_t> none;
    for (uint64_t at = page_floor(offset); at < offset + length; at += kPageSize) {
      if (!cached_[file].contains(at)) none.push_back(at);
    }
    return none;
  }
  RecordPlans records_expected() const { return records_; }
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
  /// An old kernel, or other users' files.
  void tell_nothing() {
    MutexLock lock(mutex_);
    tells_ = false;
  }
  /// How often pages_of was asked.
  uint64_t looks() {
    MutexLock lock(mutex_);
    return looks_;
  }

 private:
  void store(FileId file, uint64_t offset, const std::vector<iovec>& memory) {
    MutexLock lock(mutex_);
    uint64_t at = offset;
    for (const iovec& part : memory) {
      const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
      for (size_t i = 0; i < part.iov_len; ++i) wrong_ += bytes[i] == fake_byte(file, at++) ? 0 : 1;
    }
    const bool aligned = offset % kPageSize == 0 && (at % kPageSize == 0 || at == catalog_.stamp(file).size);
    if (!aligned || at > catalog_.stamp(file).size) ++wrong_;
    add(file, offset, at);
    order_.push_back(file);
  }
  void add(FileId file, uint64_t offset, uint64_t end) REQUIRES(mutex_) {
    for (uint64_t at = page_floor(offset); at < end; at += kPageSize) cached_[file].insert(at);
  }
  uint64_t count(FileId file, uint64_t offset, uint64_t length) REQUIRES(mutex_) {
    const auto& pages = cached_[file];
    return static_cast<uint64_t>(
        std::distance(pages.lower_bound(offset), pages.lower_bound(offset + length)));
  }

  const Catalog& catalog_;
  Mutex mutex_;
  std::map<FileId, std::set<uint64_t>> cached_ GUARDED_BY(mutex_);  // pages, by their beginnings
  std::atomic<RecordPlans> records_{RecordPlans::none};
  std::vector<FileId> order_ GUARDED_BY(mutex_);
  uint64_t wrong_ GUARDED_BY(mutex_) = 0;
  uint64_t drops_ GUARDED_BY(mutex_) = 0;
  uint64_t looks_ GUARDED_BY(mutex_) = 0;
  bool tells_ GUARDED_BY(mutex_) = true;
};

struct StagingOver {
  std::vector<uint64_t> sizes;  ///< of the files
  uint64_t budget = 0;
  uint64_t ram = 0;
  uint64_t nvme = 0;  ///< 0: no such tier
  uint32_t chunk_size = 4 << 20;
  bool immediate = true;  ///< settle() completes fetches, else the test does
  uint64_t keep = 0;      ///< page cache for plans that stay
  bool fill_in_file_order = true;
  std::shared_ptr<const Catalog> catalog{};  ///< of these files, instead of `sizes`
  std::vector<uint32_t> warm{};  ///< files of one chunk, by number, that NVMe has from an earlier mount
  Duration nvme_patience = kNvmePatience;
};

struct StagingFixture {
  StagingFixture(const StagingOver& over, const std::string& plan)
      : immediate(over.immediate),
        catalog(over.catalog ? over.catalog : made_up_catalog(over.sizes, over.chunk_size)),
        policy(*catalog),
        store(over.nvme),
        pages(*catalog) {
    std::vector<NvmeStore*> stores;
    if (over.nvme > 0) stores.push_back(&store);
    for (const uint32_t number : over.warm) leave_on_nvme(file(number));
    ChunkCache::Deps deps{*catalog, source, stores, policy, metrics, log.logger()};
    deps.nvme_patience = over.nvme_patience;
    cache = std::move(*ChunkCache::create(deps, over.ram));
    staging.emplace(*cache, policy, *catalog, pages, metrics,
                    StagingOptions{over.budget, over.keep, over.fill_in_file_order});
    run = add_plan(plan);
  }
  StagingFixture(uint32_t files, uint64_t size, const std::string& plan, uint64_t budget, uint64_t ram,
                 uint32_t chunk_size = 4 << 20)
      : StagingFixture({std::vector<uint64_t>(files, size), budget, ram, 0, chunk_size, true}, plan) {}
  ~StagingFixture() {
    staging->stop();
    CHECK(cache->stop(std::chrono::minutes(1)));
    CHECK(pages.wrong() == 0);
  }

  /// Of made_up_catalog(), from 0.
  FileId file(uint32_t number) const { return *catalog->find("f" + std::to_string(10000 + number)); }

  void leave_on_nvme(FileId of) {
    std::string bytes;
    for (uint64_t at = 0; at < catalog->stamp(of).size; ++at)
      bytes.push_back(static_cast<char>(fake_byte(of, at)));
    store.write(chunk_key(*catalog, catalog->chunks(of).first), {{bytes.data(), bytes.size()}},
                static_cast<uint32_t>(bytes.size()), 0, [](const Status&) {});
    store.settle();
  }

  std::shared_ptr<PlanRun> add_plan(const std::string& text) {
    DatasetSource dataset;
    dataset.catalog = catalog;
    std::shared_ptr<PlanRun> added = *PlanRun::make(*parse_plan(text), dataset, {});
    REQUIRE(added->prepare().ok());
    staging->add(added);
    return added;
  }

  /// Gives staging its turns until it has nothing to do, and the source its own. Time stands still meanwhile.
  void settle() {
    while (staging->step(now).busy || (immediate && source.complete_all()) || store.settle() ||
           staging->alarm().answer()) {
    }
  }
  /// Whether settle() brings it about: nothing is waited for. It may take several, if the condition completes
  /// fetches.
  bool settle_until(const std::function<bool()>& condition) {
    constexpr int kEnough = 1000;  // fetches that wait for each other
    for (int i = 0; i < kEnough; ++i) {
      settle();
      if (condition()) return true;
    }
    return false;
  }

  /// One past the last position that has been pushed.
  uint64_t staged() const { return run->reader().tracker().high_water() + staging->ahead(run->name()); }

  /// The reader opens the next sample, a tenth of a millisecond after the one before; true if its pages were
  /// all there. `answered`: a READ brings those that were not.
  bool read_next(uint64_t position, bool answered = true) { return read_next(*run, position, answered); }
  /// The same for the reader of any plan.
  bool read_next(PlanRun& of, uint64_t position, bool answered = true) {
    now += std::chrono::microseconds(100);
    const Timeline timeline = of.reader().timeline();
    const uint32_t sample = timeline.sample_at(position);
    const FileId file = of.index().range(sample, 0).file;
    if (pages.whole(file)) return true;
    const std::vector<uint32_t> samples = of.samples_of(file, 0, 1);
    of.reader().tracker().observe(samples, Access::read, now);
    if (answered) pages.fill(file);
    REQUIRE(of.prepare().ok());
    staging->wake();
    return false;
  }

  CapturedLog log;
  Metrics metrics;
  TimePoint now{std::chrono::seconds(1)};
  const bool immediate;
  FakeSource source;
  const std::shared_ptr<const Catalog> catalog;
  NextUsePolicy policy;
  FakeStore store;
  std::unique_ptr<ChunkCache> cache;
  FakePages pages;
  std::optional<Staging> staging;
  std::shared_ptr<PlanRun> run;
};

}  // namespace clairfs
