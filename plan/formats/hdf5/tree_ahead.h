// The index of a chunked dataset, read ahead: libhdf5 asks for the nodes of its B-tree one after the other,
// and each waits for the source. The nodes below a node are read, all at once, as soon as that node is.
//
// HDF5 File Format Specification, version 3.0, III.A.1 (version 1 B-trees, node type 1), which is what
// libhdf5 writes unless it is told otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"

namespace clairfs::hdf5 {

/// Where the nodes below this one begin; nothing unless it is a whole inner node of a chunk index, in a file
/// of `file_bytes`.
std::vector<uint64_t> nodes_below(std::string_view node, uint64_t file_bytes);

/// Reads of one file. Not thread-safe.
class TreeAhead {
 public:
  /// `source` outlives it.
  TreeAhead(const DatasetSource& source, FileId file) : source_(source), file_(file) {}

  /// The bytes of that range, which lies in the file. Errors: those of DatasetSource::read_all().
  Result<std::string> read(uint64_t offset, uint64_t length);

 private:
  Status read_below(std::string_view node);

  const DatasetSource& source_;
  const FileId file_;
  std::map<uint64_t, std::string> ahead_;  // by offset
  size_t held_ = 0;                        // bytes in it
};

}  // namespace clairfs::hdf5
