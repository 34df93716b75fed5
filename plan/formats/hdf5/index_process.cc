#include "plan/formats/hdf5/index_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cache/base/fd.h"
#include "cache/tasks/spawn.h"
#include "plan/formats/hdf5/tree_ahead.h"
#include "plan/spec/keys.h"

namespace clairfs::hdf5 {
namespace {

using Clock = std::chrono::steady_clock;

// The index of 100 million chunks is read in 1.6 million pieces. A file that makes libhdf5 go round in
// circles costs no more memory than that of so many.
constexpr size_t kMostReads = 4 << 20;

Error cannot(const std::string& why) {
  return {EINVAL, "cannot be read: " + why};
}

std::string path_of_helper() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  // Where it is built, where it is installed, and where tests find it.
  for (const char* place : {".", "../libexec/clairfs", ".."}) {
    const auto path = folder / place / kHelperName;
    if (std::filesystem::exists(path, error)) return path.lexically_normal();
  }
  return (folder / kHelperName).native();
}

timeval time_of(std::chrono::milliseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  timeval time{};
  time.tv_sec = seconds.count();
  time.tv_usec = std::chrono::microseconds(duration - seconds).count();
  return time;
}

// The process and our end of its socket. It is gone when this is.
class Helper {
 public:
  Helper() = default;
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() { end(); }

  Status start(const std::string& program, std::vector<std::string> words, std::chrono::milliseconds silence);
  // False when it is silent for too long, or gone.
  bool receive(void* to, size_t bytes);
  bool send(const void* from, size_t bytes);
  // Kills it if need be. How it ended; empty: by itself, without an error.
  std::string end();

 private:
  Fd socket_;
  pid_t process_ = 0;
  bool hung_up_ = false;
};

Status Helper::start(const std::string& program, std::vector<std::string> words,
                     std::chrono::milliseconds silence) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return system_error(errno, "plan: socketpair");
  socket_.reset(ends[0]);
  const Fd theirs(ends[1]);
  const timeval patience = time_of(silence);
  for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(socket_.get(), SOL_SOCKET, direction, &patience, sizeof patience);

  const Result<pid_t> process =
      spawn({.program = program, .arguments = std::move(words), .files = {theirs.get(), -1, -1}});
  if (!process) return cannot(process.error().message);
  process_ = *process;
  return {};
}

bool Helper::receive(void* to, size_t bytes) {
  if (bytes == 0) return true;
  const ssize_t got = ::recv(socket_.get(), to, bytes, MSG_WAITALL);
  hung_up_ = hung_up_ || got == 0;
  return got == static_cast<ssize_t>(bytes);
}

bool Helper::send(const void* from, size_t bytes) {
  std::string_view rest(static_cast<const char*>(from), bytes);
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      hung_up_ = hung_up_ || errno == EPIPE;
      return false;
    }
    rest.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string Helper::end() {
  const pid_t process = std::exchange(process_, 0);
  if (process == 0) return "";
  socket_.reset();
  int status = 0;
  pid_t ended = ::waitpid(process, &status, WNOHANG);
  // A process that hangs up is about to end. To know how is worth a moment.
  for (int moments = 0; hung_up_ && ended == 0 && moments < 1000; ++moments) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended = ::waitpid(process, &status, WNOHANG);
  }
  if (ended == 0) {
    ::kill(process, SIGKILL);
    ::waitpid(process, &status, 0);
    return "said nothing for too long, and was killed";
  }
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("ended with status {}", WEXITSTATUS(status));
}

// What is said about one file, and what is answered.
class Dialogue {
 public:
  Dialogue(const DatasetSource& source, FileId file, size_t datasets, Helper& helper)
      : source_(source),
        file_(file),
        size_(source.catalog->stamp(file).size),
        helper_(helper),
        ahead_(source, file),
        index_{Layout(datasets, size_), {}} {}

  // Errors: EINVAL with the cause alone; what a read returned.
  Result<FileIndex> hold(std::chrono::milliseconds total) {
    const auto deadline = Clock::now() + total;
    FrameHead head;
    std::string bytes;
    while (helper_.receive(&head, sizeof head)) {
      if (head.bytes > kMostFrame) return cannot("its reader said too much at a time");
      bytes.resize(head.bytes);
      if (!helper_.receive(bytes.data(), bytes.size())) break;
      const Result<bool> over = answer(static_cast<Say>(head.say), bytes);
      if (!over) return over.error();
      if (*over) return std::move(index_);
      if (Clock::now() > deadline) return cannot("libhdf5 took too long");
    }
    const std::string how = helper_.end();
    return cannot(fmt::format("{} {}", kHelperName, how.empty() ? "ended too early" : how));
  }

 private:
  // True when all was said.
  Result<bool> answer(Say say, const std::string& bytes) {
    Status status;
    switch (say) {
      case Say::read:
        status = read(bytes);
        break;
      case Say::refused:
        return Error{EINVAL, shortened(bytes, 300)};
      case Say::done:
        status = index_.layout.finish();
        break;
      default:
        status = index_.layout.take(say, bytes);
        if (source_.work) index_.layout.note_progress(*source_.work);
        break;
    }
    if (!status) return status.error();
    return say == Say::done;
  }

  Status read(std::string_view asked) {
    ReadRequest request;
    if (asked.size() != sizeof request) return cannot("its reader sent half a request");
    std::memcpy(&request, asked.data(), sizeof request);
    if (request.length > kMostRead) return cannot("its index has pieces that are too large");
    ByteRange piece{file_, std::min(request.offset, size_), 0};
    piece.length = std::min(request.length, size_ - piece.offset);
    std::string bytes;
    if (piece.length != 0) {
      if (index_.reads.size() == kMostReads) return cannot("its index is read over and over");
      index_.reads.push_back(piece);
      auto read = ahead_.read(piece.offset, piece.length);
      if (!read) return read.error();
      bytes = std::move(*read);
    }
    const ReadAnswer answer{bytes.size()};
    if (helper_.send(&answer, sizeof answer) && helper_.send(bytes.data(), bytes.size())) return {};
    return cannot(fmt::format("{} {}", kHelperName, helper_.end()));
  }

  const DatasetSource& source_;
  const FileId file_;
  const uint64_t size_;
  Helper& helper_;
  TreeAhead ahead_;
  FileIndex index_;
};

}  // namespace

Result<FileIndex> index_file(const DatasetSource& source, FileId file,
                             const std::vector<std::string>& datasets, const IndexOptions& options) {
  std::vector<std::string> words{kHelperName, std::to_string(source.catalog->stamp(file).size)};
  words.insert(words.end(), datasets.begin(), datasets.end());
  Helper helper;
  const std::string program = options.helper.empty() ? path_of_helper() : options.helper;
  if (Status started = helper.start(program, std::move(words), options.silence); !started)
    return started.error();
  return Dialogue(source, file, datasets.size(), helper).hold(options.total);
}

}  // namespace clairfs::hdf5
