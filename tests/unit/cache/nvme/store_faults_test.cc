// Damage on disk, devices that fail, directories that vanish.
#include <random>
#include <set>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "cache/nvme/index.h"
#include "cache/tasks/task_thread.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/unit/cache/nvme/nvme_support.h"

using namespace clairfs;
using namespace clairfs::testing;

namespace {

IoKind both_kinds() {
  return GENERATE(IoKind::threads, IoKind::automatic);
}

/// Passes on to another backend what it does not fail or hold back. Failures come from a thread of its own,
/// as a backend's do.
class FaultyIo final : public IoBackend {
 public:
  explicit FaultyIo(IoBackend& io) : io_(io) {}
  void submit(FileRead request) override { io_.submit(std::move(request)); }
  void submit(Transfer request) override {
    const bool read = request.direction == Transfer::Direction::read;
    if ((read && fail_reads) || (!read && fail_writes)) {
      failures_.post([request = std::move(request), code = error](const std::atomic<bool>&) {
        request.done(system_error(code, "injected"));
      });
    } else if (read ? hold_reads : hold_writes) {
      held.push_back(std::move(request));
    } else {
      io_.submit(std::move(request));
    }
  }
  const char* kind() const override { return io_.kind(); }
  void let_go() {
    hold_reads = hold_writes = false;
    for (Transfer& request : held) io_.submit(std::move(request));
    held.clear();
  }

  bool fail_reads = false;
  bool fail_writes = false;
  int error = EIO;  // of what fails
  bool hold_reads = false;
  bool hold_writes = false;
  std::vector<Transfer> held;

 private:
  IoBackend& io_;
  TaskThread failures_{"faulty-io"};
};

void flip_byte(const std::string& path, off_t offset) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  char byte = 0;
  REQUIRE(::pread(file.get(), &byte, 1, offset) == 1);
  byte = static_cast<char>(byte ^ 1);
  REQUIRE(::pwrite(file.get(), &byte, 1, offset) == 1);
}

/// Each chunk is right, or not there, or known to be damaged. Returns how many are right.
size_t count_right(NvmeStore& store, uint64_t chunks, size_t length) {
  size_t right = 0;
  for (uint64_t n = 0; n < chunks; ++n) {
    const auto content = get(store, n);
    if (content) {
      REQUIRE((*content == content_of(n, length)));
      ++right;
    } else {
      const int code = content.error().code;
      REQUIRE((code == ENOENT || code == EBADMSG));
    }
  }
  return right;
}

/// Puts the store that is to be opened on a disk that is smaller than its capacity. Nothing, and the test is
/// over, without root.
std::unique_ptr<TmpfsMount> smaller_disk(StoreFixture& f) {
  REQUIRE(std::filesystem::create_directory(f.directory));
  auto disk = std::make_unique<TmpfsMount>(f.directory, 0UL, "size=8m,mode=700");
  if (!disk->mounted()) {
    WARN("skipped: only root can mount a tmpfs");
    return nullptr;
  }
  f.capacity = 64 << 20;
  return disk;
}

}  // namespace

TEST_CASE("a flipped byte is found, counted, told once, and the chunk can be written again") {
  StoreFixture f(both_kinds());
  const bool restart = GENERATE(false, true);
  f.open();
  REQUIRE(put(*f.store, 1, content_of(1, 10'000)).ok());
  REQUIRE(put(*f.store, 2, content_of(2, 10'000)).ok());
  if (restart) f.store.reset();
  flip_byte(f.directory + "/segment-000000", 9'999);
  NvmeStore& store = restart ? f.open() : *f.store;
  const auto content = get(store, 1);
  REQUIRE(!content.ok());
  CHECK(content.error().code == EBADMSG);
  CHECK(f.metrics.nvme_checksum_failures.value() == 1);
  CHECK(f.log.says("wrong checksum"));
  CHECK_THAT(store.troubles().damage, StartsWith("wrong checksum of the chunk at slot "));
  CHECK(store.troubles().error.empty());
  CHECK(store.length_of(key_of(1)) == 0);
  CHECK(get(store, 1).error().code == ENOENT);
  REQUIRE(put(store, 1, content_of(1, 10'000)).ok());
  CHECK((get(store, 1).value() == content_of(1, 10'000)));
  CHECK((get(store, 2).value() == content_of(2, 10'000)));
  CHECK((get(f.open(), 1).value() == content_of(1, 10'000)));
  CHECK(f.metrics.nvme_checksum_failures.value() == 1);
}

TEST_CASE("an index cut off at any length keeps what was whole") {
  StoreFixture f(IoKind::threads);
  constexpr size_t kChunks = 6;
  f.open();
  for (uint64_t n = 0; n < kChunks; ++n) REQUIRE(put(*f.store, n, content_of(n, 5000)).ok());
  f.store.reset();
  const std::string index = read_file(f.directory + "/index");
  REQUIRE(index.size() == (kChunks + 1) * sizeof(NvmeRecord));
  for (size_t length = 0; length <= index.size(); ++length) {
    write_file(f.directory + "/index", index.substr(0, length));
    INFO(length);
    NvmeStore& store = f.open();
    const size_t whole = length / sizeof(NvmeRecord);
    REQUIRE(store.chunks() == (whole == 0 ? 0 : whole - 1));
    REQUIRE(count_right(store, kChunks, 5000) == store.chunks());
    f.store.reset();
  }
  CHECK(f.log.says("starting empty"));
}

TEST_CASE("an index damaged at random never gives wrong data") {
  StoreFixture f(both_kinds());
  std::mt19937 random(11);
  constexpr uint64_t kChunks = 30;
  constexpr size_t kLength = 30'000;
  size_t kept = 0;
  f.open();
  for (uint64_t n = 0; n < kChunks; ++n) REQUIRE(put(*f.store, n, content_of(n, kLength)).ok());
  for (int round = 0; round < 150; ++round) {
    // Drops and rewrites leave a history, with chunks in several extents.
    for (int i = 0; i < 10; ++i) f.store->drop(key_of(random() % kChunks));
    for (uint64_t n = 0; n < kChunks; ++n) {
      const Status status = put(*f.store, n, content_of(n, kLength));
      REQUIRE((status || status.error().code == ENOSPC));
    }
    f.store.reset();
    std::string index = read_file(f.directory + "/index");
    const size_t damages = random() % 5;
    for (size_t i = 0; i < damages; ++i) {
      const size_t at = random() % index.size();
      switch (random() % 4) {
        case 0:
          index[at] = static_cast<char>(random());
          break;
        case 1:
          index.resize(at + 1);
          break;
        case 2:
          index.insert(at, std::string(random() % 200, static_cast<char>(random())));
          break;
        default: {  // an old record comes back
          const size_t record = at / sizeof(NvmeRecord) * sizeof(NvmeRecord);
          index += index.substr(record, sizeof(NvmeRecord));
        }
      }
    }
    write_file(f.directory + "/index", index);
    kept += count_right(f.open(), kChunks, kLength);
    REQUIRE(bytes_in(f.directory) <= f.capacity);
  }
  CHECK(kept > 0);
}

TEST_CASE("a foreign index is set aside with a warning") {
  StoreFixture f(IoKind::threads);
  f.open();
  REQUIRE(put(*f.store, 1, "one").ok());
  f.store.reset();
  write_file(f.directory + "/index", std::string(10'000, 'z'));
  NvmeStore& store = f.open();
  CHECK(store.chunks() == 0);
  CHECK(f.log.says("starting empty"));
  REQUIRE(put(store, 1, "one").ok());
  CHECK(f.open().chunks() == 1);
}

TEST_CASE("chunks of a segment that is gone are forgotten") {
  StoreFixture f(IoKind::threads);
  f.open();
  for (uint64_t n = 0; n < 12; ++n) REQUIRE(put(*f.store, n, content_of(n, 100'000)).ok());
  f.store.reset();
  REQUIRE(std::filesystem::remove(f.directory + "/segment-000001"));
  NvmeStore& store = f.open();
  CHECK(store.chunks() < 12);
  CHECK(store.chunks() > 0);
  CHECK(count_right(store, 12, 100'000) == store.chunks());
}

TEST_CASE("a store in use cannot be opened again, and says by whom it is used") {
  StoreFixture f(IoKind::threads);
  f.open();
  const auto second = f.try_open();
  REQUIRE(!second.ok());
  CHECK(second.error().code == EBUSY);
  CHECK(second.error().message.find(std::to_string(::getpid())) != std::string::npos);
}

TEST_CASE("failed reads forget the chunk; eight in a row switch the store off") {
  StoreFixture f(both_kinds());
  FaultyIo io(*f.io);
  const auto opened =
      open_nvme_store({f.directory, f.capacity}, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  for (uint64_t n = 0; n < 20; ++n) REQUIRE(put(store, n, content_of(n, 100)).ok());
  io.fail_reads = true;
  for (uint64_t n = 0; n < 7; ++n) CHECK(get(store, n).error().code == EIO);
  CHECK(store.chunks() == 13);
  io.fail_reads = false;
  CHECK(get(store, 7).ok());  // a success in between
  io.fail_reads = true;
  for (uint64_t n = 7; n < 14; ++n) CHECK(get(store, n).error().code == EIO);
  CHECK(f.metrics.nvme_disabled.value() == 0);
  CHECK(store.length_of(key_of(15)) == 100);
  CHECK(get(store, 14).error().code == EIO);
  CHECK(f.metrics.nvme_disabled.value() == 1);
  CHECK(f.metrics.nvme_errors.value() == 15);
  CHECK_THAT(store.troubles().error, StartsWith("read a chunk at slot ") && Contains("Input/output error"));
  CHECK_THAT(store.troubles().switched_off, Contains("8 failed reads in a row"));
  CHECK(store.troubles().damage.empty());
  CHECK(f.log.says("switched off"));
  CHECK(f.log.says(f.directory));
  CHECK(store.length_of(key_of(15)) == 0);
  CHECK(get(store, 15).error().code == ENOENT);
  CHECK(put(store, 30, "x").error().code == EROFS);
  CHECK(store.available() == 0);
}

TEST_CASE("a failed write stops writing but not reading") {
  StoreFixture f(both_kinds());
  FaultyIo io(*f.io);
  const auto opened =
      open_nvme_store({f.directory, f.capacity}, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  REQUIRE(put(store, 1, "one").ok());
  io.fail_writes = true;
  CHECK(put(store, 2, "two").error().code == EIO);
  io.fail_writes = false;
  CHECK(put(store, 3, "three").error().code == EROFS);
  CHECK(store.available() == 0);
  CHECK(get(store, 1).value() == "one");
  CHECK(f.metrics.nvme_disabled.value() == 1);
  CHECK(f.log.says("no longer written"));
  CHECK(store.troubles().error == "write a chunk: Input/output error");
  CHECK(store.troubles().switched_off == "write a chunk: Input/output error");
}

TEST_CASE("a write that finds the disk full ends growth, is told once, and what there is serves on") {
  StoreFixture f(both_kinds());
  FaultyIo io(*f.io);
  const auto opened =
      open_nvme_store({f.directory, f.capacity}, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  REQUIRE(put(store, 1, "one").ok());
  REQUIRE(store.available() > 1 << 20);
  io.error = ENOSPC;
  io.fail_writes = true;
  for (uint64_t n = 2; n < 5; ++n) CHECK(put(store, n, "more").error().code == ENOSPC);
  io.fail_writes = false;
  CHECK(store.available() < kSmallSegments.growth_slots * kSlotSize);
  CHECK(store.troubles().disk_full);
  CHECK(store.troubles().switched_off.empty());
  CHECK(f.metrics.nvme_full.value() == 1);
  CHECK(f.metrics.nvme_disabled.value() == 0);
  const std::string log = f.log.text.str();
  CHECK(f.log.says("stays at its present size"));
  CHECK(log.find("stays at") == log.rfind("stays at"));
  CHECK(put(store, 5, "five").ok());
  CHECK(get(store, 1).value() == "one");
}

TEST_CASE("a disk that does not answer a read or a write is a trouble until it does") {
  StoreFixture f(both_kinds());
  const bool reads = GENERATE(true, false);
  FaultyIo io(*f.io);
  NvmeOptions options{f.directory, f.capacity};
  options.patience = Duration::zero();
  const auto opened = open_nvme_store(options, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  const auto answers = [&] { return store.troubles().silent.empty(); };
  REQUIRE(put(store, 1, "one").ok());
  store.grow_for(4096);
  CHECK(eventually(answers));
  CHECK(f.metrics.nvme_silent.value() == 0);
  io.hold_reads = io.hold_writes = true;
  const Buffer buffer(kSlotSize);
  Waiter<Status> waiter;
  if (reads) {
    store.read(key_of(1), {buffer.whole()}, waiter.callback());
  } else {
    store.write(key_of(2), {buffer.whole()}, 3, 0, waiter.callback());
  }
  for (int looks = 0; looks < 2; ++looks) {
    CHECK_THAT(store.troubles().silent, StartsWith("no answer for "));
    CHECK(f.metrics.nvme_silent.value() == 1);
  }
  io.let_go();
  CHECK(waiter.get().ok());
  CHECK(eventually(answers));
  CHECK(f.metrics.nvme_silent.value() == 0);
}

TEST_CASE("what takes no longer than a disk may is no trouble") {
  StoreFixture f(IoKind::threads);
  FaultyIo io(*f.io);
  const auto opened =
      open_nvme_store({f.directory, f.capacity}, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  REQUIRE(put(store, 1, "one").ok());
  io.hold_reads = true;
  const Buffer buffer(kSlotSize);
  Waiter<Status> waiter;
  store.read(key_of(1), {buffer.whole()}, waiter.callback());
  f.clock.time += kNvmePatience - Duration(1);
  CHECK(store.troubles().silent.empty());
  f.clock.time += Duration(1);
  CHECK_THAT(store.troubles().silent, StartsWith("no answer for 10"));
  io.let_go();
  CHECK(waiter.get().ok());
}

TEST_CASE("slots of a dropped chunk are not reused while it is being read") {
  StoreFixture f(both_kinds());
  FaultyIo io(*f.io);
  const auto opened =
      open_nvme_store({f.directory, f.capacity}, kSmallSegments, io, f.clock, f.log.log, f.metrics);
  NvmeStore& store = **opened;
  REQUIRE(put(store, 1, content_of(1, 200'000)).ok());
  io.hold_reads = true;
  const Buffer buffer(size_t{slots_for(200'000)} * kSlotSize);
  Waiter<Status> waiter;
  store.read(key_of(1), {buffer.whole()}, waiter.callback());
  REQUIRE(io.held.size() == 1);
  store.drop(key_of(1));
  const uint64_t before = store.available();
  for (uint64_t n = 2; n < 30; ++n) {
    if (!put(store, n, content_of(n, 100'000)).ok()) break;
  }
  REQUIRE(put(store, 50, content_of(50, 200'000)).error().code == ENOSPC);
  io.let_go();
  REQUIRE(waiter.get().ok());
  CHECK((buffer.text(200'000) == content_of(1, 200'000)));
  CHECK(before > 0);
  CHECK(put(store, 50, content_of(50, 200'000)).ok());  // now they are free
}

TEST_CASE("a directory deleted while running: what is open goes on, growth and then writing end") {
  StoreFixture f(both_kinds());
  NvmeStore& store = f.open();
  REQUIRE(put(store, 1, content_of(1, 10'000)).ok());
  std::filesystem::remove_all(f.directory);
  CHECK((get(store, 1).value() == content_of(1, 10'000)));
  CHECK(put(store, 2, content_of(2, 10'000)).ok());  // fits what is preallocated
  CHECK(put(store, 3, content_of(3, 200'000)).error().code == ENOSPC);
  CHECK(f.log.says("has been deleted"));
  CHECK(store.troubles().cut_short == "the directory has been deleted");
  CHECK(!store.troubles().disk_full);
  CHECK(f.metrics.nvme_cut_short.value() == 1);
  CHECK(f.metrics.nvme_full.value() == 0);
  // The index cannot be compacted any more once it is full.
  const uint64_t most = 3 * uint64_t{NvmeIndexLimits::of(f.capacity).file_records};
  Status status;
  for (uint64_t n = 0; n < most || status; ++n) {
    status = put(store, 4, "x");
    store.drop(key_of(4));
    if (!status) break;
    REQUIRE(n < 1'000'000);
  }
  CHECK(status.error().code == EROFS);
  CHECK(f.metrics.nvme_disabled.value() == 1);
  CHECK((get(store, 1).value() == content_of(1, 10'000)));
}

TEST_CASE("a disk that fills up before the capacity is reached ends growth, nothing else") {
  StoreFixture f(both_kinds());
  const auto disk = smaller_disk(f);
  if (!disk) return;
  NvmeStore* store = &f.open(GENERATE(SegmentLayout(), kSmallSegments));
  uint64_t n = 0;
  while (put(*store, n, content_of(n, 100'000)).ok()) REQUIRE(++n < 1000);
  CHECK(n > 50);
  CHECK(put(*store, n, content_of(n, 100'000)).error().code == ENOSPC);
  CHECK(f.log.says("stays at its present size"));
  CHECK(store->troubles().disk_full);
  CHECK(store->troubles().cut_short.empty());
  CHECK(f.metrics.nvme_full.value() == 1);
  CHECK(f.metrics.nvme_cut_short.value() == 0);
  CHECK(count_right(*store, n, 100'000) == n);
  store->drop(key_of(0));
  CHECK(put(*store, n, content_of(n, 100'000)).ok());
  CHECK(f.metrics.nvme_disabled.value() == 0);
}

TEST_CASE("a disk that is full has room for the index to be compacted") {
  StoreFixture f(IoKind::threads);
  const auto disk = smaller_disk(f);
  if (!disk) return;
  NvmeStore* store = &f.open();
  if (GENERATE(false, true)) store = &f.open();  // with an index that is there already
  uint64_t chunks = 0;
  while (put(*store, chunks, "x").ok()) REQUIRE(++chunks < 10'000);
  REQUIRE(store->troubles().disk_full);
  REQUIRE(chunks > 1000);  // their records take more than growth leaves of the disk
  const NvmeIndexLimits limits = NvmeIndexLimits::of(f.capacity);
  for (uint64_t n = 0; n < limits.file_records; n += 2) {  // two records each
    store->drop(key_of(0));
    REQUIRE(put(*store, 0, "x").ok());
  }
  store = &f.open();
  CHECK(store->chunks() == chunks);
  CHECK(f.metrics.nvme_disabled.value() == 0);
  CHECK(f.metrics.nvme_errors.value() == 0);
  CHECK(bytes_in(f.directory) <= f.capacity);
}

TEST_CASE("killed in the midst of writing, the store opens warm and right") {
  StoreFixture f(IoKind::threads);
  constexpr size_t kLength = 20'000;
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  IoOptions options;
  options.kind = IoKind::threads;
  f.io.reset();  // no threads across fork()
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // should the test fail before it kills
    f.io = std::move(make_io_backend(options, f.log.log).value());
    for (uint64_t n = 50; n < 60; ++n) {
      if (!put(f.open(), n, content_of(n, kLength)).ok()) ::_exit(1);
    }
    NvmeStore& store = f.open();  // those are in the index now
    for (uint64_t n = 0;; ++n) {
      if (!put(store, n % 50, content_of(n % 50, kLength)).ok()) ::_exit(1);
      if (n >= 25) store.drop(key_of((n - 25) % 50));
      if (n == 200 && ::write(pipe_ends[1], "x", 1) != 1) ::_exit(1);
    }
  }
  char byte = 0;
  REQUIRE(::read(pipe_ends[0], &byte, 1) == 1);
  REQUIRE(::kill(child, SIGKILL) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  f.io = std::move(make_io_backend(options, f.log.log).value());
  NvmeStore& store = f.open();
  // Of the others it depends on how far the index was behind.
  CHECK(count_right(store, 60, kLength) >= 10);
  for (uint64_t n = 50; n < 60; ++n) CHECK(get(store, n).ok());
  CHECK(bytes_in(f.directory) <= f.capacity);
}
