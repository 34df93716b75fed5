// One NVMe directory as a store of chunks: segment files, an append-only index, a checksum on every read.
//
// Layout of the directory (mode 0700, locked with flock by one daemon):
//   lock            the lock file; holds the pid of the owner
//   index           header and fixed-size records, appended; each record carries its own checksum, a
//                   torn tail is cut off on open
//   segment-NNNNNN  slots padded to 4 KiB; preallocated, written with O_DIRECT where the filesystem takes it
//
// The store is keyed by path and stamp of the file, not by chunk number, so that it stays warm over a rescan:
// a changed file has another key and its old chunk is simply never asked for again (see drop_unless()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/result.h"
#include "cache/catalog/chunk_key.h"
#include "cache/io/backend.h"

namespace clairfs {

/// The part of usable_bytes() that even the smallest chunk takes: its share of the index.
inline constexpr uint64_t kNvmeSmallestShare = 8 << 10;

/// A disk that takes longer than this for a transfer counts as one that does not answer. A disk that is busy
/// writing takes less, and a reader may wait this long once.
inline constexpr Duration kNvmePatience = std::chrono::seconds(10);

struct NvmeOptions {
  std::string directory;
  uint64_t capacity = 0;  ///< bytes that the directory may ever hold, index included
  /// Bytes of a chunk on average, padding included; decides how much of the capacity is the index's. 0: not
  /// known, taken for small.
  uint64_t mean_chunk = 0;
  std::string dataset = {};  ///< its path, noted for people (cache/nvme/directory.h)
  Duration patience = kNvmePatience;
};

/// Troubles of a store since it was opened, in words; each is empty where there was none of its kind.
struct NvmeTroubles {
  std::string silent;        ///< the disk does not answer now: "no answer for 12 s"
  bool disk_full = false;    ///< before the store had grown to its capacity; it goes on with what it has
  std::string cut_short;     ///< why else it grows no more, though it should
  std::string switched_off;  ///< why it is not written, or not read either, until the next mount
  std::string error;         ///< the first operation that failed
  std::string damage;        ///< the first wrong checksum
};

/// Thread-safe. Call-backs run on the io backend's threads. No lock is held while they run or while a
/// transfer is submitted.
class NvmeStore {
 public:
  /// Opens or creates the store. Errors (one line, with the fix): directory missing, not ours, mode too open,
  /// a symlink, locked by another daemon (names its pid), read-only, no space. A damaged index is not an
  /// error: what can be trusted is kept, the rest forgotten, one warning logged. `io`, `clock`, `log` and
  /// `metrics` outlive the store.
  static Result<std::unique_ptr<NvmeStore>> open(const NvmeOptions& options, IoBackend& io,
                                                 const Clock& clock, Logger& log, Metrics& metrics);
  virtual ~NvmeStore() = default;

  /// Bytes of chunks, each rounded up to 4 KiB and at least kNvmeSmallestShare, that an empty store of
  /// `capacity` bytes is certain to take, if no chunk is larger than `chunk_size`, they take `mean_chunk`
  /// bytes or more on average (0: not known), and the disk is not full. 0 when that is too small for a store.
  static uint64_t usable_bytes(uint64_t capacity, uint32_t chunk_size, uint64_t mean_chunk = 0);

  /// Whether the chunk is here, and its length in bytes (0: not here).
  virtual uint32_t length_of(const ChunkKey& key) const = 0;

  /// Reads the whole chunk into `memory`, which holds its length rounded up to 4 KiB, in pieces aligned to 4
  /// KiB, and verifies its XXH3-64. Errors: ENOENT not here; EBADMSG wrong checksum (the chunk has been
  /// dropped); EIO and others from the device.
  virtual void read(const ChunkKey& key, std::vector<iovec> memory, std::function<void(Status)> done) = 0;

  /// Writes `length` bytes from `memory` (laid out as for read(); the padding's content does not matter) and
  /// makes the chunk known once it is there. `checksum` is the XXH3-64 of the `length` bytes. Errors: ENOSPC
  /// when it would not fit the capacity, the disk is full, or the store would have to grow first, which it
  /// never does here; EROFS, EIO: the store disables itself for writing. A chunk that is already here
  /// completes at once with success.
  virtual void write(const ChunkKey& key, std::vector<iovec> memory, uint32_t length, uint64_t checksum,
                     std::function<void(Status)> done) = 0;
  /// Whether the store has to take more of the disk before a write of so many bytes: its free slots are too
  /// scattered, or too few.
  virtual bool grows_for(uint64_t /*bytes*/) const { return false; }
  /// Takes more of the disk for a write of so many bytes, as far as there is more, and waits as long as the
  /// disk takes for that. Other writes may use it first.
  virtual void grow_for(uint64_t /*bytes*/) {}

  /// Forgets the chunk and frees its slot for reuse (after reads under way have ended).
  virtual void drop(const ChunkKey& key) = 0;
  /// Forgets every chunk for which `keep` is false; used once after mounting.
  virtual void drop_unless(const std::function<bool(const ChunkKey&)>& keep) = 0;

  /// Bytes that could still be written now (0 when disabled or full) without using up the slack
  /// (cache/nvme/space.h).
  virtual uint64_t available() const = 0;
  /// Whether it takes writes at all, once there is room.
  virtual bool writable() const = 0;
  /// Counts the store in Metrics::nvme_silent, too, or takes it off. Nothing else does while the store is
  /// open, so that is as of the last call.
  virtual NvmeTroubles troubles() { return {}; }
  virtual uint64_t bytes() const = 0;
  virtual uint64_t chunks() const = 0;
  virtual const std::string& directory() const = 0;
};

}  // namespace clairfs

template <>
struct std::hash<clairfs::ChunkKey> {
  size_t operator()(const clairfs::ChunkKey& key) const noexcept { return key.low; }  // already a hash
};
