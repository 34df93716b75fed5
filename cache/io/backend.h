// The seam to the kernel's I/O: asynchronous reads and writes, by io_uring or by a pool of threads.
//
// Two kinds of work cover all that the cache does. A FileRead opens a source file, reads a range, takes the
// file's stamp and closes it: the whole life of a small file. A Transfer reads or writes a descriptor that is
// already open: pieces of large files, and the NVMe store's segments. Besides, descriptors are closed.
//
// Every submitted request is completed exactly once by calling its `done`, from a thread of the backend,
// never from within submit(). `done` must be short or hand the work on: it runs where completions are reaped,
// and it may submit again. The destructor completes what is outstanding before it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "cache/base/fd.h"
#include "cache/base/file_stamp.h"
#include "cache/base/log.h"
#include "cache/base/result.h"

namespace clairfs {

/// Reads [offset, offset + sum of memory) of `path` below `directory_fd`. The file is opened O_RDONLY |
/// O_NOFOLLOW | O_CLOEXEC and without following any symlink (open_inside.h), unless `open_fd` already is that
/// file (then it is used and stays open; `path` only serves the error text). Memory stays valid until `done`.
struct FileRead {
  struct Outcome {
    uint64_t bytes = 0;    ///< less than asked only at the end of the file
    FileStamp stamp;       ///< taken after the read, so that a change before or during it shows
    int64_t ctime_ns = 0;  ///< likewise
    Fd fd;                 ///< the opened file if `keep_open` was set, else none
  };
  /// Without O_NONBLOCK: where io_uring cannot try without waiting (FUSE) a ring would be told EAGAIN for
  /// ever. An Outcome's is without it, too.
  int open_fd = -1;
  bool keep_open = false;  ///< hand the opened file over instead of closing it
  /// `directory_fd` is_on_local_filesystem(): the ring opens `path` itself. A path that leaves that
  /// filesystem is opened as any other.
  bool local = false;
  int directory_fd = -1;
  std::string path;
  uint64_t offset = 0;
  std::vector<iovec> memory;
  std::function<void(Result<Outcome>)> done;
};

/// Reads or writes [offset, offset + sum of memory) of the open descriptor `fd`; short transfers are
/// continued by the backend until done, end of file or an error. The result is the number of bytes moved.
struct Transfer {
  enum class Direction { read, write };
  Direction direction = Direction::read;
  int fd = -1;
  uint64_t offset = 0;
  std::vector<iovec> memory;
  std::function<void(Result<uint64_t>)> done;
};

/// Thread-safe. Each instance has its own threads (`name` is their name).
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual void submit(FileRead request) = 0;
  virtual void submit(Transfer request) = 0;
  /// Closes a descriptor on which no request is under way, as one more operation: nobody waits for a server
  /// that is told of it. This default does it at once, for backends of tests.
  virtual void close(Fd file) { file.reset(); }
  /// "uring" or "threads", for status.
  virtual const char* kind() const = 0;
};

enum class IoKind { automatic, uring, threads };

struct IoOptions {
  IoKind kind = IoKind::automatic;
  /// Operations that may run at once in this backend: threads of the pool, or entries of the ring and workers
  /// that the kernel may start for it.
  unsigned depth = 32;
  std::string name = "io";
};

/// `automatic` takes io_uring and, where the kernel or a policy forbids it (EPERM, ENOSYS, ENOMEM), falls
/// back to threads with one log line. Errors: `uring` asked for and forbidden, with the errno and the way
/// out.
Result<std::unique_ptr<IoBackend>> make_io_backend(const IoOptions& options, Logger& log);

}  // namespace clairfs
