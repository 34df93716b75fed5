// Finds the process that changed pages of a dataset file.
//
// No file can be opened for writing (fuse_session.h), unless root makes the mount writable again, or the
// mount's user is root of a user namespace that owns the file. Other processes read the changes of such a
// writer until the kernel writes them back: then the write is refused and dropped, and reported here. The
// kernel's write-back does not say whose pages they are, so the process is looked for by its mapping.
#pragma once

#include <string>

#include <sys/types.h>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "fs/base/inodes.h"

namespace clairfs {

/// Thread-safe. References outlive it.
class DirtyPages {
 public:
  DirtyPages(const Catalog& catalog, const Clock& clock, Logger& log)
      : catalog_(catalog), clock_(clock), log_(log) {}

  /// Which mount it is about; before that no process is looked for.
  void mounted_on(dev_t device);
  /// A write to `file` was refused. `writer`: 0 if the kernel did not tell; then /proc is searched, which may
  /// wait for processes that are being traced or changed: not for a FUSE thread.
  void found(FileId file, pid_t writer);
  /// The last file and its writer, for users who may know the file's name; empty if there was none.
  std::string text() const;

 private:
  const Catalog& catalog_;
  const Clock& clock_;
  Logger& log_;
  mutable Mutex mutex_;  // leaf
  dev_t device_ GUARDED_BY(mutex_) = 0;
  FileId file_ GUARDED_BY(mutex_);
  TimePoint searched_ GUARDED_BY(mutex_);
  std::string text_ GUARDED_BY(mutex_);
};

/// The first process that maps the inode shared and writable; 0 if none is found, or may be looked at.
pid_t writable_mapper(dev_t device, Inode inode);

}  // namespace clairfs
