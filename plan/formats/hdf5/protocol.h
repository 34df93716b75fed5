// The protocol between the program that reads HDF5 files and the one that started it, over a socket: plain
// structs, since both run on one machine and come from one build. The reader asks for bytes of the file, says
// where the rows of each dataset are, and ends with `done` or `refused`.
#pragma once

#include <cstdint>

namespace clairfs::hdf5 {

/// The name of the program that reads the files.
inline constexpr char kHelperName[] = "clairfs-hdf5-index";

enum class Say : uint32_t {
  read = 1,  ///< a ReadRequest; answered by a ReadAnswer and that many bytes
  dataset,   ///< a DatasetHead, of the next of the datasets that were asked for
  chunks,    ///< that many StoredChunk of that dataset, by block
  done,      ///< nothing
  refused,   ///< why, as text
};

struct FrameHead {
  uint32_t say = 0;
  uint32_t bytes = 0;  ///< that follow
};

/// Longest frame, in bytes: some thousand chunks.
inline constexpr uint32_t kMostFrame = 96 << 10;

struct ReadRequest {
  uint64_t offset = 0;
  uint64_t length = 0;
};

/// Longest read. The largest pieces of an index that HDF5 writes have some megabytes.
inline constexpr uint64_t kMostRead = 64 << 20;

struct ReadAnswer {
  uint64_t bytes = 0;  ///< fewer than were asked for only at the file's end
};

enum class Storage : uint64_t { compact, contiguous, chunked };

inline constexpr uint64_t kNowhere = UINT64_MAX;  ///< the offset of contiguous data that was never written

/// A row is all elements of one index of the first dimension.
struct DatasetHead {
  uint64_t storage = 0;
  uint64_t rows = 0;
  uint64_t row_bytes = 0;   ///< contiguous
  uint64_t offset = 0;      ///< contiguous: of row 0 in the file
  uint64_t chunk_rows = 0;  ///< chunked: rows that a chunk has a part of, but for the last ones
};

/// A chunk as it lies in the file, whatever filters it went through.
struct StoredChunk {
  uint64_t block = 0;  ///< it has rows from block * chunk_rows on
  uint64_t offset = 0;
  uint64_t length = 0;
};

}  // namespace clairfs::hdf5
