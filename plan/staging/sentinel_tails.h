// The last pages of sentinels: what was left out of the page cache, kept so that the read that asks for it
// finds it.
//
// By the time a sentinel is read its chunk may have been dropped from memory. Going back to the source for a
// few KiB would cost an operation there and make the reader wait; keeping whole chunks would cost memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/uio.h>

#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "cache/io/memory.h"

namespace clairfs {

/// Thread-safe. At most one tail a file, of at most a page, and kMost of them: 4 MiB.
class SentinelTails {
 public:
  void keep(FileId file, uint64_t offset, const std::vector<iovec>& memory) {
    std::string bytes = joined(memory);
    MutexLock lock(mutex_);
    if (tails_.size() >= kMost) tails_.erase(tails_.begin());
    tails_[file] = {offset, std::move(bytes)};
    count_ = tails_.size();
  }
  /// The bytes [offset, offset + length) if a tail holds them all. It is let go of: the kernel has them now.
  std::optional<std::string> take(FileId file, uint64_t offset, uint64_t length) {
    if (count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
    MutexLock lock(mutex_);
    const auto found = tails_.find(file);
    if (found == tails_.end()) return std::nullopt;
    const Tail& tail = found->second;
    if (offset < tail.offset || offset + length > tail.offset + tail.bytes.size()) return std::nullopt;
    std::string bytes = tail.bytes.substr(offset - tail.offset, length);
    tails_.erase(found);
    count_ = tails_.size();
    return bytes;
  }
  void drop(FileId file) {
    if (count_.load(std::memory_order_relaxed) == 0) return;
    MutexLock lock(mutex_);
    tails_.erase(file);
    count_ = tails_.size();
  }

 private:
  static constexpr size_t kMost = 1024;
  struct Tail {
    uint64_t offset = 0;
    std::string bytes;
  };

  std::atomic<size_t> count_{0};
  Mutex mutex_;  // leaf
  std::unordered_map<FileId, Tail> tails_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
