// Other threads put requests into a queue; the ring's thread admits them up to `depth` and drives each
// through its steps (open, read, stat, close; or one transfer, or one close), one operation of it in the ring
// at a time.
//
// Wake-up: an eventfd read is always in the ring. The thread says, under the queue's lock, that it is about
// to sleep; only then does a submitter write to the eventfd. A busy ring is thus fed without a system call,
// and an idle one costs nothing.
//
// Latency: a buffered read that finds its pages in the page cache is copied within io_uring_enter(). So data
// operations are handed to the kernel in small batches (kBatchBytes), and what has completed is called back
// between batches; open, stat and close go along without such a limit. An open is for the kernel's workers:
// io_uring looks for a path without waiting, but when it knows the path it opens the file right there, and
// that asks the server of a network filesystem. The ring's thread would open one file after the other. Where
// there is no server (FileRead::local) the ring's thread opens and stats the file itself: each hop to a
// worker and back takes as long as reading 100 KB.
#include "cache/io/ring.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/io/memory.h"
#include "cache/io/open_inside.h"

namespace clairfs {
namespace {

// Bytes of reads and writes given to the kernel before completions are looked at: about 50 us of copying at
// 5 GB/s, or two small files.
constexpr uint64_t kBatchBytes = 256 << 10;
// The kernel takes at most 32768 entries; more operations at once than this help no device.
constexpr unsigned kMaxDepth = 4096;
// What a file's stamp is made of.
constexpr unsigned kStamp = STATX_SIZE | STATX_MTIME | STATX_CTIME;

// One request on its way. Owned by the queue, then by the ring (as the user data of its operation).
struct Operation {
  enum class Step { open, move, stat, close };

  explicit Operation(FileRead r)
      : step(r.open_fd < 0 ? Step::open : Step::move),
        cursor(std::move(r.memory)),
        offset(r.offset),
        file(r.open_fd),
        owns_file(r.open_fd < 0),
        request(std::move(r)) {}
  explicit Operation(Transfer r)
      : step(Step::move), cursor(std::move(r.memory)), offset(r.offset), request(std::move(r)) {}

  explicit Operation(Fd closed)
      : step(Step::close),
        cursor(std::vector<iovec>()),
        offset(0),
        file(closed.release()),
        owns_file(true),
        request(Transfer()) {}

  FileRead* file_read() { return std::get_if<FileRead>(&request); }
  bool writes() const {
    const auto* transfer = std::get_if<Transfer>(&request);
    return transfer != nullptr && transfer->direction == Transfer::Direction::write;
  }
  bool is_local() const {
    const auto* read = std::get_if<FileRead>(&request);
    return read != nullptr && read->local;
  }
  int fd() const {
    const auto* transfer = std::get_if<Transfer>(&request);
    return transfer != nullptr ? transfer->fd : file;
  }

  Step step;
  IoCursor cursor;
  uint64_t offset;
  uint64_t moved = 0;
  int file = -1;           // of a FileRead, once it is open; or one to be closed
  bool owns_file = false;  // and is to be closed in the end
  bool blocking = false;   // hand the next operation to a worker at once
  open_how how = {};
  struct statx stat = {};
  std::variant<FileRead, Transfer> request;
};

// Owns a set-up io_uring.
class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (ready_) io_uring_queue_exit(&ring_);
  }

  // `depth`: operations at once, and workers that the kernel may start for those that block.
  Status set_up(unsigned depth) {
    // What each kernel has: DEFER_TASKRUN 6.1, SINGLE_ISSUER 6.0, COOP_TASKRUN 5.19. Unknown flags give
    // EINVAL.
    constexpr unsigned kFlags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0};
    int failure = 0;
    for (const unsigned flags : kFlags) {
      failure = -io_uring_queue_init(depth + 1, &ring_, flags | IORING_SETUP_CLAMP);  // 1: the eventfd's read
      if (failure != EINVAL) break;
    }
    if (failure != 0) return system_error(failure, "set up io_uring");
    ready_ = true;
    if (!has_operations()) return system_error(ENOSYS, "io_uring operations of Linux 5.6");
    // Regular files use the bounded workers; nothing here needs unbounded ones. Linux 5.15; older kernels
    // bound the former by the ring's size.
    unsigned workers[2] = {depth, 1};
    io_uring_register_iowq_max_workers(&ring_, workers);
    return {};
  }

  io_uring* get() { return &ring_; }

  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {  // full of entries not yet submitted
      submit(false);
      entry = io_uring_get_sqe(&ring_);
    }
    return entry;
  }

  void submit(bool wait) {
    const int result = wait ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit_and_get_events(&ring_);
    // EINTR: a debugger; the loop comes here again. EAGAIN, EBUSY: the kernel is short of memory or wants
    // completions reaped first; entries stay where they are. Give it time, unless there is something to reap.
    if ((result == -EAGAIN || result == -EBUSY) && io_uring_cq_ready(&ring_) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  bool has_operations() {
    const std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(
        io_uring_get_probe_ring(&ring_), io_uring_free_probe);
    if (!probe) return false;
    constexpr int kNeeded[] = {IORING_OP_OPENAT2, IORING_OP_READV, IORING_OP_WRITEV,
                               IORING_OP_STATX,   IORING_OP_CLOSE, IORING_OP_READ};
    return std::all_of(std::begin(kNeeded), std::end(kNeeded),
                       [&](int op) { return io_uring_opcode_supported(probe.get(), op) != 0; });
  }

  io_uring ring_{};
  bool ready_ = false;
};

// `mutex_` guards the queue; it is not held while the ring is entered or a call-back runs.
class RingBackend final : public IoBackend {
 public:
  RingBackend(const IoOptions& options, Fd wake)
      : depth_(std::clamp(options.depth, 1U, kMaxDepth)), wake_(std::move(wake)) {
    // A ring with SINGLE_ISSUER belongs to the thread that makes it.
    thread_ = NamedThread(options.name, [this] {
      Ring ring;
      Status status = ring.set_up(depth_);
      const bool usable = status.ok();
      set_up_.set_value(std::move(status));
      if (usable) run(ring);
    });
  }

  ~RingBackend() override {
    bool wake = false;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      wake = std::exchange(sleeping_, false);
    }
    if (wake) wake_up();
    thread_.join();
  }

  // Whether the ring could be set up; called once, before anything is submitted.
  Status set_up_result() { return set_up_.get_future().get(); }

  void submit(FileRead request) override { enqueue(std::make_unique<Operation>(std::move(request))); }
  void submit(Transfer request) override { enqueue(std::make_unique<Operation>(std::move(request))); }
  void close(Fd file) override { enqueue(std::make_unique<Operation>(std::move(file))); }
  const char* kind() const override { return "uring"; }

 private:
  using Step = Operation::Step;
  using Owned = std::unique_ptr<Operation>;

  void enqueue(Owned operation) {
    bool wake = false;
    {
      MutexLock lock(mutex_);
      queue_.push_back(std::move(operation));
      wake = std::exchange(sleeping_, false);
    }
    if (wake) wake_up();
  }

  void wake_up() { eventfd_write(wake_.get(), 1); }

  // The rest runs on the ring's thread.

  void run(Ring& ring) {
    arm_wake_up(ring);
    while (true) {
      admit();
      start_batch(ring);
      const bool idle = movers_.empty() && io_uring_cq_ready(ring.get()) == 0;
      if (idle && in_flight_ == 0 && finished()) return;
      ring.submit(idle && may_sleep());
      reap(ring);
    }
  }

  // Takes requests from the queue, up to `depth_` in flight.
  void admit() {
    MutexLock lock(mutex_);
    sleeping_ = false;
    for (; in_flight_ < depth_ && !queue_.empty(); ++in_flight_) {
      Owned operation = std::move(queue_.front());
      queue_.pop_front();
      (operation->step == Step::open ? openers_ : movers_).push_back(std::move(operation));
    }
  }

  bool finished() {
    MutexLock lock(mutex_);
    return stopping_ && queue_.empty();
  }

  // Announces sleep, unless something came in meanwhile. With all of `depth_` in flight only completions
  // matter, and submitters need not wake us.
  bool may_sleep() {
    MutexLock lock(mutex_);
    if (in_flight_ == depth_) return true;
    if (!queue_.empty() || (stopping_ && in_flight_ == 0)) return false;
    return sleeping_ = true;
  }

  void start_batch(Ring& ring) {
    for (Owned& operation : openers_) start(ring, std::move(operation));
    openers_.clear();
    uint64_t bytes = 0;
    while (!movers_.empty() && bytes < kBatchBytes) {
      Owned operation = std::move(movers_.front());
      movers_.pop_front();
      bytes += operation->cursor.bytes();
      start(ring, std::move(operation));
    }
  }

  void start(Ring& ring, Owned operation) {
    if (operation->step == Step::move && operation->cursor.finished()) {
      moved_all(ring, std::move(operation));
      return;
    }
    io_uring_sqe* entry = ring.next_entry();
    prepare(entry, *operation);
    const bool asks_server = operation->step == Step::open && !operation->is_local();
    const bool waits = std::exchange(operation->blocking, false) || asks_server;
    if (waits) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
    io_uring_sqe_set_data(entry, operation.release());
  }

  static void prepare(io_uring_sqe* entry, Operation& operation) {
    switch (operation.step) {
      case Step::open:
        // O_NONBLOCK: should a FIFO have taken the file's place, the open must not wait for its writer. A
        // file with a lease on it gives EAGAIN and is then waited for.
        operation.how = how_inside(O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (operation.blocking ? 0 : O_NONBLOCK));
        if (operation.is_local()) operation.how.resolve |= RESOLVE_NO_XDEV;
        io_uring_prep_openat2(entry, operation.file_read()->directory_fd, operation.file_read()->path.c_str(),
                              &operation.how);
        break;
      case Step::move: {
        const uint64_t position = operation.offset + operation.moved;
        const auto prepare_vector = operation.writes() ? io_uring_prep_writev : io_uring_prep_readv;
        prepare_vector(entry, operation.fd(), operation.cursor.pieces(), operation.cursor.count(), position);
        break;
      }
      case Step::stat:
        io_uring_prep_statx(entry, operation.file, "", AT_EMPTY_PATH, kStamp, &operation.stat);
        break;
      case Step::close:
        io_uring_prep_close(entry, operation.file);
        break;
    }
  }

  void reap(Ring& ring) {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(ring.get(), &completion) == 0) {
      auto* data = static_cast<Operation*>(io_uring_cqe_get_data(completion));
      const int result = completion->res;
      io_uring_cqe_seen(ring.get(), completion);
      if (data == nullptr) {
        arm_wake_up(ring);
      } else {
        completed(ring, Owned(data), result);
      }
    }
  }

  void arm_wake_up(Ring& ring) {
    io_uring_sqe* entry = ring.next_entry();
    io_uring_prep_read(entry, wake_.get(), &wake_count_, sizeof wake_count_, 0);
    io_uring_sqe_set_data(entry, nullptr);
  }

  // What the kernel cancels it has no thread for, as where pids.max is reached before the first operation
  // that needs one. Better that this thread waits for a file than that nobody reads it.
  static int perform(Operation& operation) {
    ssize_t result = 0;
    switch (operation.step) {
      case Step::open:
        result = ::syscall(SYS_openat2, operation.file_read()->directory_fd,
                           operation.file_read()->path.c_str(), &operation.how, sizeof operation.how);
        break;
      case Step::move: {
        const auto position = static_cast<off_t>(operation.offset + operation.moved);
        const auto move = operation.writes() ? ::pwritev : ::preadv;
        result = move(operation.fd(), operation.cursor.pieces(), static_cast<int>(operation.cursor.count()),
                      position);
        break;
      }
      case Step::stat:
        result = ::statx(operation.file, "", AT_EMPTY_PATH, kStamp, &operation.stat);
        break;
      case Step::close:
        result = ::close(operation.file);
        break;
    }
    return result < 0 ? -errno : static_cast<int>(result);
  }

  void completed(Ring& ring, Owned operation, int result) {
    if (result == -ECANCELED) result = perform(*operation);
    if (operation->step == Step::close) {
      --in_flight_;
      return;
    }
    if (result == -EINTR || result == -EAGAIN) {
      operation->blocking = true;  // what would block is for a worker to do, not for us to try in a loop
      again(ring, std::move(operation));
      return;
    }
    if (result == -EXDEV && operation->step == Step::open && operation->is_local()) {
      operation->file_read()->local = false;  // another filesystem is mounted in that one
      again(ring, std::move(operation));
      return;
    }
    if (result < 0) {
      failed(ring, std::move(operation), -result);
      return;
    }
    switch (operation->step) {
      case Step::open:
        operation->file = result;
        operation->step = Step::move;
        // io_uring would wait for a FIFO's data, where preadv() says ESPIPE.
        if (::lseek(result, 0, SEEK_CUR) < 0) {
          failed(ring, std::move(operation), errno);
          break;
        }
        // From here on O_NONBLOCK would make io_uring fail reads with EAGAIN on filesystems without NOWAIT.
        ::fcntl(result, F_SETFL, 0);
        again(ring, std::move(operation));
        break;
      case Step::move:
        operation->cursor.advance(static_cast<uint64_t>(result));
        operation->moved += static_cast<uint64_t>(result);
        if (result == 0 || operation->cursor.finished()) {
          moved_all(ring, std::move(operation));
        } else {
          again(ring, std::move(operation));
        }
        break;
      case Step::stat:
        stat_known(ring, std::move(operation));
        break;
      case Step::close:
        break;
    }
  }

  void again(Ring& ring, Owned operation) {
    if (operation->step == Step::move) {
      movers_.push_back(std::move(operation));
    } else {
      start(ring, std::move(operation));
    }
  }

  void moved_all(Ring& ring, Owned operation) {
    if (operation->file_read() != nullptr) {
      operation->step = Step::stat;
      // io_uring hands every statx() to a worker.
      const bool known =
          operation->is_local() && ::statx(operation->file, "", AT_EMPTY_PATH, kStamp, &operation->stat) == 0;
      if (known) return stat_known(ring, std::move(operation));
      start(ring, std::move(operation));
      return;
    }
    --in_flight_;
    std::get<Transfer>(operation->request).done(operation->moved);
  }

  void stat_known(Ring& ring, Owned operation) {
    FileRead::Outcome outcome;
    outcome.bytes = operation->moved;
    if (operation->owns_file && operation->file_read()->keep_open) {
      outcome.fd.reset(operation->file);
      operation->owns_file = false;
    }
    outcome.stamp.size = operation->stat.stx_size;
    outcome.stamp.mtime_ns =
        stamp_nanoseconds(operation->stat.stx_mtime.tv_sec, operation->stat.stx_mtime.tv_nsec);
    outcome.ctime_ns = stamp_nanoseconds(operation->stat.stx_ctime.tv_sec, operation->stat.stx_ctime.tv_nsec);
    operation->file_read()->done(std::move(outcome));
    close_file(ring, std::move(operation));
  }

  void failed(Ring& ring, Owned operation, int code) {
    if (FileRead* request = operation->file_read()) {
      const char* tried = operation->step == Step::open   ? "open "
                          : operation->step == Step::stat ? "stat "
                                                          : "read ";
      request->done(system_error(code, tried + request->path));
      close_file(ring, std::move(operation));
      return;
    }
    --in_flight_;
    const char* tried = operation->writes() ? "write at " : "read at ";
    std::get<Transfer>(operation->request)
        .done(system_error(code, tried + std::to_string(operation->offset)));
  }

  // After `done`, which need not wait for it. A close may talk to a server, so it goes through the ring.
  void close_file(Ring& ring, Owned operation) {
    if (operation->file < 0 || !operation->owns_file) {
      --in_flight_;
      return;
    }
    operation->request = Transfer();  // what the call-back holds is free now
    operation->step = Step::close;
    start(ring, std::move(operation));
  }

  // Constant after construction.
  const unsigned depth_;
  const Fd wake_;

  // Owned by the ring's thread.
  unsigned in_flight_ = 0;
  std::deque<Owned> openers_;
  std::deque<Owned> movers_;
  uint64_t wake_count_ = 0;

  // Guarded.
  Mutex mutex_;
  std::deque<Owned> queue_ GUARDED_BY(mutex_);
  bool sleeping_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Self-synchronised.
  std::promise<Status> set_up_;
  NamedThread thread_;
};

}  // namespace

Result<std::unique_ptr<IoBackend>> make_ring_backend(const IoOptions& options) {
  Fd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake) return system_error(errno, "make an eventfd");
  auto backend = std::make_unique<RingBackend>(options, std::move(wake));
  if (Status status = backend->set_up_result(); !status) return status.error();
  return std::unique_ptr<IoBackend>(std::move(backend));
}

}  // namespace clairfs
