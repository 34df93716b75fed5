#include "cache/io/backend.h"

#include <atomic>
#include <thread>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/support/catch.h"
#include "tests/unit/cache/io/io_support.h"

using namespace clairfs;
using namespace clairfs::testing;

namespace {

/// The backend under test; each test runs once with threads and once with io_uring (where it is allowed).
struct Subject {
  CapturedLog log;
  std::unique_ptr<IoBackend> io;

  explicit Subject(unsigned depth = 8) {
    IoOptions options;
    options.kind = GENERATE(IoKind::threads, IoKind::automatic);
    options.depth = depth;
    io = std::move(make_io_backend(options, log.log).value());
    INFO(io->kind());
  }
};

struct Directory : TemporaryDirectory {
  Fd fd{::open(path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
};

std::string pattern(size_t size, unsigned seed) {
  std::string text(size, '\0');
  for (char& c : text) {
    seed = seed * 1664525 + 1013904223;
    c = static_cast<char>(seed >> 24);
  }
  return text;
}

}  // namespace

TEST_CASE("a file is read with its stamp, from any offset, up to its end") {
  Subject subject;
  const bool local = GENERATE(false, true);
  Directory dir;
  const std::string content = pattern(300'000, 1);
  write_file(dir / "f", content);
  struct stat st;
  REQUIRE(::stat((dir / "f").c_str(), &st) == 0);
  const Buffer buffer(400'000);
  for (const size_t offset :
       {size_t{0}, size_t{1}, size_t{4096}, size_t{299'999}, size_t{300'000}, size_t{500'000}}) {
    const auto outcome = read_whole(*subject.io, dir.fd.get(), "f", offset, {buffer.whole()}, local);
    REQUIRE(outcome.ok());
    const std::string expected = offset < content.size() ? content.substr(offset) : "";
    CHECK(outcome->bytes == expected.size());
    CHECK(buffer.text(expected.size()) == expected);
    CHECK(outcome->stamp.size == content.size());
    CHECK(outcome->stamp.mtime_ns == int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec);
  }
  // Scattered over more pieces than one system call takes.
  std::vector<iovec> pieces;
  for (size_t i = 0; i < 3000; ++i) pieces.push_back({buffer.data() + i * 100, 100});
  const auto outcome = read_whole(*subject.io, dir.fd.get(), "f", 0, pieces, local);
  REQUIRE(outcome.ok());
  CHECK(outcome->bytes == content.size());
  CHECK(buffer.text(content.size()) == content);
  // Nothing asked for: the stamp alone.
  const auto nothing = read_whole(*subject.io, dir.fd.get(), "f", 0, {}, local);
  REQUIRE(nothing.ok());
  CHECK(nothing->bytes == 0);
  CHECK(nothing->stamp.size == content.size());
}

TEST_CASE("what cannot be read gives the errno and the path") {
  Subject subject;
  Directory dir;
  REQUIRE(::mkdir((dir / "directory").c_str(), 0700) == 0);
  REQUIRE(::symlink("missing", (dir / "link").c_str()) == 0);
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  const Buffer buffer(4096);
  const std::pair<const char*, int> cases[] = {
      {"missing", ENOENT}, {"directory", EISDIR}, {"link", ELOOP}, {"fifo", ESPIPE}, {"missing/f", ENOENT}};
  for (const auto& [name, code] : cases) {
    const auto outcome = read_whole(*subject.io, dir.fd.get(), name, 0, {buffer.whole()});
    INFO(name);
    REQUIRE(!outcome.ok());
    CHECK(outcome.error().code == code);
    CHECK(outcome.error().message.find(name) != std::string::npos);
  }
  CHECK(transfer(*subject.io, Transfer::Direction::read, -1, 0, {buffer.whole()}).error().code == EBADF);
}

TEST_CASE("a descriptor that is handed over is closed") {
  Subject subject;
  int ends[2] = {-1, -1};
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd reader(ends[0]);
  subject.io->close(Fd(ends[1]));
  pollfd end{reader.get(), 0, 0};
  CHECK(::poll(&end, 1, 60'000) == 1);
  CHECK((end.revents & POLLHUP) != 0);
}

TEST_CASE("a transfer moves everything there is") {
  Subject subject;
  Directory dir;
  const Fd file(::open((dir / "f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::string content = pattern(5 << 20, 2);
  Buffer buffer(content.size());
  content.copy(buffer.data(), content.size());
  const auto written = transfer(*subject.io, Transfer::Direction::write, file.get(), 100, {buffer.whole()});
  REQUIRE(written.ok());
  CHECK(*written == content.size());
  const Buffer back(content.size() + 4096);
  const auto read = transfer(*subject.io, Transfer::Direction::read, file.get(), 100, {back.whole()});
  REQUIRE(read.ok());
  CHECK(*read == content.size());
  CHECK((back.text(content.size()) == content));
  CHECK(transfer(*subject.io, Transfer::Direction::read, file.get(), 0, {}).value() == 0);
}

TEST_CASE("more requests than depth, from several threads, are each completed once") {
  Subject subject(4);
  Directory dir;
  constexpr size_t kFiles = 50;
  constexpr size_t kThreads = 4;
  constexpr size_t kRequests = 500;
  std::vector<std::string> contents;
  for (size_t i = 0; i < kFiles; ++i) {
    contents.push_back(pattern(1 + i * 1777, static_cast<unsigned>(i)));
    write_file(dir / std::to_string(i), contents.back());
  }
  struct Request {
    Buffer buffer{100'000};
    std::atomic<int> completions{0};
    bool right = false;
  };
  std::vector<Request> requests(kThreads * kRequests);
  std::atomic<size_t> left{requests.size()};
  std::promise<void> all;
  std::vector<std::thread> submitters;
  for (size_t t = 0; t < kThreads; ++t) {
    submitters.emplace_back([&, t] {
      for (size_t i = t * kRequests; i < (t + 1) * kRequests; ++i) {
        FileRead read;
        read.directory_fd = dir.fd.get();
        read.path = std::to_string(i % kFiles);
        read.memory = {requests[i].buffer.whole()};
        read.done = [&, i](const Result<FileRead::Outcome>& outcome) {
          const std::string& expected = contents[i % kFiles];
          requests[i].right = outcome && outcome->bytes == expected.size() &&
                              requests[i].buffer.text(expected.size()) == expected;
          requests[i].completions++;
          if (--left == 0) all.set_value();
        };
        subject.io->submit(std::move(read));
      }
    });
  }
  for (auto& t : submitters) t.join();
  all.get_future().get();
  subject.io.reset();
  for (const Request& request : requests) {
    REQUIRE(request.completions == 1);
    REQUIRE(request.right);
  }
}

TEST_CASE("destruction completes what is outstanding, also what call-backs submit meanwhile") {
  Subject subject(2);
  Directory dir;
  write_file(dir / "f", pattern(100'000, 3));
  const Buffer buffers(100 * 100'000);
  std::atomic<int> completed{0};
  IoBackend& io = *subject.io;
  std::function<void(int, int)> submit = [&](int slot, int generations) {
    FileRead read;
    read.directory_fd = dir.fd.get();
    read.path = "f";
    read.memory = {{buffers.data() + slot * 100'000, 100'000}};
    read.done = [&, slot, generations](const Result<FileRead::Outcome>& outcome) {
      if (outcome) ++completed;
      if (generations > 1) submit(slot, generations - 1);
    };
    io.submit(std::move(read));
  };
  for (int i = 0; i < 100; ++i) submit(i, 3);
  subject.io.reset();
  CHECK(completed == 300);
}

TEST_CASE("no descriptor is left open") {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  Directory dir;
  write_file(dir / "f", "content");
  const auto before = descriptors();
  {
    Subject subject;
    const Buffer buffer(4096);
    for (int i = 0; i < 100; ++i) {
      REQUIRE(read_whole(*subject.io, dir.fd.get(), i % 2 == 0 ? "f" : "missing", 0, {buffer.whole()}).ok() ==
              (i % 2 == 0));
    }
  }
  CHECK(descriptors() == before);
}

TEST_CASE("a file that is handed over is one that a ring may read") {
  Subject subject;
  Directory dir;
  write_file(dir / "f", "content");
  Waiter<Result<FileRead::Outcome>> waiter;
  FileRead read;
  read.directory_fd = dir.fd.get();
  read.path = "f";
  read.keep_open = true;
  read.done = waiter.callback();
  subject.io->submit(std::move(read));
  const auto outcome = waiter.get();
  REQUIRE(outcome.ok());
  const int flags = ::fcntl(outcome->fd.get(), F_GETFL);
  REQUIRE(flags >= 0);
  CHECK((flags & O_NONBLOCK) == 0);
}

TEST_CASE("what lies on another filesystem than the root's is opened as any other") {
  Subject subject;
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Buffer buffer(4096);
  const auto outcome = read_whole(*subject.io, root.get(), "proc/version", 0, {buffer.whole()}, true);
  REQUIRE(outcome.ok());
  CHECK(buffer.text(outcome->bytes) == read_file("/proc/version"));
}

TEST_CASE("a local file that is missing or a symlink gives the error of any other") {
  Subject subject;
  Directory dir;
  write_file(dir / "f", "content");
  REQUIRE(::symlink("f", (dir / "link").c_str()) == 0);
  const Buffer buffer(4096);
  for (const char* path : {"missing", "link"}) {
    const auto one = read_whole(*subject.io, dir.fd.get(), path, 0, {buffer.whole()}, true);
    const auto other = read_whole(*subject.io, dir.fd.get(), path, 0, {buffer.whole()});
    REQUIRE(!one);
    CHECK(one.error().code == other.error().code);
  }
}

TEST_CASE("an idle backend takes no processor time") {
  Subject subject;
  Directory dir;
  write_file(dir / "f", "content");
  const Buffer buffer(4096);
  REQUIRE(read_whole(*subject.io, dir.fd.get(), "f", 0, {buffer.whole()}).ok());
  const auto switches = [] {  // of the backend's own threads
    uint64_t total = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (read_file(task.path() / "comm") != "io\n") continue;
      const std::string status = read_file(task.path() / "status");
      const std::string field = "\nvoluntary_ctxt_switches:";
      total += std::stoull(status.substr(status.find(field) + field.size()));
    }
    return total;
  };
  // No thread of the backend wakes up, in real time; but on a busy machine one may not have come to rest
  // before.
  bool idle = false;
  for (int i = 0; i < 100 && !idle; ++i) {
    const uint64_t before = switches();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    idle = before > 0 && switches() == before;
  }
  CHECK(idle);
}

namespace {

/// Runs `body` in a child where io_uring_setup() fails with `code`, and returns its exit status.
template <class Body>
int without_io_uring(int code, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_io_uring_setup},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(90);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(91);
    ::_exit(body());
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("where io_uring is forbidden, auto takes threads and says so once") {
  Directory dir;
  write_file(dir / "f", "content");
  const int code = GENERATE(EPERM, ENOSYS, ENOMEM);
  const int status = without_io_uring(code, [&] {
    CapturedLog log;
    auto io = make_io_backend(IoOptions(), log.log);
    if (!io) return 1;
    if (std::string("threads") != (*io)->kind()) return 2;
    if (log.lines() != 1 || !log.says(std::generic_category().message(code))) return 3;
    const Buffer buffer(4096);
    const auto outcome = read_whole(**io, dir.fd.get(), "f", 0, {buffer.whole()});
    return outcome && buffer.text(outcome->bytes) == "content" ? 0 : 4;
  });
  CHECK(status == 0);
}

TEST_CASE("where io_uring is forbidden, asking for it is an error that names the way out") {
  const int status = without_io_uring(EPERM, [] {
    CapturedLog log;
    IoOptions options;
    options.kind = IoKind::uring;
    const auto io = make_io_backend(options, log.log);
    if (io) return 1;
    if (io.error().code != EPERM) return 2;
    return io.error().message.find("--io=threads") != std::string::npos ? 0 : 3;
  });
  CHECK(status == 0);
}
