// Layout makes samples of what the program that reads HDF5 files says of their datasets, which may be
// anything if the file was made to mislead it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/hdf5/protocol.h"
#include "plan/formats/index_work.h"
#include "plan/formats/samples/record_table.h"

namespace clairfs::hdf5 {

/// libhdf5 reads at least this many bytes of contiguous data at a time (H5D_SIEVE_BUF_SIZE_DEF), unless a
/// dataset ends before: a shorter row is read with the bytes behind it.
inline constexpr uint32_t kSieveBytes = 64 << 10;

/// Pieces of chunks that the rows of all files have together are at most so many. A row has a piece of each
/// chunk that it lies in, so a file of 3 MB can say that it has 4e8. Each takes up to 50 bytes while a plan
/// is made. 14 million images may lie in 19 chunks each.
inline constexpr uint64_t kMostPieces = 1 << 28;

/// Errors: EINVAL with the cause alone for more than kMostPieces.
Status check_pieces(uint64_t pieces);

struct Dataset {
  DatasetHead head;
  std::vector<StoredChunk> chunks{};  ///< by block
  uint64_t stored = 0;                ///< bytes in the file
};

/// Takes what was said of one file, frame by frame. Not thread-safe. Memory: 24 bytes a chunk, of which a
/// file has fewer than bytes.
class Layout {
 public:
  /// `wanted` datasets of a file of `file_bytes`.
  Layout(size_t wanted, uint64_t file_bytes) : wanted_(wanted), file_bytes_(file_bytes) {}

  /// The bytes of a frame, `dataset` or `chunks`. Errors: EINVAL with the cause alone, also for what no file
  /// can hold.
  Status take(Say say, std::string_view bytes);
  /// After the last frame. Errors: EINVAL when a dataset is missing, or has another number of rows, or when
  /// the rows have more than kMostPieces.
  Status finish() const;

  /// The pieces of chunks that add_samples() adds. Takes time in the order of the chunks.
  uint64_t pieces() const;

  /// How far the latest dataset is.
  void note_progress(IndexWork& work) const;

  /// A sample for each row, made of what is stored of it in each of the datasets. A dataset that is small
  /// beside the others (labels beside images) is no part of any sample but shared: each worker comes to have
  /// all of it. REQUIRES: finished. Errors: EINVAL with the cause alone.
  Status add_samples(FileId file, RecordTableBuilder& table) const;

 private:
  Status take_dataset(const DatasetHead& head);
  Status take_chunk(const StoredChunk& chunk);
  uint64_t stored() const;

  const size_t wanted_;
  const uint64_t file_bytes_;
  std::vector<Dataset> datasets_;
};

}  // namespace clairfs::hdf5
