// The directory MOUNT/.clairfs: files whose content is made when they are looked up.
//
// The mount has no OPEN messages, so a file cannot ask for uncached reads. Instead every lookup of a control
// file makes a snapshot with a new inode: size and content are fixed, a reader sees one consistent text, and
// the next lookup (names of control files are never cached) sees the next state. FORGET frees a snapshot.
// stat(2) shows the same number for all snapshots of a file: cp takes a file whose number changes between its
// look and its open for one that was replaced.
//
// A file that takes writes takes what was written to one snapshot as one text. There is no message when a
// writer closes it, so each write is carried out with all that came before it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sys/stat.h>

#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/catalog/scan.h"
#include "fs/base/inodes.h"

namespace clairfs {

struct ControlFile {
  std::string name;
  mode_t mode = 0444;                    ///< permission bits; the owner is the daemon's user
  std::function<std::string()> content;  ///< called at lookup, from any thread, no lock held
  /// Takes the whole text written so far; `before` is the part of it that an earlier call has taken, empty on
  /// the first. The effect of that part is undone where the whole is refused. Absent: the file cannot be
  /// written.
  std::function<Status(std::string_view text, std::string_view before)> write{};
  /// The content for users who may not control the mount, when that is less. It names no file whose folder
  /// the user may not list.
  std::function<std::string()> content_for_others{};
};

/// Thread-safe. All files are added before the mount is served.
class ControlFiles {
 public:
  static constexpr std::string_view kDirectoryName = kReservedName;

  explicit ControlFiles(time_t started) : started_(started) {}
  void add(ControlFile file) { files_.push_back(std::move(file)); }
  const std::vector<ControlFile>& files() const { return files_; }

  /// Makes a snapshot and counts one lookup of it. Its content is left empty for users who may not read it:
  /// looking up needs no permission. Errors: ENOENT; ENFILE when snapshots that are still open take too much
  /// memory. Users without control rights can use at most half of it.
  Result<Inode> lookup(std::string_view name, bool may_control);
  /// Makes a symlink to `target`, likewise: what is looked up where a file is only reached by a link.
  Result<Inode> lookup_link(std::string target);
  /// A snapshot's content, a symlink's target; null for the directory and unknown inodes.
  std::shared_ptr<const std::string> content(Inode inode) const;
  /// The file that a snapshot is of; null for the directory, symlinks and unknown inodes.
  const ControlFile* file(Inode inode) const;
  /// Attributes of the directory or of a snapshot.
  std::optional<struct stat> attributes(Inode inode) const;
  /// Adds a write to those before it on the same snapshot. Returns all of them. A write at offset 0 begins a
  /// new text. Errors: EINVAL where it does not continue the text; that of a write before it that failed,
  /// since the text would lack that part; EFBIG above 1 MiB.
  Result<std::string> append(Inode inode, std::string_view text, uint64_t offset);
  /// The snapshot was truncated: a new text begins.
  void truncate(Inode inode);
  /// A write failed: so do all others to the snapshot, until it is truncated. (Python writes again what
  /// failed when it closes the file.)
  void spoil(Inode inode, const Error& error);
  /// st_ino of the control file with this position in files().
  static Inode number(size_t position) { return kControlInode + 2 + position; }
  void forget(Inode inode, uint64_t lookups);

 private:
  struct Snapshot {
    const ControlFile* file = nullptr;  // null: a symlink
    std::shared_ptr<const std::string> content;
    uint64_t lookups = 0;
    std::string written{};
    std::optional<Error> spoilt{};
  };

  /// Content of all snapshots together: hundreds of open ones, however large they are.
  static constexpr uint64_t kMostBytes = 64ULL << 20;
  /// Memory of each besides its content, roughly.
  static constexpr uint64_t kSnapshotBytes = 256;

  /// Of a plan: the longest that PyTorch needs, with a generator's state, has 7 KiB.
  static constexpr size_t kMostWritten = 1 << 20;

  Result<Inode> add_snapshot(const ControlFile* file, std::string content, uint64_t most_bytes);

  const time_t started_;
  std::vector<ControlFile> files_;

  mutable Mutex mutex_;  // leaf
  std::unordered_map<Inode, Snapshot> snapshots_ GUARDED_BY(mutex_);
  Inode next_ GUARDED_BY(mutex_) = kControlInode + 1;
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace clairfs
