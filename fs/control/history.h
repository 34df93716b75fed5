// The figures of a mount from its beginning on, at ever longer intervals: the control file `history`, which
// `clairfs top --plot` draws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"

namespace clairfs {

/// One moment. Bytes are counted since the mount began.
struct HistoryRow {
  double seconds = 0;          ///< since the mount began
  uint64_t pushed_bytes = 0;   ///< into the page cache, ahead of the readers
  uint64_t ram_bytes = 0;      ///< of reads that came to clairfs, by what answered them
  uint64_t nvme_bytes = 0;     ///< ...
  uint64_t peer_bytes = 0;     ///< ...
  uint64_t pfs_bytes = 0;      ///< ...
  uint64_t source_bytes = 0;   ///< read from the source
  double stall_seconds = 0;    ///< that readers waited, all together
  uint64_t ahead_samples = 0;  ///< of all plans, at this moment
  bool operator==(const HistoryRow&) const = default;
};

/// The figures now.
HistoryRow history_row(const Metrics& metrics, double seconds, uint64_t ahead_samples);

/// Thread-safe.
class History {
 public:
  /// Keeps the row; once they are many, every other one. Returns the time until the next is wanted.
  Duration add(const HistoryRow& row);
  /// A line of names, then one a row, comma-separated; oldest first.
  std::string csv() const;

 private:
  // About as many points as a picture is wide; odd, so that the last of them is not left out.
  static constexpr size_t kMost = 1025;

  mutable Mutex mutex_;  // leaf
  std::vector<HistoryRow> rows_ GUARDED_BY(mutex_);
  Duration interval_ GUARDED_BY(mutex_) = std::chrono::seconds(1);
};

/// The rows of a csv(); nothing for another text.
std::optional<std::vector<HistoryRow>> parse_history(const std::string& csv);

}  // namespace clairfs
