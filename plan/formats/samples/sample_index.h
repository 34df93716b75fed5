// SampleIndex: what a sample number of the framework means in bytes.
//
// A sample is a list of byte ranges of catalog files: one whole file in the simple formats, one row of an
// array in npy, several values of a database, none at all where the framework opens something that the mount
// does not serve (a dangling symlink, a link that leads out of the dataset). Nothing assumes one file a
// sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/memory/ram_arena.h"

namespace clairfs {

/// A piece of a file that a sample is made of.
struct ByteRange {
  FileId file;
  uint64_t offset = 0;  ///< bytes
  uint64_t length = 0;  ///< bytes; 0 for an empty file
};

/// Samples [first, end).
struct SampleSpan {
  uint32_t first = 0;
  uint32_t end = 0;
};

/// Bytes. A buffered file (Python's open(path, "rb") up to 3.13, C's stdio, np.fromfile) reads whole buffers
/// from where it was sought to, each as large as the mount says that a block is. The buffer of Python 3.14 is
/// 128 KiB: to push as much with each record would cost more than to read it when it is asked for.
constexpr uint32_t kBufferedBlock = 4096;

/// A reader of the bytes [offset, end) of a file most likely wants a sample that begins among them before the
/// place returned. The kernel asks for whole pages, and the record that it asks for begins anywhere in the
/// first of them. A range that begins elsewhere (of O_DIRECT) begins with its record.
constexpr uint64_t likely_until(uint64_t offset, uint64_t end) {
  return std::min(end, offset % kPageSize == 0 ? offset + kPageSize : offset + 1);
}

/// Immutable after it was made, so thread-safe without locks.
class SampleIndex {
 public:
  virtual ~SampleIndex() = default;

  virtual std::string_view format() const = 0;  ///< as the plan key says it
  virtual uint32_t size() const = 0;            ///< samples; at most UINT32_MAX - 1

  /// How many pieces `sample` has, and each of them in the order in which they are read.
  virtual uint32_t range_count(uint32_t sample) const = 0;
  virtual ByteRange range(uint32_t sample, uint32_t piece) const = 0;

  /// Calls `visit(sample)` once for every sample that has bytes among the `length` of `file` from `offset`
  /// on: those that a read of the range may belong to. The likeliest come first: those that begin in its
  /// first page (likely_until()), since a reader of a record begins with the record; then those that hold its
  /// first byte, as when its beginning was in the page cache; then the rest. Of those of a kind the first
  /// ones come first. In formats where a sample is one file the range does not matter; there may be several
  /// (a list that names a file twice, links to it). Parts of streams, which are read from front to back, just
  /// ascend.
  virtual void samples_of(FileId file, uint64_t offset, uint64_t length,
                          const std::function<void(uint32_t sample)>& visit) const = 0;

  /// Whether a file may hold several samples, so that its pages and chunks may be those of several.
  virtual bool shares_files() const { return false; }
  /// Whether bytes may belong to several samples: rows that were compressed together.
  virtual bool shares_bytes() const { return false; }

  /// Whether samples are parts of files that are read from front to back, one part after the other.
  virtual bool is_stream() const { return false; }
  /// The samples as the sampler numbers them: these, or the files that they are parts of.
  virtual const SampleIndex& numbered() const { return *this; }
  /// The samples that are read where the sampler says `number`. REQUIRES: number < numbered().size().
  virtual SampleSpan parts(uint32_t number) const { return {number, number + 1}; }

  /// The bytes of the blocks in which readers of the format may take a piece from its beginning on, and so
  /// read on past its end; 1 where they map files or read without a buffer.
  virtual uint32_t read_block() const { return 1; }
  /// Where, in the file, a reader of the piece stops at the latest: maybe beyond the file's end.
  virtual uint64_t read_end(const ByteRange& piece) const {
    const uint64_t block = read_block();
    return piece.offset + (piece.length + block - 1) / block * block;
  }

  /// The bytes that belong to no sample and that every reader needs: headers, the pages of an index. By file
  /// and offset, without overlap. Pages that hold samples and nothing else of use are not among them.
  virtual std::span<const ByteRange> shared_ranges() const { return {}; }

  /// For people: the file's path below the catalog's root as the framework names it, and where it holds
  /// several samples the number of this one, as an element of an array is written: "train.lmdb[12345]".
  virtual std::string path(uint32_t sample) const = 0;

  /// Equal on two nodes that found the same samples in their files; 0 where the catalog alone says where they
  /// are.
  virtual uint64_t identity() const { return 0; }

  virtual uint64_t memory_bytes() const = 0;  ///< without the catalog
};

/// Calls `visit(ChunkId)` for every chunk that the sample touches, in the order of its bytes.
template <class Visit>
void for_each_chunk(const SampleIndex& index, const Catalog& catalog, uint32_t sample, Visit&& visit) {
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.length == 0) continue;
    const Catalog::Chunks chunks = catalog.chunks(range.file);
    if (chunks.count == 1) {  // most files; spares the divisions
      visit(chunks.first);
      continue;
    }
    const uint32_t first = chunks.first.value;
    const uint64_t size = catalog.chunk_size(range.file);
    const uint64_t last = (range.offset + range.length - 1) / size;
    for (uint64_t chunk = range.offset / size; chunk <= last; ++chunk) {
      visit(ChunkId(first + static_cast<uint32_t>(chunk)));
    }
  }
}

}  // namespace clairfs
