#include "cache/io/threads.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <system_error>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <sys/stat.h>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/io/memory.h"
#include "cache/io/open_inside.h"

namespace clairfs {
namespace {

// Moves all of `memory`, or up to the end of the file. `what` begins the error message.
Result<uint64_t> move_all(Transfer::Direction direction, int fd, uint64_t offset, std::vector<iovec> memory,
                          const std::string& what) {
  IoCursor cursor(std::move(memory));
  uint64_t moved = 0;
  while (!cursor.finished()) {
    const auto position = static_cast<off_t>(offset + moved);
    const auto count = static_cast<int>(cursor.count());
    const ssize_t n = direction == Transfer::Direction::read
                          ? ::preadv(fd, cursor.pieces(), count, position)
                          : ::pwritev(fd, cursor.pieces(), count, position);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(errno, what);
    if (n == 0) break;
    cursor.advance(static_cast<uint64_t>(n));
    moved += static_cast<uint64_t>(n);
  }
  return moved;
}

Result<Fd> open_file(const FileRead& request) {
  // O_NONBLOCK: should a FIFO have taken the file's place, open() must not wait for its writer. Regular files
  // do not heed it, but for one with a lease on it, which gives EAGAIN and is then waited for.
  int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  int opened = -1;
  while ((opened = open_inside(request.directory_fd, request.path.c_str(), flags)) < 0) {
    if (errno == EAGAIN && (flags & O_NONBLOCK) != 0) {
      flags &= ~O_NONBLOCK;
    } else if (errno != EINTR) {
      return system_error(errno, "open " + request.path);
    }
  }
  return Fd(opened);
}

Result<FileRead::Outcome> perform(FileRead& request) {
  Fd opened;
  if (request.open_fd < 0) {
    auto file = open_file(request);
    if (!file) return file.error();
    opened = std::move(*file);
  }
  const int fd = opened ? opened.get() : request.open_fd;
  auto bytes = move_all(Transfer::Direction::read, fd, request.offset, std::move(request.memory),
                        "read " + request.path);
  if (!bytes) return bytes.error();
  struct stat st;
  if (::fstat(fd, &st) != 0) return system_error(errno, "stat " + request.path);
  FileRead::Outcome outcome;
  outcome.bytes = *bytes;
  outcome.stamp.size = static_cast<uint64_t>(st.st_size);
  outcome.stamp.mtime_ns = stamp_nanoseconds(st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  outcome.ctime_ns = stamp_nanoseconds(st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
  if (request.keep_open && opened) {
    ::fcntl(opened.get(), F_SETFL, 0);  // see FileRead::open_fd
    outcome.fd = std::move(opened);
  }
  return outcome;
}

Result<uint64_t> perform(Transfer& request) {
  const bool read = request.direction == Transfer::Direction::read;
  return move_all(request.direction, request.fd, request.offset, std::move(request.memory),
                  std::string(read ? "read" : "write") + " at " + std::to_string(request.offset));
}

template <class Request>
void serve(Request& request) {
  request.done(perform(request));
}

void serve(Fd& closed) {
  closed.reset();
}

// `mutex_` guards the queue and the pool; it is never held while a request is performed or completed.
class ThreadBackend final : public IoBackend {
 public:
  explicit ThreadBackend(const IoOptions& options)
      : name_(options.name), depth_(std::max(options.depth, 1U)) {
    MutexLock lock(mutex_);
    threads_.reserve(depth_);
    try_start_thread();  // one always exists, so that what is queued is always completed
  }

  ~ThreadBackend() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    // Call-backs may still submit and so start threads until the queue has run dry: join by number.
    for (size_t i = 0;; ++i) {
      NamedThread thread;
      {
        MutexLock lock(mutex_);
        if (i == threads_.size()) break;
        thread = std::move(threads_[i]);
      }
      thread.join();
    }
  }

  void submit(FileRead request) override { enqueue(std::move(request)); }
  void submit(Transfer request) override { enqueue(std::move(request)); }
  void close(Fd file) override { enqueue(std::move(file)); }
  const char* kind() const override { return "threads"; }

 private:
  using Request = std::variant<FileRead, Transfer, Fd>;  // Fd: to be closed

  void enqueue(Request request) {
    {
      MutexLock lock(mutex_);
      queue_.push_back(std::move(request));
      // A thread that was notified counts as idle until it runs, hence the comparison with the queue.
      if (queue_.size() > idle_ && threads_.size() < depth_) {
        try_start_thread();
        return;
      }
      if (idle_ == 0) return;
    }
    wake_.notify_one();
  }

  void try_start_thread() REQUIRES(mutex_) {
    if (!add_thread(threads_, name_, [this] { run(); })) depth_ = threads_.size();  // those do the work
  }

  void run() {
    MutexLock lock(mutex_);
    while (true) {
      if (!queue_.empty()) {
        {
          Request request = std::move(queue_.front());
          queue_.pop_front();
          lock.unlock();
          std::visit([](auto& r) { serve(r); }, request);
        }
        lock.lock();
      } else if (stopping_) {
        return;
      } else {
        ++idle_;
        wake_.wait(lock);
        --idle_;
      }
    }
  }

  // Constant after construction.
  const std::string name_;

  // Guarded.
  Mutex mutex_;
  size_t depth_ GUARDED_BY(mutex_);
  std::deque<Request> queue_ GUARDED_BY(mutex_);
  std::vector<NamedThread> threads_ GUARDED_BY(mutex_);
  size_t idle_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Self-synchronised.
  CondVar wake_;
};

}  // namespace

std::unique_ptr<IoBackend> make_thread_backend(const IoOptions& options) {
  return std::make_unique<ThreadBackend>(options);
}

}  // namespace clairfs
