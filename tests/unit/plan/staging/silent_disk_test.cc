// Staging beside an NVMe disk that hangs.
#include <atomic>

#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

TEST_CASE("readers find memory though a disk hangs and what is staged waits for a file that does not come") {
  constexpr uint64_t kSize = 64 << 10;  // one chunk
  const TransitShares shares = TransitShares::for_chunks(kSize);
  const auto ahead = static_cast<uint32_t>(shares.staging / kSize);
  const auto on_disk = static_cast<uint32_t>(shares.from_nvme / kSize);
  StagingOver over;
  over.sizes.assign(ahead + on_disk, kSize);
  over.chunk_size = kSize;
  over.budget = ahead * kSize;
  over.nvme = (ahead + on_disk) * kSize;
  over.immediate = false;
  for (uint32_t i = ahead; i < ahead + on_disk; ++i) over.warm.push_back(i);
  over.nvme_patience = 20ms;
  StagingFixture f(over, "format=files sampler=torch.sequential epochs=1");

  // All that may be staged is pinned behind the first file.
  f.settle();
  for (size_t more = 1; more > 0; f.settle()) {
    more = f.source.pending() - 1;
    f.source.complete_last(more);
  }
  REQUIRE(f.source.fetches == ahead);
  const auto staged = static_cast<int64_t>(shares.staging);
  REQUIRE(f.metrics.transit_bytes.value() == staged);
  REQUIRE(f.staging->ahead("default") == 0);

  f.store.hold_reads(true);
  std::atomic<uint32_t> read{0};
  for (uint32_t i = ahead; i < ahead + on_disk; ++i) {
    const FileId file = f.file(i);
    f.cache->acquire(f.catalog->chunks(file).first, Priority{Priority::Kind::demand, 0},
                     [&read, file](const Result<AcquiredChunk>& chunk) {
                       const iovec first = chunk ? chunk->data->block.slices(0, 1).front() : iovec{};
                       const bool right =
                           chunk && *static_cast<const unsigned char*>(first.iov_base) == fake_byte(file, 0);
                       if (right) ++read;
                     });
  }
  CHECK(eventually([&] {
    f.settle();
    f.source.complete_last(f.source.pending() - 1);
    return read == on_disk;
  }));
  CHECK(f.metrics.transit_bytes.value() <= static_cast<int64_t>(shares.capacity));
  CHECK(f.staging->ahead("default") == 0);

  // The file comes, and later the disk answers: all is staged that was to be.
  f.source.complete_all();
  f.settle();
  f.store.hold_reads(false);
  CHECK(eventually([&] {
    f.settle();
    f.source.complete_all();
    return f.staging->ahead("default") == ahead;
  }));
}

TEST_CASE("a disk that does not catch up is asked ever more seldom whether it has") {
  constexpr uint64_t kSize = 64 << 10;
  constexpr uint32_t kFiles = 200;
  StagingOver over;
  over.sizes.assign(kFiles, kSize);
  over.budget = 20 * kSize;
  over.nvme = 2 * kFiles * kSize;
  StagingFixture f(over, "format=files sampler=torch.sequential epochs=2");
  f.store.set_slow(true);
  f.settle();
  REQUIRE(f.cache->writes_are_behind());
  const TimePoint begun = f.now;
  const auto look_again_after = [&](Duration since) {
    f.now = begun + since;
    return f.staging->step(f.now).look_again;
  };
  CHECK(look_again_after(0ms) == 5ms);
  CHECK(look_again_after(100ms) == 100ms);
  CHECK(look_again_after(900ms) == 900ms);
  CHECK(look_again_after(1h) == 1s);
  f.store.set_slow(false);
  CHECK(eventually([&] {
    f.now += 5ms;
    f.settle();
    return f.store.chunks() > kFiles / 2;
  }));
}
