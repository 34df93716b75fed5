#include "cache/source/pfs_source.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/catalog/scan.h"
#include "cache/tasks/task_thread.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

/// A backend with so many descriptors: reads beyond fail, the others wait until the test ends them.
class FewDescriptors final : public IoBackend {
 public:
  explicit FewDescriptors(size_t most) : most_(most) {}
  void submit(FileRead request) override {
    const bool fails = waiting_.size() >= most_ && request.open_fd < 0;
    (fails ? failed_ : waiting_).push_back(std::move(request));
  }
  void submit(Transfer) override { FAIL("not for sources"); }
  const char* kind() const override { return "test"; }

  /// Ends what has failed, then one that has not. False when there is nothing.
  bool step(const Catalog& catalog) {
    if (!failed_.empty()) {
      ++failures;
      take(failed_).done(Error{EMFILE, "open: Too many open files"});
    } else if (!waiting_.empty()) {
      const FileRead read = take(waiting_);
      if (error != 0) {
        read.done(Error{error, "read: injected"});
        return true;
      }
      const FileId file = *catalog.find(read.path);
      FileRead::Outcome outcome;
      outcome.bytes = read.memory[0].iov_len;
      outcome.stamp = catalog.stamp(file);
      read.done(std::move(outcome));
    } else {
      return false;
    }
    return true;
  }
  void set_most(size_t most) { most_ = most; }

  size_t failures = 0;
  int error = 0;  // of those that have not failed

 private:
  static FileRead take(std::deque<FileRead>& from) {
    FileRead first = std::move(from.front());
    from.pop_front();
    return first;
  }
  size_t most_;
  std::deque<FileRead> waiting_;
  std::deque<FileRead> failed_;
};

struct Fixture {
  explicit Fixture(size_t descriptors) : io(descriptors) {
    for (int i = 0; i < 500; ++i) tree.write("f" + std::to_string(i), 100);
    catalog = *scan_catalog(tree.path(), {}, log.logger());
    source = std::make_unique<PfsSource>(*catalog, Fd(), io, PfsOptions{}, clock, metrics, log.logger(),
                                         [](FileId) {});
  }
  /// The first `length` bytes of a file; 0: only compares it.
  std::shared_ptr<Demand> fetch(int file, Priority priority = {Priority::Kind::prefetch, 0},
                                uint64_t length = 100) {
    auto demand = std::make_shared<Demand>(priority);
    source->start({*catalog->find("f" + std::to_string(file)),
                   0,
                   length,
                   {{memory.data(), length}},
                   demand,
                   FetchScope::anywhere,
                   [this, file](const Fetched& result) {
                     ended.push_back(file);
                     if (!result) errors.push_back(result.error().code);
                     failure = result.failure();
                   }});
    return demand;
  }
  void run() {
    while (io.step(*catalog)) {
    }
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock;
  FewDescriptors io;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<PfsSource> source;
  std::vector<char> memory = std::vector<char>(100);
  std::vector<int> ended;
  std::vector<int> errors;
  FetchFailure failure = FetchFailure::ordinary;  // of the last one
};

}  // namespace

TEST_CASE("fetches wait for descriptors that others have") {
  Fixture f(3);
  for (int i = 0; i < 500; ++i) f.fetch(i);
  f.run();
  CHECK(f.ended.size() == 500);
  CHECK(f.errors.empty());
  CHECK(f.metrics.pfs_errors.value() == 0);
  CHECK(f.metrics.pfs_in_flight.value() == 0);
  CHECK(f.log.lines_with("Too many open files") == 1);
  // What the first round lacked, and an attempt now and then.
  CHECK(f.io.failures < 16 + 500 / 32);
}

TEST_CASE(
    "few fills are under way while nothing is known of the source, and none of a plan's waits for them") {
  Fixture f(500);
  for (int i = 0; i < 40; ++i) f.fetch(i, {Priority::Kind::background, 0});
  CHECK(f.metrics.pfs_in_flight.value() == FillLimit::kLeast);
  f.fetch(40);
  CHECK(f.metrics.pfs_in_flight.value() == FillLimit::kLeast + 1);
  f.run();
  CHECK(f.ended.size() == 41);
  CHECK(f.errors.empty());
}

TEST_CASE("a reader's fetch overtakes those that wait for descriptors") {
  Fixture f(2);
  for (int i = 0; i < 20; ++i) f.fetch(i);
  f.io.step(*f.catalog);  // one of the first sixteen has failed and waits again
  f.fetch(100, Priority{});
  f.run();
  CHECK(f.ended.size() == 21);
  CHECK(f.errors.empty());
  CHECK(std::find(f.ended.begin(), f.ended.end(), 100) - f.ended.begin() < 16);
}

TEST_CASE("a fetch whose demand rises overtakes the others, and its file is read once") {
  Fixture f(100);
  for (int i = 0; i < 40; ++i) f.fetch(i, {Priority::Kind::background, 0});
  const auto demand = f.fetch(100, {Priority::Kind::prefetch, 9});
  const auto unknown = std::make_shared<Demand>(Priority{});
  f.source->demand_changed(*unknown);
  f.fetch(101, {Priority::Kind::prefetch, 5});
  REQUIRE(demand->raise({Priority::Kind::prefetch, 1}));
  f.source->demand_changed(*demand);
  f.run();
  const auto place = [&](int file) {
    return std::find(f.ended.begin(), f.ended.end(), file) - f.ended.begin();
  };
  CHECK(f.ended.size() == 42);
  CHECK(place(100) < place(101));
  CHECK(place(101) < place(39));
  f.source->demand_changed(*demand);  // after its end
}

TEST_CASE("without any descriptor a fetch fails, and later ones do not once there are some") {
  Fixture f(0);
  f.fetch(1);
  f.run();
  CHECK(f.errors == std::vector{EMFILE});
  f.io.set_most(64);
  for (int i = 0; i < 100; ++i) f.fetch(i);
  f.run();
  CHECK(f.ended.size() == 101);
  CHECK(f.errors.size() == 1);
}

TEST_CASE("the errno of a filesystem is handed on, whatever it is") {
  Fixture f(1);
  f.io.error = GENERATE(EIO, EKEYEXPIRED, ENOTRECOVERABLE);
  f.fetch(1);
  f.run();
  CHECK(f.errors == std::vector{f.io.error});
  CHECK(f.failure == FetchFailure::ordinary);
  CHECK(f.source->troubles().failed == std::string("f1 (") + std::strerror(f.io.error) + ")");
}

TEST_CASE("a file that is only compared, and has another ctime, is told from one that changed") {
  Fixture f(1);
  f.fetch(1, Priority{}, 0);
  f.run();
  CHECK(f.errors.size() == 1);
  CHECK(f.failure == FetchFailure::other_ctime);
  CHECK(f.metrics.pfs_stale_files.value() == 0);
  f.fetch(1);  // a read does not look at it
  f.run();
  CHECK(f.errors.size() == 1);
}

namespace {

/// Reads wait until the test ends them, and nothing is closed before its end.
class OpenReads final : public IoBackend {
 public:
  void submit(FileRead request) override { reads.push_back(std::move(request)); }
  void submit(Transfer) override { FAIL("not for sources"); }
  void close(Fd file) override { closed.push_back(std::move(file)); }
  const char* kind() const override { return "test"; }

  std::vector<Fd> closed;  // first: reads that go away close files
  std::deque<FileRead> reads;
};

/// A source of one file, whose path is too long for one system call.
struct DeepFixture {
  DeepFixture() {
    const std::string name(250, 'd');
    while (path.size() < 4096) {
      REQUIRE(::mkdirat(folder.get(), name.c_str(), 0755) == 0);
      folder.reset(::openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      REQUIRE(folder.get() >= 0);
      path += name + "/";
    }
    path += "file";
    const Fd file(::openat(folder.get(), "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    REQUIRE(file.get() >= 0);
    catalog = *scan_catalog(tree.path(), {}, log.logger());
    read_below(Fd(::open(tree.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  }
  void read_below(Fd root) {
    source = std::make_unique<PfsSource>(*catalog, std::move(root), io, PfsOptions{}, clock, metrics,
                                         log.logger(), [](FileId) {});
  }
  /// The descriptor that the backend is given for a read of the file; -1: only its path.
  int open_fd() {
    FetchRequest request;
    request.file = *catalog->find(path);
    request.demand = std::make_shared<Demand>(Priority{});
    request.done = [this](const Fetched& outcome) { error = outcome ? 0 : outcome.error().code; };
    source->start(std::move(request));
    REQUIRE(io.reads.size() == 1);
    return io.reads.front().open_fd;
  }
  /// As a backend that is given the path.
  void refuse() { io.reads.front().done(Error{ENAMETOOLONG, "open: File name too long"}); }

  TempTree tree;
  Fd folder{::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  std::string path;
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock{};
  std::shared_ptr<const Catalog> catalog;
  OpenReads io;
  int error = 0;  // of the fetch
  std::unique_ptr<PfsSource> source;
};

/// A source of one file of two chunks.
struct LargeFile {
  static constexpr uint32_t kChunk = 4096;

  LargeFile() {
    tree.write("file", 2 * kChunk);
    ScanOptions scan;
    scan.chunk_size = kChunk;
    catalog = *scan_catalog(tree.path(), scan, log.logger());
    source = std::make_unique<PfsSource>(*catalog, Fd(), io, PfsOptions{}, clock, metrics, log.logger(),
                                         [](FileId) {});
    REQUIRE(fetch() == -1);
    answer(opened());
    ended.clear();
    REQUIRE(fetch() >= 0);
  }
  /// Asks for its first chunk. The descriptor that the backend is given; -1: only the path.
  int fetch() {
    FetchRequest request;
    request.file = *catalog->find("file");
    request.length = kChunk;
    request.memory = {{memory.data(), kChunk}};
    request.demand = std::make_shared<Demand>(Priority{});
    request.done = [this](const Fetched& fetched) { ended.push_back(fetched ? 0 : fetched.error().code); };
    source->start(std::move(request));
    return submitted();
  }
  int submitted() {
    REQUIRE(io.reads.size() == 1);
    return io.reads.front().open_fd;
  }
  FileRead::Outcome opened() {
    FileRead::Outcome outcome;
    outcome.bytes = kChunk;
    outcome.stamp = catalog->stamp(*catalog->find("file"));
    if (submitted() < 0) outcome.fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return outcome;
  }
  void answer(Result<FileRead::Outcome> outcome) {
    const FileRead read = std::move(io.reads.front());
    io.reads.pop_front();
    read.done(std::move(outcome));
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock{};
  std::shared_ptr<const Catalog> catalog;
  std::vector<char> memory = std::vector<char>(kChunk);
  std::vector<int> ended;  // what became of each fetch: 0 or its error
  OpenReads io;
  std::unique_ptr<PfsSource> source;
};

}  // namespace

TEST_CASE("a file whose path is too long for one system call is opened as one that a ring may read") {
  DeepFixture f;
  const int flags = ::fcntl(f.open_fd(), F_GETFL);
  REQUIRE(flags >= 0);
  CHECK((flags & O_NONBLOCK) == 0);
}

TEST_CASE("a FIFO that has taken the place of a file with such a path is not read") {
  DeepFixture f;
  REQUIRE(::unlinkat(f.folder.get(), "file", 0) == 0);
  REQUIRE(::mkfifoat(f.folder.get(), "file", 0600) == 0);
  CHECK(f.open_fd() == -1);
  f.refuse();
  CHECK(f.error == ESTALE);
}

TEST_CASE("a file with such a path that cannot be opened just now has not changed") {
  DeepFixture f;
  f.read_below(Fd());
  CHECK(f.open_fd() == -1);
  f.refuse();
  CHECK(f.error == EBADF);
  CHECK(f.metrics.pfs_stale_files.value() == 0);
}

TEST_CASE("a descriptor that was kept and fails is used no more, and its file is opened anew once") {
  LargeFile f;
  f.answer(Error{EIO, "read: a server that restarted"});
  CHECK(f.ended.empty());
  CHECK(f.submitted() == -1);
  SECTION("and read") {
    f.answer(f.opened());
    CHECK(f.ended == std::vector<int>{0});
    CHECK(f.fetch() >= 0);
    f.answer(f.opened());
  }
  SECTION("not again where that fails, too") {
    f.answer(Error{EIO, "open: a server that is down"});
    CHECK(f.ended == std::vector<int>{EIO});
    CHECK(f.fetch() == -1);
    f.answer(f.opened());
  }
  CHECK(f.ended.back() == 0);
}

TEST_CASE("large files that are kept open no more are closed by the backend, whatever that takes") {
  constexpr uint32_t kChunk = 4096;
  constexpr size_t kFiles = PfsSource::kOpenFiles + 2;
  TempTree tree;
  for (size_t i = 0; i < kFiles; ++i) tree.write("f" + std::to_string(i), 2 * kChunk);
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock;
  ScanOptions scan;
  scan.chunk_size = kChunk;
  const std::shared_ptr<const Catalog> catalog = *scan_catalog(tree.path(), scan, log.logger());
  std::vector<char> memory(kChunk);
  size_t answers = 0;
  OpenReads io;
  auto source = std::make_unique<PfsSource>(*catalog, Fd(), io, PfsOptions{}, clock, metrics, log.logger(),
                                            [](FileId) {});
  for (size_t i = 0; i < kFiles; ++i) {
    FetchRequest request;
    request.file = *catalog->find("f" + std::to_string(i));
    request.length = kChunk;
    request.memory = {{memory.data(), kChunk}};
    request.demand = std::make_shared<Demand>(Priority{});
    request.done = [&answers](const Fetched& fetched) { answers += fetched ? 1 : 0; };
    FileRead::Outcome outcome;
    outcome.bytes = kChunk;
    outcome.stamp = catalog->stamp(request.file);
    outcome.fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    source->start(std::move(request));
    REQUIRE(io.reads.size() == 1);
    CHECK(io.reads.front().keep_open);
    io.reads.front().done(std::move(outcome));
    io.reads.pop_front();
  }
  CHECK(answers == kFiles);
  CHECK(io.closed.size() == kFiles - PfsSource::kOpenFiles);
  source.reset();
  CHECK(io.closed.size() == kFiles);
}

namespace {

/// Servers that hang: files whose names end in 0 to 8 are never read, the others at once, by a thread of its
/// own.
class Hanging final : public IoBackend {
 public:
  explicit Hanging(const Catalog& catalog) : catalog_(catalog) {}
  void submit(FileRead request) override {
    if (hung() >= descriptors) {
      answers_.post([read = std::move(request)](const std::atomic<bool>&) {
        read.done(Error{EMFILE, "open: Too many open files"});
      });
      return;
    }
    if (request.path.back() == '9') {
      answers_.post([this, read = std::move(request)](const std::atomic<bool>&) { answer(read); });
      return;
    }
    {
      MutexLock lock(mutex_);
      hung_.push_back(std::move(request));
    }
    points.pass();
  }
  void submit(Transfer) override { FAIL("not for sources"); }
  const char* kind() const override { return "test"; }

  size_t hung() {
    MutexLock lock(mutex_);
    return hung_.size();
  }
  void release() {
    for (;;) {
      std::deque<FileRead> released;
      {
        MutexLock lock(mutex_);
        released.swap(hung_);
      }
      if (released.empty()) return;
      for (const FileRead& read : released) answer(read);
    }
  }

  SequencePoints points;                      // passed by each operation that hangs
  std::atomic<size_t> descriptors{SIZE_MAX};  // for operations that hang; with as many no other opens a file

 private:
  void answer(const FileRead& read) const {
    FileRead::Outcome outcome;
    outcome.bytes = read.memory[0].iov_len;
    outcome.stamp = catalog_.stamp(*catalog_.find(read.path));
    read.done(std::move(outcome));
  }
  const Catalog& catalog_;
  Mutex mutex_;
  std::deque<FileRead> hung_ GUARDED_BY(mutex_);
  TaskThread answers_{"hanging-io"};  // last: uses the others
};

/// Counts the source's looks at the time: one whenever it looks for an operation that it may start.
class CountingClock final : public Clock {
 public:
  TimePoint now() const override {
    looks.raise();
    return clock_.now();
  }

  mutable AwaitedCount looks{};

 private:
  SteadyClock clock_{};
};

}  // namespace

TEST_CASE("operations that hang do not hold up the others, and are not more than the most") {
  TempTree tree;
  for (int i = 0; i < 200; ++i) tree.write("f" + std::to_string(i), 100);
  CapturedLog log;
  Metrics metrics;
  const CountingClock clock;
  const auto catalog = *scan_catalog(tree.path(), {}, log.logger());
  Hanging io(*catalog);
  PfsOptions options;
  options.stuck = std::chrono::milliseconds(20);
  PfsSource source(*catalog, Fd(), io, options, clock, metrics, log.logger(), [](FileId) {});
  std::vector<char> memory(100);
  std::atomic<int> ended = 0;
  const auto fetch = [&](int file, Priority::Kind kind = Priority::Kind::prefetch) {
    source.start({*catalog->find("f" + std::to_string(file)),
                  0,
                  100,
                  {{memory.data(), 100}},
                  std::make_shared<Demand>(Priority{kind, 0}),
                  FetchScope::anywhere,
                  [&](const Fetched& result) {
                    ended += result.ok();
                    io.points.pass();
                  }});
  };
  for (int i = 0; i < 30; ++i) fetch(10 * i % 180);
  for (int i = 0; i < 5; ++i) fetch(10 * i + 9);
  CHECK(io.points.wait_until([&] { return ended == 5; }));  // though nothing else ended meanwhile
  CHECK(io.hung() == 30);
  // Only time tells that.
  CHECK(eventually([&] {
    CHECK_THAT(source.troubles().silent, StartsWith("f0, for "));  // the first
    return metrics.pfs_silent.value() == 30;
  }));
  for (int i = 0; i < 100; ++i) fetch(1);
  // All but what is left to readers.
  CHECK(io.points.wait_until([&] { return io.hung() == 60; }));
  CHECK(eventually([&] {
    (void)source.troubles();
    return metrics.pfs_silent.value() == 60;
  }));
  CHECK(clock.looks.reaches(clock.looks.value() + 3));  // at least two of them are over
  CHECK(io.hung() == 60);
  for (int i = 0; i < 3; ++i) fetch(1, Priority::Kind::demand);
  CHECK(io.points.wait_until([&] { return io.hung() == 63; }));
  fetch(9, Priority::Kind::demand);
  CHECK(io.points.wait_until([&] { return ended == 6; }));
  CHECK(io.points.wait_until([&] {
    io.release();
    return ended == 139;
  }));
  CHECK(source.troubles().silent.empty());
  CHECK(metrics.pfs_silent.value() == 0);
}

TEST_CASE("where operations that hang keep the descriptors, others are tried again") {
  TempTree tree;
  for (int i = 0; i < 10; ++i) tree.write("f" + std::to_string(i), 100);
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock;
  const auto catalog = *scan_catalog(tree.path(), {}, log.logger());
  Hanging io(*catalog);
  io.descriptors = 3;
  PfsOptions options;
  options.stuck = std::chrono::milliseconds(20);
  PfsSource source(*catalog, Fd(), io, options, clock, metrics, log.logger(), [](FileId) {});
  std::vector<char> memory(100);
  std::atomic<int> ended = 0;
  const auto fetch = [&](int file) {
    source.start({*catalog->find("f" + std::to_string(file)),
                  0,
                  100,
                  {{memory.data(), 100}},
                  std::make_shared<Demand>(Priority{}),
                  FetchScope::anywhere,
                  [&](const Fetched& result) {
                    ended += result.ok();
                    io.points.pass();
                  }});
  };
  for (int i = 0; i < 3; ++i) fetch(i);
  CHECK(io.points.wait_until([&] { return io.hung() == 3; }));
  fetch(9);
  CHECK(eventually([&] { return log.has("Too many open files"); }));
  io.descriptors = SIZE_MAX;  // another program has given some up
  CHECK(io.points.wait_until([&] { return ended == 1; }));
  io.release();
  CHECK(ended == 4);
}
