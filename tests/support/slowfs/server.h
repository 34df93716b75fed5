// The emulated file server: decides when each request is answered and whether a fault hits it, and counts.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "cache/base/mutex.h"
#include "tests/support/slowfs/faults.h"
#include "tests/support/slowfs/server_model.h"

namespace clairfs::slowfs {

struct ServerOptions {
  Duration open_latency{0};
  Duration read_latency{0};
  Duration meta_latency{0};  ///< lookup, getattr, readdir, readlink, statfs
  Duration seek{0};          ///< of a read that does not begin where the last one of its file ended
  uint64_t bandwidth = 0;    ///< bytes/s shared by all reads, 0: unlimited
  size_t max_parallel = 0;   ///< requests in service at once, 0: unlimited
  std::string trace{};       ///< file that gets one line for each request; empty: none
};

/// The server's word on one request.
struct Admission {
  TimePoint due;
  bool eio = false;
  bool hung = false;
};

/// Thread-safe. Paths are relative to the served directory, the root is "".
class Server {
 public:
  explicit Server(const ServerOptions& options);

  /// Takes in a request that will move `bytes`, of a read from `offset` on, and counts it. Each call is
  /// followed by one of finished().
  Admission admit(Op op, const std::string& path, uint64_t bytes, uint64_t offset = 0);
  void finished();

  /// One line of the control file:
  ///   reset | clear | eio PATTERN [COUNT] | eio-all [COUNT] | hang PATTERN SECONDS
  ///   latency [open|read|meta] US | bandwidth BYTES_PER_SECOND
  /// `reset` sets the counters to zero, `clear` ends all faults. Errors: EINVAL.
  Status command(const std::string& line);

  /// JSON: {"ops": {NAME: N, ...}, "bytes": N, "seeks": N, "opens_per_file_max": N, "most_opened": PATH,
  /// "eio": N, "hung": N, "pending": N, "pending_max": N}. Bytes are those of reads answered with data;
  /// `pending` requests wait now.
  std::string counters();

 private:
  struct Counters {
    std::array<uint64_t, kOpCount> ops{};
    std::map<std::string, uint64_t> opens;
    uint64_t bytes = 0;
    uint64_t seeks = 0;
    uint64_t eio = 0;
    uint64_t hung = 0;
    uint64_t pending_max = 0;
  };

  Duration latency_of(Op op) const REQUIRES(mutex_);
  bool seeks(const std::string& path, uint64_t bytes, uint64_t offset) REQUIRES(mutex_);
  Status set_latency(const std::string& which, Duration latency) REQUIRES(mutex_);

  Mutex mutex_;  ///< a leaf: nothing is called and no other lock is taken while it is held
  ServerOptions options_ GUARDED_BY(mutex_);
  ServerModel model_ GUARDED_BY(mutex_);
  Faults faults_ GUARDED_BY(mutex_);
  Counters counters_ GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> ends_ GUARDED_BY(mutex_);  ///< of the last read of each file
  uint64_t pending_ GUARDED_BY(mutex_) = 0;
  std::ofstream trace_ GUARDED_BY(mutex_);
};

}  // namespace clairfs::slowfs
