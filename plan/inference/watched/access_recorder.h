// AccessRecorder: remembers what readers open where no registered plan says it.
//
// Visible opens. The kernel tells of an open by the READs for pages that are not in its page cache, and by an
// ioctl from CPython before 3.14 (fs/README.md). stat(2) and listings tell nothing. Several accesses to a
// file in a row are one: the pieces of a large file, the READ after its ioctl, also where some tens of
// readers take turns. In a file whose records are numbered each READ stands for itself, with its pages
// (record_files.h).
//
// Cost. Switched off: a load without order. On: a lock, a look at the newest files, and an entry of sixteen
// bytes, some tens of nanoseconds beside the ten thousand of a READ.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_set>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "cache/memory/ram_arena.h"
#include "plan/tracking/order_score.h"
#include "plan/tracking/rank_trackers.h"

namespace clairfs {

/// The pages that a READ asks for; none: where in the file it was does not matter.
struct ReadPages {
  uint32_t first = 0;
  uint16_t count = 0;
};

/// A file that a thread has opened, or in which it has read some pages.
struct SeenOpen {
  FileId file;
  ThreadId thread;
  Access kind = Access::read;
  bool planned = true;  ///< by the reader of the plan that was found, when there was one; else by any reader
  uint16_t pages = 0;   ///< as ReadPages; so is the next
  uint32_t first_page = 0;

  uint64_t offset() const { return uint64_t{first_page} * kPageSize; }
  uint64_t length() const { return uint64_t{pages} * kPageSize; }
};

/// Thread-safe: one lock, a leaf, held for microseconds.
class AccessRecorder {
 public:
  /// Opens kept, in 1 MiB. An order that is not clear after as many will not be: then nothing is recorded.
  static constexpr size_t kMost = 1 << 16;

  /// Opens of a reader at which it is looked for the first time: a folder that is read file after file is
  /// certain after 20 or so.
  static constexpr size_t kFirstLook = 12;

  /// `wake` is called, with the lock held, when as many were seen as look_at() has asked for, of a new reader
  /// kFirstLook.
  explicit AccessRecorder(std::function<void()> wake);

  /// Whether note() has any effect.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  /// Returns whether it is recorded: on, and of none of the files, or places in them, that were seen last.
  bool note(ThreadId thread, FileId file, Access kind, TimePoint now, bool planned = true,
            ReadPages pages = {});
  /// The reader of a plan that was found went on in its order: what was noted of it meanwhile were strays.
  void note_in_order();

  /// Forgets everything, and begins to record or ends.
  void restart(bool on);
  /// Forgets what some threads opened, and goes on: what is left is of others than the plan's reader. Returns
  /// what is forgotten, in the order of time. Holds the lock for some ten nanoseconds an open.
  std::vector<SeenOpen> forget(const std::unordered_set<uint32_t>& threads);
  /// The same with what all have opened.
  std::vector<SeenOpen> forget_all();
  /// Forgets what was opened of some files, by their numbers, and goes on. Holds the lock as long.
  void forget_files(const std::unordered_set<uint32_t>& files);
  /// Asks for a call of `wake` once `count` opens were seen.
  void look_at(size_t count);
  /// The first `most` opens, in the order of time.
  std::vector<SeenOpen> opens(size_t most = kMost) const;
  size_t count() const { return count_.load(std::memory_order_relaxed); }
  /// How often something was forgotten: what comes then may be another reader's.
  uint64_t beginnings() const { return beginnings_.load(std::memory_order_relaxed); }

 private:
  void forget() REQUIRES(mutex_);
  template <typename Of>
  void forget_if(const Of& of) REQUIRES(mutex_);

  const std::function<void()> wake_;
  std::atomic<bool> on_{false};
  std::atomic<size_t> count_{0};  // of opens_, for those that do not hold the lock
  std::atomic<uint64_t> beginnings_{0};

  mutable Mutex mutex_;
  std::deque<SeenOpen> opens_ GUARDED_BY(mutex_);
  std::array<uint64_t, 64> newest_ GUARDED_BY(mutex_){};  // places; as many workers as a node has
  size_t next_newest_ GUARDED_BY(mutex_) = 0;
  size_t look_at_ GUARDED_BY(mutex_) = 0;
  size_t strays_ GUARDED_BY(mutex_) = 0;      // of opens_, at most: those of the planned reader
  uint32_t in_order_ GUARDED_BY(mutex_) = 0;  // since the newest of them
  TimePoint last_ GUARDED_BY(mutex_){};
};

}  // namespace clairfs
