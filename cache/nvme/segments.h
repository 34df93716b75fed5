// The segment files of an NVMe store: descriptors, O_DIRECT, growth within a limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/fd.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/nvme/space.h"

namespace clairfs {

struct SegmentLayout {
  /// 4 GiB a file: 256 descriptors for a terabyte.
  uint32_t segment_slots = 1U << 20;
  /// Files grow by 256 MiB: a moment's work for fallocate(), and little taken that is not used.
  uint32_t growth_slots = 1U << 16;
  /// When the disk is nearly full, growth is halved down to 256 KiB to take the rest; less is not worth a
  /// try.
  uint32_t smallest_growth_slots = 64;
};

/// Thread-safe. Segments only grow; slot numbers stay valid.
class NvmeSegments {
 public:
  /// Opens what is there and cuts it down to `limit` bytes in all: last files first. `directory` (a
  /// descriptor) and `log` outlive this; `name` is the directory's path for messages.
  static Result<std::unique_ptr<NvmeSegments>> open(const SegmentLayout& layout, int directory,
                                                    std::string name, uint64_t limit, Logger& log);

  /// Preallocates more slots, which are free. Errors: ENOSPC at the limit or when the disk is full, and
  /// others; after any error growable() is 0. Log lines name every cause but the limit.
  Result<Extent> grow();

  /// They grow no more: a write has found the disk full, though room for it had been promised (thinly
  /// provisioned, or no preallocation there).
  void end_growth();

  /// Bytes that could still be grown by, as far as is known.
  uint64_t growable() const;
  /// Bytes of all segments, with those that could still be grown by: growing does not change it.
  uint64_t most_bytes() const;
  /// Bytes of the limit that will not be had, because growth ended before it, as on a full disk; else 0.
  uint64_t missing() const;
  /// Why it did; ENOSPC: the disk is full.
  std::optional<Error> cut_short() const;
  /// Slots that segment files hold now, in order of their address; one extent a segment, empty ones included.
  std::vector<Extent> extents() const;
  /// The descriptor and position of an extent. REQUIRES: it was grown or found.
  int fd_of(Extent extent) const;
  uint64_t offset_of(Extent extent) const {
    return uint64_t{extent.first % layout_.segment_slots} * kSlotSize;
  }
  bool contains(Extent extent) const;
  const SegmentLayout& layout() const { return layout_; }

  /// Where O_DIRECT is refused: asks the kernel to forget the pages, since the data is cached in RAM already.
  void forget_pages(Extent extent) const;

 private:
  struct Segment {
    Fd file;
    uint32_t slots = 0;
  };

  NvmeSegments(const SegmentLayout& layout, int directory, std::string name, uint64_t limit, Logger& log);
  Status load();
  uint32_t files_in_directory() const;
  Result<Segment> load_file(uint32_t number);
  void shrink() REQUIRES(mutex_);
  Result<Fd> open_file(uint32_t number);
  Result<uint32_t> extend(int file, uint32_t from, uint32_t slots) const;
  uint64_t total_slots() const REQUIRES(mutex_);
  Error end_growth(Error cause, bool at_limit);

  // Constant after construction.
  const SegmentLayout layout_;
  const int directory_;
  const std::string name_;
  const uint64_t limit_slots_;
  Logger& log_;

  // Guarded. `growth_mutex_` lets one thread grow at a time and is taken before `mutex_`, which is a leaf and
  // never held during a system call once the store is open: reads do not wait for growth.
  Mutex growth_mutex_;
  mutable Mutex mutex_;
  std::vector<Segment> segments_ GUARDED_BY(mutex_);
  bool growth_ended_ GUARDED_BY(mutex_) = false;
  std::optional<Error> cut_short_ GUARDED_BY(mutex_);  // why it ended, if that was before the limit

  // Self-synchronised: once a file refused O_DIRECT, none is opened with it.
  std::atomic<bool> direct_{true};
};

}  // namespace clairfs
