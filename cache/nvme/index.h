// The index of an NVMe store: its file, and the thread that appends to it and compacts it.
//
// Records reach the file some time after the store acted on them, in the same order; nothing waits for them
// and nothing is synced. A crash may lose warm chunks, never correctness (see cache/nvme/record.h).
//
// The index has a share of the store's capacity. The file may take 5/8 of the share and the records of live
// chunks 3/8, so that old and new file fit it together while the live records are copied over, and each
// compaction makes room for at least 2/8. All of the share is taken from the disk at once: a compaction gives
// back what the old file does not use, so that there is room for the new one on a disk that is full by then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"
#include "cache/nvme/record.h"

namespace clairfs {

struct NvmeIndexLimits {
  uint64_t share = 0;         ///< bytes for the index, compaction included
  uint32_t file_records = 0;  ///< that the file may hold
  uint32_t live_records = 0;  ///< that chunks may have
  /// Those of the old and of the new file.
  uint32_t all_records() const { return file_records + live_records; }

  /// Enough for a store full of chunks that take `chunk` bytes on average in kRuns extents each, but at most
  /// 1/64 of the capacity: 1.6 % of the disk, one record for each 8 KiB. 0: not known, 1/64.
  static NvmeIndexLimits of(uint64_t capacity, uint64_t chunk = 0);
  /// Three on average in a store that is full but for its slack (cache/nvme/space.h), and one more for
  /// certainty.
  static constexpr uint64_t kRuns = 4;
};

/// A file of records behind a header. Not thread-safe.
class NvmeIndexFile {
 public:
  static constexpr const char* kName = "index";
  static constexpr const char* kNewName = "index.new";  ///< of a compaction under way

  /// An empty one; what was there is gone.
  static Result<NvmeIndexFile> create(int directory, const char* name, uint32_t segment_slots);
  /// Errors: ENOENT; EBADMSG when it is not an index of this layout.
  static Result<NvmeIndexFile> open(int directory, const char* name, uint32_t segment_slots);

  /// Whether there is one, of whatever version and however damaged.
  static bool exists(int directory);

  uint32_t records() const { return records_; }
  uint64_t bytes_on_disk() const;
  /// Records from `number` on, as many as there are and fit; intact or not.
  Result<size_t> read(uint32_t number, std::span<NvmeRecord> into) const;
  Status append(std::span<const NvmeRecord> records);
  /// Takes the disk space of `records` in all, so that appending does not fail for want of it. Errors:
  /// ENOSPC.
  Status preallocate(uint32_t records);
  /// Gives back the disk space that its records do not use.
  void trim();
  Status sync();

 private:
  NvmeIndexFile(Fd file, uint32_t records) : file_(std::move(file)), records_(records) {}

  Fd file_;
  uint32_t records_ = 0;
};

/// Thread-safe but for compact(). The hooks are called from the index's thread, with no lock held.
class NvmeIndex {
 public:
  struct Hooks {
    /// These are in the file now, the first of them with number `first`.
    std::function<void(std::span<const NvmeRecord>, uint32_t first)> written;
    /// Whether the chunk whose records begin with this one, number `from`, is still the live one; if so, its
    /// records now begin at `to`.
    std::function<bool(const NvmeRecord&, uint32_t from, uint32_t to)> relocate;
    /// The index cannot be written any more; called once.
    std::function<void(const Error&)> failed;
  };

  /// `directory` (a descriptor) outlives this.
  NvmeIndex(int directory, NvmeIndexFile file, uint32_t segment_slots, const NvmeIndexLimits& limits,
            Hooks hooks);
  /// Writes what is queued.
  ~NvmeIndex();

  /// Copies the live records into a new file, which takes the old one's place. For the time before start():
  /// if most records are garbage, or the file is beyond its limit.
  Status compact();
  uint32_t records() const { return file_.records(); }  ///< before start() only
  void start();
  void append(std::vector<NvmeRecord> records);

 private:
  void run();
  Status write(std::span<const NvmeRecord> records);
  Status copy_live(NvmeIndexFile& into);

  // Constant after construction.
  const int directory_;
  const uint32_t segment_slots_;
  const NvmeIndexLimits limits_;
  const Hooks hooks_;

  // Owned by the index's thread once it has started.
  NvmeIndexFile file_;

  // Guarded.
  Mutex mutex_;
  std::vector<NvmeRecord> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Self-synchronised.
  CondVar wake_;
  NamedThread thread_;
};

}  // namespace clairfs
