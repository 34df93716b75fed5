// The dataset itself: reads ranges of source files, in order of priority, with as many at once as serves
// best.
//
// Neighbouring fetches that wait are read in one operation (fetch_queue.h), and gather() has them wait for
// each other. Each gets its own answer: of a read that ends early those before its end are good, and where a
// read fails each is repeated by itself. A large one takes two of the places that there are for operations:
// more at once would leave fewer fetches that wait and can be read together.
//
// A fetch never mixes versions of a file: after each read the file's size and mtime must be what the catalog
// says, else the fetch fails with ESTALE, the file is named once in the log, and `on_stale` is told.
//
// An operation that does not come back (one server of many hangs) does not hold up the rest: after a while it
// no longer counts against the number at once, within the most that may be at once; of that some are left to
// waiting readers. (The memory that it is to be read into stays taken, too: see chunk_cache.h on transit
// memory.) A thread looks for such operations while requests wait, and sleeps otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"
#include "cache/catalog/catalog.h"
#include "cache/io/backend.h"
#include "cache/source/concurrency_limit.h"
#include "cache/source/fetch_queue.h"
#include "cache/source/fill_limit.h"
#include "cache/source/operation_cost.h"
#include "cache/source/source.h"

namespace clairfs {

struct PfsOptions {
  /// Operations at once to begin with, and the bounds within which the number is adapted. At a latency of 1
  /// ms four files of 110 KB at once are 440 MB/s, and no read waits long behind them; more than 64 from one
  /// node slow down other users of the PFS.
  unsigned initial_concurrency = 4;
  unsigned least_concurrency = 4;
  unsigned most_concurrency = 64;
  /// After which an operation counts as hanging, beside the time that its bytes take at 1 MB/s: healthy
  /// servers answer within milliseconds, and busy ones within a second or two.
  Duration stuck = std::chrono::seconds(5);
  /// Whether neighbouring fetches are read together. Only benchmarks do without.
  bool merge = true;
};

/// Troubles of the source so far, in words; each is empty where there was none of its kind.
struct PfsTroubles {
  std::string failed;  ///< the first read that failed: "a/b.png (Input/output error)"
  std::string stale;   ///< the first file that was found changed
  std::string silent;  ///< of the operations that hang now, the one that began first: "a/b.png, for 12 s"
};

/// Thread-safe. References given to the constructor outlive it.
class PfsSource final : public ChunkSource {
 public:
  /// Large files are read chunk by chunk: opening them once for all chunks spares the metadata server. Few
  /// are read at a time, and a low descriptor limit (64) must still leave room for everything else. As many
  /// may be closed at a time by the backend, beside the operations.
  static constexpr unsigned kOpenFiles = 16;

  /// `root` is an O_PATH or O_DIRECTORY descriptor of the dataset's directory.
  PfsSource(const Catalog& catalog, Fd root, IoBackend& io, const PfsOptions& options, const Clock& clock,
            Metrics& metrics, Logger& log, std::function<void(FileId)> on_stale);
  ~PfsSource() override;

  void start(FetchRequest request) override;
  void gather() override;
  void gathered() override;
  void demand_changed(const Demand& demand) override;
  void stop() override;

  /// Sets Metrics::pfs_silent, too: nothing else does, so it is as of the last call.
  PfsTroubles troubles() EXCLUDES(mutex_);

 private:
  /// A file that is open. Its server may take long to hear of its end, or hang: whoever uses the file last
  /// leaves that to the backend.
  struct OpenFile {
    OpenFile(IoBackend& backend, Fd opened) : io(backend), fd(std::move(opened)) {}
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() {
      if (!at_once) io.close(std::move(fd));
    }

    IoBackend& io;
    Fd fd;
    std::atomic<bool> at_once{false};  // its descriptor is needed: it is closed where it is used last
  };
  using SharedFd = std::shared_ptr<OpenFile>;
  /// One read, of one fetch or of neighbours.
  struct Operation {
    std::vector<FetchQueue::Waiting> parts;  // in the order of their bytes; never empty
    uint64_t bytes = 0;
    unsigned places = 1;  // of those that the limit gives
    TimePoint started;
    SharedFd kept;                    // the file if it was open before
    bool reused = false;              // and other operations have read by it
    std::optional<Error> not_opened;  // why it is not: of a path that the backend cannot open

    FileId file() const { return parts.front().request.file; }
    uint64_t id() const { return parts.front().arrival; }
  };
  using OperationPtr = std::shared_ptr<Operation>;
  struct InFlight {
    TimePoint started;
    TimePoint hangs;  // from when on it counts as hanging
    FileId file;
    unsigned places = 1;
  };

  void dispatch() EXCLUDES(mutex_);
  OperationPtr begin_next(TimePoint now) REQUIRES(mutex_);
  bool may_start(const Priority& next, TimePoint now) const REQUIRES(mutex_);
  unsigned places_taken(TimePoint now) const REQUIRES(mutex_);
  unsigned stuck(TimePoint now) const REQUIRES(mutex_);
  void watch() EXCLUDES(mutex_);
  void submit(const OperationPtr& operation) EXCLUDES(mutex_);
  void finish(Operation& operation, Result<FileRead::Outcome> outcome) EXCLUDES(mutex_);
  bool put_back(Operation& operation, const Error& error) EXCLUDES(mutex_);
  void repeat_singly(Operation& operation) REQUIRES(mutex_);
  bool is_worth_repeating(const Operation& operation, Duration took) const;
  void answer(const Operation& operation, const Result<FileRead::Outcome>& outcome) EXCLUDES(mutex_);
  Fetched check_outcome(const FetchRequest& request, const Result<FileRead::Outcome>& outcome,
                        uint64_t bytes);
  Error stale(FileId file, const std::string& why);
  Result<SharedFd> open_deep(const std::string& path);
  SharedFd kept_open(FileId file) EXCLUDES(mutex_);
  void forget_open(const SharedFd& fd) EXCLUDES(mutex_);
  void keep_open(FileId file, Fd fd) EXCLUDES(mutex_);

  const Catalog& catalog_;
  const Fd root_;
  const bool local_;  // no server is asked for the files of root_
  IoBackend& io_;
  const Clock& clock_;
  Metrics& metrics_;
  Logger& log_;
  const std::function<void(FileId)> on_stale_;
  const PfsOptions options_;

  CondVar wake_;  // for the thread, with mutex_
  Mutex mutex_;   // leaf: guards the queue; never held while io_ or a call-back is called
  FetchQueue queue_ GUARDED_BY(mutex_);
  uint64_t arrivals_ GUARDED_BY(mutex_) = 0;
  TimePoint gathers_until_ GUARDED_BY(mutex_){};               // at the latest; long ago: not now
  std::map<uint64_t, InFlight> in_flight_ GUARDED_BY(mutex_);  // by Operation::id()
  bool watching_ GUARDED_BY(mutex_) = false;                   // requests wait, and the thread knows
  bool stopped_ GUARDED_BY(mutex_) = false;
  ConcurrencyLimit limit_ GUARDED_BY(mutex_);
  FillLimit fill_limit_ GUARDED_BY(mutex_);
  OperationCost cost_ GUARDED_BY(mutex_);
  unsigned descriptors_ GUARDED_BY(mutex_) = UINT_MAX;  // operations for which there are some, as far as seen
  unsigned since_short_ GUARDED_BY(mutex_) = 0;         // operations since that was lowered or raised
  std::list<std::pair<FileId, SharedFd>> open_files_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_set<FileId> reported_ GUARDED_BY(mutex_);                // stale files named in the log
  PfsTroubles troubles_ GUARDED_BY(mutex_);                               // but for those that hang
  NamedThread thread_;
};

}  // namespace clairfs
