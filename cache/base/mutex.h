// Locks that clang's thread-safety analysis understands (-Wthread-safety).
// See https://clang.llvm.org/docs/ThreadSafetyAnalysis.html; the attributes can only be had as macros.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define CLAIRFS_ANNOTATE(x) __attribute__((x))
#else
#define CLAIRFS_ANNOTATE(x)
#endif
#define GUARDED_BY(m) CLAIRFS_ANNOTATE(guarded_by(m))
#define REQUIRES(...) CLAIRFS_ANNOTATE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) CLAIRFS_ANNOTATE(locks_excluded(__VA_ARGS__))

namespace clairfs {

class CLAIRFS_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() CLAIRFS_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void unlock() CLAIRFS_ANNOTATE(release_capability()) { mutex_.unlock(); }
  /// Tells the analysis, which does not look through call-backs, that this one runs with the lock held.
  void assert_held() const CLAIRFS_ANNOTATE(assert_capability()) {}

 private:
  std::mutex mutex_;
};

/// Holds `mutex` for its scope; may be opened and closed again in between (for waits and call-backs).
class CLAIRFS_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CLAIRFS_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() CLAIRFS_ANNOTATE(release_capability()) {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() CLAIRFS_ANNOTATE(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }
  void unlock() CLAIRFS_ANNOTATE(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

/// Condition variable for MutexLock: `cv.wait(lock)` in a loop that tests the condition.
using CondVar = std::condition_variable_any;

}  // namespace clairfs
