#include "cache/catalog/check.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/catalog/builder.h"
#include "cache/catalog/scan.h"
#include "cache/io/open_below.h"

namespace clairfs {
namespace {

// Entries a thread takes at a time: neighbours mostly share their directory, which is opened once. Few, so
// that threads end at about the same time.
constexpr uint32_t kBlock = 64;

// Entries that are looked at first, to see whether their attributes are waited for.
constexpr unsigned kProbes = 4;

class Checker {
 public:
  Checker(const Catalog& catalog, int source_fd, CatalogCheck check)
      : catalog_(catalog), source_fd_(source_fd), check_(check) {}

  std::optional<std::string> run(ScanThreads threads, const ScanProgress& progress) {
    check_root();
    const unsigned useful = (catalog_.size() + kBlock - 1) / kBlock;
    const ScanThreads allowed = threads_within_limits(threads);
    threads_ = {.first = std::min(allowed.first, useful), .most = std::min(allowed.most, useful)};
    ScanPace pace(threads_);
    std::vector<NamedThread> pool;
    const auto staff = [&] {
      pace.observe(looked_at_.load(std::memory_order_relaxed), steady_now());
      while (pool.size() < std::max(pace.threads(), at_least_.load()) && add_worker(pool)) {
      }
    };
    staff();
    report(staff, progress);
    pool.clear();
    MutexLock lock(mutex_);
    return change_;
  }

 private:
  bool add_worker(std::vector<NamedThread>& pool) {
    {
      MutexLock lock(mutex_);
      ++working_;
    }
    const bool added = add_thread(pool, "catalog-check", [this, first = pool.empty()] {
      if (first && threads_.first < threads_.most) look_first();
      work();
      MutexLock lock(mutex_);
      if (--working_ == 0) changed_.notify_one();
    });
    if (added) return true;
    MutexLock lock(mutex_);
    --working_;
    return false;
  }

  void report(const std::function<void()>& staff, const ScanProgress& progress) {
    MutexLock lock(mutex_);
    while (working_ > 0) {
      changed_.wait_for(lock, kProgressPeriod);
      if (working_ == 0) break;
      lock.unlock();
      staff();
      if (progress) progress(std::min<uint64_t>(next_.load(std::memory_order_relaxed), catalog_.size()));
      lock.lock();
    }
  }

  void check_root() {
    struct stat found = {};
    if (::fstat(source_fd_, &found) != 0) return differs(FileId(0), std::strerror(errno));
    compare(FileId(0), found);
    check_access(FileId(0), source_fd_, ".");
  }

  // At entries all over the catalog; where only directories are looked at, at those that hold them. The time
  // says how many threads there should be at once.
  void look_first() {
    ScanProbe probe;
    const TimePoint begun = steady_now();
    const Duration computed = thread_cpu_time();
    while (probe.looks < kProbes) {
      ++probe.looks;
      FileId id(static_cast<uint32_t>(uint64_t{catalog_.size() - 1} * probe.looks / kProbes));
      if (check_ == CatalogCheck::directories) id = catalog_.parent(id);
      check_block(id.value, id.value + 1);
    }
    probe.passed = steady_now() - begun;
    probe.computing = thread_cpu_time() - computed;
    at_least_ = widened(threads_, probe).first;
    MutexLock lock(mutex_);
    changed_.notify_one();
  }

  void work() {
    while (!stop_.load(std::memory_order_relaxed)) {
      const uint64_t first = next_.fetch_add(kBlock, std::memory_order_relaxed);
      if (first >= catalog_.size()) return;
      check_block(static_cast<uint32_t>(first),
                  static_cast<uint32_t>(std::min<uint64_t>(first + kBlock, catalog_.size())));
    }
  }

  void check_block(uint32_t first, uint32_t end) {
    Fd directory;
    FileId opened;
    for (FileId id(std::max(first, 1U)); id.value < end && !stop_.load(std::memory_order_relaxed);
         ++id.value) {
      if (check_ == CatalogCheck::directories && catalog_.kind(id) != Catalog::Kind::directory) continue;
      const FileId parent = catalog_.parent(id);
      if (!directory || opened != parent) {
        Result<Fd> fd = open_below(source_fd_, catalog_.path(parent), O_PATH | O_DIRECTORY | O_NOFOLLOW);
        if (!fd) return differs(parent, std::strerror(fd.error().code));
        directory = std::move(*fd);
        opened = parent;
      }
      check_entry(id, directory.get());
    }
  }

  void check_entry(FileId id, int directory) {
    looked_at_.fetch_add(1, std::memory_order_relaxed);
    const char* name = catalog_.name(id).data();
    struct stat found = {};
    if (::fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
      return differs(id, std::strerror(errno));
    }
    compare(id, found);
    check_access(id, directory, name);
  }

  void compare(FileId id, const struct stat& found) {
    const SourceAttributes now = source_attributes(found);
    const struct stat then = catalog_.attributes(id);
    const Catalog::SourceState state = catalog_.source_state(id);
    if (now.inode != state.inode) return differs(id, "replaced");
    if (now.mtime_ns != catalog_.stamp(id).mtime_ns) return differs(id, "modified");
    // A directory's size follows from its entries; a symlink's says nothing on some filesystems.
    if (S_ISREG(found.st_mode) && now.size != catalog_.stamp(id).size) return differs(id, "another size");
    if (now.mode != then.st_mode || now.uid != then.st_uid || now.gid != then.st_gid) {
      return differs(id, "another mode or owner");
    }
    if (now.ctime_ns != state.ctime_ns) return differs(id, "changed");
  }

  void check_access(FileId id, int directory, const char* name) {
    if (!catalog_.source_state(id).incomplete) return;
    if (::faccessat(directory, name, R_OK | X_OK, AT_EACCESS) == 0)
      differs(id, "could not be read when scanned");
  }

  void differs(FileId id, const char* how) EXCLUDES(mutex_) {
    stop_.store(true, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    if (change_) return;
    const std::string path = catalog_.path(id);
    change_ = (path.empty() ? "the source directory" : escaped(path)) + ": " + how;
  }

  // Constant after construction.
  const Catalog& catalog_;
  const int source_fd_;
  const CatalogCheck check_;

  ScanThreads threads_;  // constant while there are workers

  Mutex mutex_;      // taken with nothing else held
  CondVar changed_;  // the last worker has ended, or there should be more
  unsigned working_ GUARDED_BY(mutex_) = 0;
  std::optional<std::string> change_ GUARDED_BY(mutex_);

  std::atomic<uint64_t> next_ = 0;
  std::atomic<uint64_t> looked_at_ = 0;
  std::atomic<unsigned> at_least_ = 0;  // threads
  std::atomic<bool> stop_ = false;
};

}  // namespace

std::optional<std::string> find_change(const Catalog& catalog, int source_fd, CatalogCheck check,
                                       ScanThreads threads, const ScanProgress& progress) {
  return Checker(catalog, source_fd, check).run(threads, progress);
}

}  // namespace clairfs
