// Staging beside an NVMe disk that hangs.
#include <atomic>

#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// A plan over files of one chunk: as many as may be staged come from the source, and as many as reads that
/// hang may have memory for lie on a disk, for which a reader waits 20 ms.
struct SilentDiskFixture {
  static constexpr uint64_t kSize = 64 << 10;

  explicit SilentDiskFixture(const std::string& plan) : f(over(), plan) {}

  StagingOver over() const {
    StagingOver made;
    made.sizes.assign(ahead + on_disk, kSize);
    made.chunk_size = kSize;
    made.budget = ahead * kSize;
    made.nvme = (ahead + on_disk) * kSize;
    made.immediate = false;
    for (uint32_t i = ahead; i < ahead + on_disk; ++i) made.warm.push_back(i);
    made.nvme_patience = 20ms;
    return made;
  }

  /// The disk hangs, and readers ask for all that is there.
  void hang_and_read() {
    f.store.hold_reads(true);
    for (uint32_t i = ahead; i < ahead + on_disk; ++i) {
      const FileId file = f.file(i);
      f.cache->acquire(f.catalog->chunks(file).first, Priority{Priority::Kind::demand, 0},
                       [this, file](const Result<AcquiredChunk>& chunk) {
                         const iovec first = chunk ? chunk->data->block.slices(0, 1).front() : iovec{};
                         const bool right = chunk && *static_cast<const unsigned char*>(first.iov_base) ==
                                                         fake_byte(file, 0);
                         if (right) ++read;
                       });
    }
  }
  /// Whether all of that comes, though the oldest `silent` fetches from the source do not.
  bool all_read(size_t silent) {
    return eventually([&] {
      f.settle();
      f.source.complete_last(f.source.pending() - silent);
      return read == on_disk;
    });
  }

  const TransitShares shares = TransitShares::for_chunks(kSize);
  const uint32_t ahead = static_cast<uint32_t>(shares.staging / kSize);
  const uint32_t on_disk = static_cast<uint32_t>(shares.from_nvme / kSize);
  std::atomic<uint32_t> read{0};  // of those on the disk, right
  StagingFixture f;               // last: what still waits at its end uses the others
};

}  // namespace

TEST_CASE("readers find memory though a disk hangs and what is staged waits for a file that does not come") {
  SilentDiskFixture disk("format=files sampler=torch.sequential epochs=1");
  StagingFixture& f = disk.f;

  // All that may be staged is pinned behind the first file.
  f.settle();
  for (size_t more = 1; more > 0; f.settle()) {
    more = f.source.pending() - 1;
    f.source.complete_last(more);
  }
  REQUIRE(f.source.fetches == disk.ahead);
  REQUIRE(f.metrics.transit_bytes.value() == static_cast<int64_t>(disk.shares.staging));
  REQUIRE(f.staging->ahead("default") == 0);

  disk.hang_and_read();
  CHECK(disk.all_read(1));
  CHECK(f.metrics.transit_bytes.value() <= static_cast<int64_t>(disk.shares.capacity));
  CHECK(f.staging->ahead("default") == 0);

  // The file comes, and later the disk answers: all is staged that was to be.
  f.source.complete_all();
  f.settle();
  f.store.hold_reads(false);
  CHECK(eventually([&] {
    f.settle();
    f.source.complete_all();
    return f.staging->ahead("default") == disk.ahead;
  }));
}

TEST_CASE("ranks give memory back alike while a disk hangs, and keep what is needed next") {
  SilentDiskFixture disk("format=files shuffle=false epochs=1 world=2 ranks_per_node=2");
  StagingFixture& f = disk.f;
  f.settle();
  REQUIRE(f.source.pending() == disk.ahead);
  // Of each all comes but its first file.
  for (const size_t second : {size_t{1}, size_t{2}}) {
    for (uint32_t i = 1; i < disk.ahead / 2; ++i) f.source.complete_at(second);
  }
  f.settle();
  REQUIRE(f.source.pending() == 2);
  for (const size_t rank : {size_t{0}, size_t{1}}) REQUIRE(f.staging->ahead("default", rank) == 0);

  disk.hang_and_read();
  REQUIRE(disk.all_read(2));
  f.settle();  // all that is to be given back has been
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    f.source.complete_one();
    f.settle();
    CAPTURE(rank);
    CHECK(f.staging->ahead("default", rank) > 0);
  }
  f.store.hold_reads(false);
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
