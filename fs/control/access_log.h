// The last operations, for people who want to see what a program really does: `cat MOUNT/.clairfs/accesslog`.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/memory/chunk_data.h"

namespace clairfs {

/// A ring of the last READs. Thread-safe; recording costs one short lock.
class AccessLog {
 public:
  struct Entry {
    std::chrono::system_clock::time_point time;
    FileId file;
    uint64_t offset = 0;
    uint32_t length = 0;
    Origin origin = Origin::ram;
    bool joined = false;
    int error = 0;                      ///< errno, 0 for success
    std::chrono::nanoseconds waited{};  ///< from the request to its answer
    uint32_t thread = 0;                ///< that asked, as the kernel numbers it here; 0: none of here
  };

  explicit AccessLog(const Catalog& catalog) : catalog_(catalog) { entries_.reserve(kCapacity); }
  void record(const Entry& entry);
  /// One line an operation, oldest first: time, path, offset, length, origin, duration, process.
  std::string text() const;

 private:
  static constexpr size_t kCapacity = 1024;  // a few seconds of training, 60 KiB of memory

  const Catalog& catalog_;
  mutable Mutex mutex_;  // leaf
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;
};

/// "ram", "nvme", "peer", "pfs".
const char* origin_name(Origin origin);

}  // namespace clairfs
