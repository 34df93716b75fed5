// Slots of an NVMe store: each is one chunk's at a time, and none is lost, in whatever order transfers end.
#include <atomic>
#include <cerrno>
#include <random>

#include "tests/support/catch.h"
#include "tests/unit/cache/nvme/nvme_support.h"

using namespace clairfs;
using namespace clairfs::testing;

namespace {

constexpr uint64_t kChunks = 100;     // all of them: more than a store of StoreFixture's holds
constexpr uint64_t kStays = kChunks;  // the number of one that was there before, and is never dropped

size_t size_of(uint64_t n) {
  return 1 + n * 7919 % 60'000;
}

/// Holds transfers until the test lets them go, one at a time.
class HeldIo final : public IoBackend {
 public:
  explicit HeldIo(IoBackend& io) : io_(io) {}
  void submit(FileRead request) override { io_.submit(std::move(request)); }
  void submit(Transfer request) override {
    if (!holding_) return io_.submit(std::move(request));
    held_.push_back(std::move(request));
  }
  const char* kind() const override { return io_.kind(); }

  size_t held() const { return held_.size(); }
  /// Makes one of them, and waits for what comes of it.
  void let_go(size_t which) {
    const auto at = held_.begin() + static_cast<std::ptrdiff_t>(which);
    Transfer request = std::move(*at);
    held_.erase(at);
    Waiter<bool> ended;
    request.done = [done = std::move(request.done), end = ended.callback()](const Result<uint64_t>& moved) {
      done(moved);
      end(true);
    };
    io_.submit(std::move(request));
    (void)ended.get();
  }
  /// Makes all of them, and holds no more.
  void pass_on() {
    holding_ = false;
    while (held() > 0) let_go(0);
  }

 private:
  IoBackend& io_;
  bool holding_ = true;
  std::vector<Transfer> held_;
};

/// How many chunks are right in a store that begins with the files of another one as they are now.
size_t right_after_crash(const std::string& directory, std::atomic<size_t>& wrong) {
  StoreFixture after(IoKind::threads);
  std::filesystem::create_directory(after.directory);
  std::filesystem::permissions(after.directory, std::filesystem::perms::owner_all);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::error_code gone;  // what a compaction of the index has renamed meanwhile
    std::filesystem::copy_file(entry.path(), after.directory / entry.path().filename(), gone);
  }
  NvmeStore& store = after.open();
  size_t right = 0;
  for (uint64_t n = 0; n <= kStays; ++n) {
    const auto content = get(store, n);
    if (!content) continue;
    if (*content == content_of(n, size_of(n))) {
      ++right;
    } else {
      ++wrong;
    }
  }
  return right;
}

}  // namespace

TEST_CASE("each slot is one chunk's at a time and none is lost, whatever is written, read and dropped") {
  constexpr size_t kCrashes = 5;
  StoreFixture f(IoKind::threads);
  REQUIRE(put(f.open(), kStays, content_of(kStays, size_of(kStays))).ok());
  f.store.reset();
  HeldIo io(*f.io);
  std::mt19937 random(GENERATE(1U, 2U, 3U));
  std::atomic<size_t> refused{0};
  std::atomic<size_t> reads{0};
  std::atomic<size_t> wrong{0};
  const auto opened =
      open_nvme_store({f.directory, f.capacity}, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  const uint64_t room = store.available();
  const uint64_t bytes = store.bytes();
  const auto begin_write = [&](uint64_t n) {
    const std::string content = content_of(n, size_of(n));
    const auto buffer = std::make_shared<Buffer>(size_t{slots_for(content.size())} * kSlotSize);
    content.copy(buffer->data(), content.size());
    store.grow_for(content.size());
    store.write(key_of(n), {buffer->whole()}, static_cast<uint32_t>(content.size()),
                XXH3_64bits(content.data(), content.size()), [&, buffer](const Status& status) {
                  if (!status) ++(status.error().code == ENOSPC ? refused : wrong);
                });
  };
  const auto begin_read = [&](uint64_t n) {
    const uint32_t length = store.length_of(key_of(n));
    if (length == 0) return;
    const auto buffer = std::make_shared<Buffer>(size_t{slots_for(length)} * kSlotSize);
    store.read(key_of(n), {buffer->whole()}, [&, n, length, buffer](const Status& status) {
      const bool right = status && buffer->text(length) == content_of(n, size_of(n));
      ++(right ? reads : wrong);
    });
  };
  size_t after_crashes = 0;
  for (size_t step = 1; step <= 300 * kCrashes; ++step) {
    const uint64_t n = random() % kChunks;  // also of a chunk that is being written, or dropped while it is
    const unsigned action = random() % 10;
    if (action < 5) begin_write(n);
    if (action >= 5 && action < 8) begin_read(n);
    if (action >= 8) store.drop(key_of(n));
    while (io.held() > 10) io.let_go(random() % io.held());
    if (step % 300 == 0) after_crashes += right_after_crash(f.directory, wrong);
  }
  io.pass_on();
  for (uint64_t n = 0; n < kChunks; ++n) {
    const auto content = get(store, n);
    if (content ? *content != content_of(n, size_of(n)) : content.error().code != ENOENT) ++wrong;
    store.drop(key_of(n));
  }
  CHECK(store.available() == room);
  CHECK(store.bytes() == bytes);
  CHECK(wrong == 0);
  CHECK(refused > 0);
  CHECK(reads > 0);
  CHECK(after_crashes >= kCrashes);
  CHECK(f.metrics.nvme_checksum_failures.value() == 0);
}
