// Asks libhdf5 where the rows of a file's datasets are. The library runs in a separate process, the program
// kHelperName: it may crash on a damaged file, or never end. That process can open nothing; the bytes it
// wants are read here, the way any index of a plan is, and sent to it. Every reader of the file has to read
// the same bytes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/hdf5/layout.h"

namespace clairfs::hdf5 {

struct IndexOptions {
  std::string helper;  ///< path of the program; empty: the one that belongs to this program
  /// It looks up some hundred thousand chunks a second, and says where they are some thousands at a time.
  std::chrono::milliseconds silence = std::chrono::seconds(20);
  /// A million chunks take some seconds, and 500 reads of their index one after the other.
  std::chrono::milliseconds total = std::chrono::minutes(10);
};

struct FileIndex {
  Layout layout;                 ///< finished
  std::vector<ByteRange> reads;  ///< of metadata: every reader's
};

/// Blocks; not for a thread that answers FUSE requests. Errors: EINVAL with the cause alone, also when the
/// process crashes, is too slow or says what cannot be; what a read returned.
Result<FileIndex> index_file(const DatasetSource& source, FileId file,
                             const std::vector<std::string>& datasets, const IndexOptions& options);

}  // namespace clairfs::hdf5
