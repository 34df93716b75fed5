// Finding the records of a shard by its headers, of which each says where the next one is.
//
// The caller reads: from next() on as much as wanted() says, and gives the bytes to take(). So many shards
// can be walked at the same time, and a shard of large records is read at its headers only.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Where a sample lies in its shard, bytes.
struct RecordPlace {
  uint64_t offset = 0;
  uint64_t length = 0;

  bool operator==(const RecordPlace&) const = default;
};

/// Of one shard; for one thread. The bytes may be anything.
class RecordWalk {
 public:
  explicit RecordWalk(uint64_t size) : size_(size) {}
  virtual ~RecordWalk() = default;

  bool done() const { return at_ == size_; }
  uint64_t next() const { return at_; }
  /// At least 1, and not beyond the shard's end. REQUIRES: not done.
  uint64_t wanted() const;

  /// The shard's bytes from next() on. REQUIRES: as many as wanted. Errors: EINVAL with the cause alone.
  Status take(std::string_view bytes);

  /// The records so far, in their order.
  const std::vector<RecordPlace>& records() const { return records_; }

 protected:
  /// Looks at the header at next(), with which `bytes` begins. It goes on to the next one, or says that it
  /// needs more bytes than it was given. REQUIRES: needed_ bytes.
  virtual Status step(std::string_view bytes) = 0;

  const uint64_t size_;
  uint64_t at_ = 0;
  uint64_t needed_ = 1;  ///< from at_ on, to understand the header there
  std::vector<RecordPlace> records_;

 private:
  uint64_t window_ = kLeastWindow;
  static constexpr uint64_t kLeastWindow = 4096;  // a page: less costs a filesystem as much
};

/// The frames of a TFRecord file, each a record: the length, its checksum, the data and theirs. The checksum
/// of each length is verified.
/// Source: tensorflow, core/lib/io/record_writer.h.
std::unique_ptr<RecordWalk> walk_tfrecord(uint64_t size);

/// Of a TFRecord frame's first kTfrecordHead bytes: the bytes of the frame. Errors: EINVAL when they are
/// none.
inline constexpr uint64_t kTfrecordHead = 12;
Result<uint64_t> tfrecord_frame(std::string_view head);

/// The samples of an uncompressed tar: its regular files, put together as WebDataset does
/// (formats/shards/tar_samples.h). POSIX (ustar, pax) and GNU archives, as Python's tarfile reads them;
/// refused are sparse files.
std::unique_ptr<RecordWalk> walk_tar(uint64_t size);

}  // namespace clairfs
