#include "cache/nvme/store.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "cache/memory/ram_arena.h"
#include "cache/nvme/index.h"
#include "tests/support/catch.h"
#include "tests/unit/cache/few_descriptors.h"
#include "tests/unit/cache/nvme/nvme_support.h"

using namespace clairfs;
using namespace clairfs::testing;

namespace {

IoKind both() {
  return GENERATE(IoKind::threads, IoKind::automatic);
}

}  // namespace

TEST_CASE("chunks of all sizes come back as they were, now and after a restart") {
  StoreFixture f(both());
  f.capacity = 32 << 20;
  const SegmentLayout layout = GENERATE(SegmentLayout(), kSmallSegments);
  const std::vector<size_t> sizes = {1, 4095, 4096, 4097, 110'000, 4 << 20, (4 << 20) + 1};
  NvmeStore& store = f.open(layout);
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(store.length_of(key_of(i)) == 0);
    REQUIRE(put(store, i, content_of(i, sizes[i]), 1 + i % 3).ok());
    CHECK(store.length_of(key_of(i)) == sizes[i]);
  }
  for (int restart = 0; restart < 2; ++restart) {
    NvmeStore& opened = restart == 0 ? store : f.open(layout);
    CHECK(opened.chunks() == sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto content = get(opened, i, 1 + i % 2);
      REQUIRE(content.ok());
      CHECK((*content == content_of(i, sizes[i])));
    }
  }
  CHECK(bytes_in(f.directory) <= f.capacity);
  CHECK(f.metrics.nvme_checksum_failures.value() == 0);
  CHECK(f.metrics.nvme_reads.value() == 2 * sizes.size());
  CHECK(f.metrics.nvme_writes.value() == sizes.size());
  CHECK(f.metrics.nvme_bytes.value() == static_cast<int64_t>(f.store->bytes()));
  CHECK(f.metrics.nvme_capacity.value() == 32 << 20);
  f.store.reset();
  CHECK(f.metrics.nvme_bytes.value() == 0);
  CHECK(f.metrics.nvme_chunks.value() == 0);
  CHECK(f.metrics.nvme_capacity.value() == 0);
}

TEST_CASE("what is not there, twice there, or badly laid out") {
  StoreFixture f(both());
  NvmeStore& store = f.open();
  CHECK(get(store, 1).error().code == ENOENT);
  REQUIRE(put(store, 1, "one").ok());
  const uint64_t bytes = store.bytes();
  CHECK(put(store, 1, "one").ok());
  CHECK(store.bytes() == bytes);
  store.drop(key_of(1));
  store.drop(key_of(1));
  CHECK(store.bytes() == 0);
  CHECK(f.metrics.nvme_evictions.value() == 0);  // whoever decides it counts it
  CHECK(get(store, 1).error().code == ENOENT);

  const Buffer buffer(8192);
  for (const iovec bad : {iovec{buffer.data() + 1, 4096}, iovec{buffer.data(), 100}}) {
    Waiter<Status> waiter;
    store.write(key_of(2), {bad}, 100, 0, waiter.callback());
    CHECK(waiter.get().error().code == EINVAL);
  }
  REQUIRE(put(store, 3, std::string(5000, 'x')).ok());
  Waiter<Status> waiter;
  store.read(key_of(3), {{buffer.data(), 4096}}, waiter.callback());
  CHECK(waiter.get().error().code == EINVAL);
  f.capacity = 4096;
  f.directory += "2";
  CHECK(f.try_open().error().code == EINVAL);
}

TEST_CASE("random operations agree with a map, and the capacity holds at every step") {
  StoreFixture f(both());
  std::mt19937 random(static_cast<unsigned>(f.io->kind()[0]));
  std::map<uint64_t, size_t> model;
  NvmeStore* store = &f.open();
  uint64_t refused = 0;
  for (int step = 0; step < 3000; ++step) {
    const uint64_t n = random() % 120;  // all of them together: twice the capacity
    const unsigned action = random() % 100;
    if (action < 45 && !model.contains(n)) {
      const size_t longest = random() % 4 == 0 ? 200'000 : 40'000;
      const size_t length = 1 + random() % longest;
      const uint64_t available = store->available();
      const Status status = put(*store, n, content_of(n, length));
      // At most 50 slots, so at most as many extents: only the want of space is a reason to refuse.
      if (status) {
        model[n] = length;
      } else {
        REQUIRE(status.error().code == ENOSPC);
        REQUIRE(uint64_t{slots_for(length)} * kSlotSize > available);
        ++refused;
      }
    } else if (action < 80) {
      const auto content = get(*store, n);
      REQUIRE(content.ok() == model.contains(n));
      if (content) REQUIRE((*content == content_of(n, model[n])));
    } else if (action < 97) {
      store->drop(key_of(n));
      model.erase(n);
    } else if (action < 98) {
      store->drop_unless([](const ChunkKey& key) { return key.low % 4 != 0; });
      std::erase_if(model, [](const auto& entry) { return key_of(entry.first).low % 4 == 0; });
    } else {
      store = &f.open();
    }
    REQUIRE(store->chunks() == model.size());
    REQUIRE(bytes_in(f.directory) <= f.capacity);
  }
  for (const auto& [n, length] : model) REQUIRE((get(*store, n).value() == content_of(n, length)));
  CHECK(refused > 0);
  CHECK(f.metrics.nvme_checksum_failures.value() == 0);
}

TEST_CASE("a full store says ENOSPC, keeps what it has, and takes more after a drop") {
  StoreFixture f(both());
  NvmeStore& store = f.open();
  uint64_t n = 0;
  while (put(store, n, content_of(n, 100'000)).ok()) {
    REQUIRE(++n < 100);
    REQUIRE(bytes_in(f.directory) <= f.capacity);
  }
  CHECK(n >= 17);  // of 2 MiB, 64 KiB are the index's
  CHECK(put(store, n, content_of(n, 100'000)).error().code == ENOSPC);
  CHECK(store.available() < 102'400);
  for (uint64_t i = 0; i < n; ++i) REQUIRE((get(store, i).value() == content_of(i, 100'000)));
  store.drop(key_of(3));
  CHECK(put(store, n, content_of(n, 100'000)).ok());
  CHECK((get(store, n).value() == content_of(n, 100'000)));
  CHECK(f.metrics.nvme_disabled.value() == 0);
}

TEST_CASE("the index is compacted while running and stays within its share") {
  StoreFixture f(both());
  NvmeStore* store = &f.open();
  const NvmeIndexLimits limits = NvmeIndexLimits::of(f.capacity);
  REQUIRE(put(*store, 0, "stays").ok());
  for (uint64_t n = 1; n < 3 * uint64_t{limits.file_records}; ++n) {
    REQUIRE(put(*store, 1 + n % 7, content_of(n % 7, 10)).ok());
    store->drop(key_of(1 + n % 7));
  }
  REQUIRE(put(*store, 100, "new").ok());
  store = &f.open();
  CHECK(store->chunks() == 2);
  CHECK(get(*store, 0).value() == "stays");
  CHECK(get(*store, 100).value() == "new");
  CHECK(std::filesystem::file_size(f.directory + "/index") <= limits.share);
  CHECK(!std::filesystem::exists(f.directory + "/index.new"));
  // Mostly garbage after that: compacted on open.
  store->drop(key_of(100));
  for (uint64_t n = 1; n < 200; ++n) {
    REQUIRE(put(*store, n, "x").ok());
    store->drop(key_of(n));
  }
  f.open();
  CHECK(std::filesystem::file_size(f.directory + "/index") == 2 * sizeof(NvmeRecord));
  CHECK(f.log.lines() <= 1);  // io_uring forbidden, at most
}

TEST_CASE("the index takes no more than chunks of the dataset's size need") {
  for (const uint64_t capacity : {uint64_t{1} << 28, uint64_t{1} << 34, uint64_t{1} << 42}) {
    const NvmeIndexLimits unknown = NvmeIndexLimits::of(capacity);
    for (const uint64_t chunk : {4096ULL, 32'768ULL, 110'000ULL, 4ULL << 20}) {
      const NvmeIndexLimits limits = NvmeIndexLimits::of(capacity, chunk);
      INFO("capacity " << capacity << ", chunks of " << chunk << ": " << limits.share);
      CHECK(limits.share <= unknown.share);
      CHECK(limits.live_records + 1 >=
            std::min<uint64_t>(capacity / chunk * NvmeIndexLimits::kRuns, unknown.live_records));
      if (chunk >= 110'000) CHECK(limits.share < capacity / 180);
    }
  }
  // A dataset that grew a little leaves the layout as it is.
  CHECK(NvmeIndexLimits::of(1ULL << 40, 110'000).share == NvmeIndexLimits::of(1ULL << 40, 111'000).share);
}

TEST_CASE("more chunks than the index has room for are refused") {
  StoreFixture f(IoKind::threads);
  NvmeStore& store = f.open();
  const NvmeIndexLimits limits = NvmeIndexLimits::of(f.capacity);
  uint64_t n = 0;
  while (put(store, n, "x").ok()) REQUIRE(++n <= limits.live_records);
  CHECK(put(store, n, "x").error().code == ENOSPC);
  CHECK(bytes_in(f.directory) <= f.capacity);
  CHECK(f.open().chunks() == n);
}

TEST_CASE("an empty store takes all that usable_bytes() promises") {
  constexpr uint32_t kChunk = 32 << 10;
  for (const SegmentLayout& layout : {SegmentLayout(), kSmallSegments}) {
    for (const uint64_t capacity : {1ULL << 20, 5ULL << 20, 40ULL << 20}) {
      for (const bool equal : {true, false}) {
        StoreFixture f(IoKind::threads);
        f.capacity = capacity;
        NvmeStore& store = f.open(layout);
        std::mt19937 random(7);
        const uint64_t usable = usable_nvme_bytes(capacity, kChunk, 0, layout);
        uint64_t taken = 0;
        for (uint64_t n = 0;; ++n) {
          const size_t length = equal ? 1 : 1 + random() % kChunk;
          taken += std::max<uint64_t>(round_to_pages(length), kNvmeSmallestShare);
          if (taken > usable) break;
          const Status written = put(store, n, content_of(n, length));
          INFO("chunk " << n << " of " << length << " bytes, capacity " << capacity);
          REQUIRE(written.ok());
        }
        CHECK(bytes_in(f.directory) <= capacity);
        if (capacity > 5 << 20) CHECK(static_cast<double>(usable) > 0.94 * static_cast<double>(capacity));
      }
    }
  }
  CHECK(NvmeStore::usable_bytes((1 << 20) - 1, kChunk) == 0);
  CHECK(NvmeStore::usable_bytes(1ULL << 40, 4 << 20) > 0.979 * (1ULL << 40));
}

TEST_CASE("another capacity on the next mount") {
  StoreFixture f(both());
  f.capacity = 8 << 20;
  NvmeStore* store = &f.open();
  for (uint64_t n = 0; n < 70; ++n) REQUIRE(put(*store, n, content_of(n, 100'000)).ok());
  f.capacity = 3 << 20;
  store = &f.open();
  CHECK(bytes_in(f.directory) <= f.capacity);
  CHECK(f.log.says("outside the segments"));
  const uint64_t kept = store->chunks();
  CHECK(kept >= 20);
  CHECK(kept < 30);
  f.capacity = 16 << 20;
  store = &f.open();
  CHECK(store->chunks() == kept);
  for (uint64_t n = 0; n < 120; ++n) {
    REQUIRE(put(*store, n, content_of(n, 100'000)).ok());
    REQUIRE(bytes_in(f.directory) <= f.capacity);
  }
  for (uint64_t n = 0; n < 120; ++n) REQUIRE((get(*store, n).value() == content_of(n, 100'000)));
}

TEST_CASE("a store that lacks descriptors for a moment loses nothing") {
  StoreFixture f(IoKind::threads);
  f.capacity = 8 << 20;
  f.open();
  for (uint64_t n = 0; n < 50; ++n) REQUIRE(put(*f.store, n, content_of(n, 100'000)).ok());
  f.store.reset();
  for (rlim_t limit = 3; f.store == nullptr; ++limit) {
    Result<std::unique_ptr<NvmeStore>> opened = Error{};
    {
      const FewDescriptors few(limit);
      opened = f.try_open();
    }
    if (opened) f.store = std::move(*opened);
  }
  CHECK(f.store->chunks() == 50);
}

TEST_CASE("two stores count into the same metrics") {
  StoreFixture f(IoKind::threads);
  f.open();
  StoreFixture other(IoKind::threads);
  const auto second =
      open_nvme_store({other.directory, f.capacity}, kSmallSegments, *f.io, f.clock, f.log.log, f.metrics);
  REQUIRE(second.ok());
  REQUIRE(put(*f.store, 1, "one").ok());
  REQUIRE(put(**second, 2, "two").ok());
  CHECK(f.metrics.nvme_chunks.value() == 2);
  CHECK(f.metrics.nvme_bytes.value() == 8192);
  CHECK(f.metrics.nvme_capacity.value() == 4 << 20);
}

TEST_CASE("readers, writers and drops at the same time never see wrong data") {
  StoreFixture f(both());
  NvmeStore& store = f.open();
  constexpr uint64_t kKeys = 40;
  const auto length = [](uint64_t n) { return 1 + n * 3571; };
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> read{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 600; ++i) {
        const uint64_t n = random() % kKeys;
        const unsigned action = random() % 10;
        if (action < 4) {
          const Status status = put(store, n, content_of(n, length(n)));
          if (!status && status.error().code != ENOSPC) ++wrong;
        } else if (action < 8) {
          // The buffer is for the key's length, whatever drops and writes do meanwhile.
          const Buffer buffer(size_t{slots_for(length(n))} * kSlotSize);
          Waiter<Status> waiter;
          store.read(key_of(n), {buffer.whole()}, waiter.callback());
          const Status status = waiter.get();
          if (status ? buffer.text(length(n)) != content_of(n, length(n)) : status.error().code != ENOENT)
            ++wrong;
          if (status) ++read;
        } else {
          store.drop(key_of(n));
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(read > 0);
  CHECK(f.metrics.nvme_checksum_failures.value() == 0);
  CHECK(bytes_in(f.directory) <= f.capacity);
  const uint64_t kept = f.store->chunks();
  NvmeStore& reopened = f.open();
  CHECK(reopened.chunks() == kept);
  for (uint64_t n = 0; n < kKeys; ++n) {
    if (reopened.length_of(key_of(n)) != 0) CHECK((get(reopened, n).value() == content_of(n, length(n))));
  }
}

TEST_CASE("a store that has grown for a chunk does not grow when the chunk is written") {
  StoreFixture f(both());
  NvmeStore& store = f.open();
  REQUIRE(store.grows_for(50'000));
  const uint64_t available = store.available();
  store.grow_for(50'000);
  CHECK(!store.grows_for(50'000));
  CHECK(store.available() == available);
  const std::string segment = f.directory + "/segment-000000";
  const uint64_t taken = std::filesystem::file_size(segment);
  CHECK(put(store, 1, content_of(1, 50'000)).ok());
  CHECK(std::filesystem::file_size(segment) == taken);
  store.grow_for(f.capacity);  // more than there is
  CHECK(!store.grows_for(f.capacity));
  CHECK(bytes_in(f.directory) <= f.capacity);
}

TEST_CASE("a write takes no more of the disk: it takes what is free in several runs, or is refused") {
  StoreFixture f(both());
  NvmeStore& store = f.open();
  const std::string segment = f.directory + "/segment-000000";
  CHECK(put_at_once(store, 1, content_of(1, 16 << 10)).error().code == ENOSPC);
  CHECK(!std::filesystem::exists(segment));
  for (uint64_t n = 1; n <= 4; ++n) REQUIRE(put(store, n, content_of(n, 16 << 10)).ok());
  const uint64_t taken = std::filesystem::file_size(segment);
  REQUIRE(taken == 64 << 10);
  store.drop(key_of(1));
  store.drop(key_of(3));
  REQUIRE(store.grows_for(32 << 10));
  CHECK(put_at_once(store, 5, content_of(5, 32 << 10)).ok());
  CHECK((get(store, 5).value() == content_of(5, 32 << 10)));
  CHECK(put_at_once(store, 6, content_of(6, 4096)).error().code == ENOSPC);
  CHECK(std::filesystem::file_size(segment) == taken);
  CHECK(put(store, 6, content_of(6, 4096)).ok());
}

TEST_CASE("a store counts as having no less room while it grows") {
  StoreFixture f(IoKind::threads);
  f.capacity = 64 << 20;
  NvmeStore& store = f.open(kSmallSegments);
  const uint64_t room = store.available();
  std::atomic<bool> grown = false;
  std::thread grower([&] {
    store.grow_for(room);  // more than a run: takes all there is
    grown = true;
  });
  uint64_t least = room;
  while (!grown) least = std::min(least, store.available());
  grower.join();
  CHECK(least == room);
  CHECK(store.available() == room);
  CHECK(!store.grows_for(room));
}
