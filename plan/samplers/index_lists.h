// Orders written down by the user: `list=FILE`, and the indices of torch.subset.
//
// File format: one decimal sample index per line. A blank line, or a line that starts with "# epoch", ends an
// epoch's order; several of them in a row count once. Other lines that start with '#' are comments. One
// order serves all epochs; otherwise there is one per epoch, from epoch 0 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Orders that are taken from one list: more epochs than any job has, and 24 MB for where each begins.
inline constexpr size_t kMostLists = 1 << 20;

/// One or more orders. Immutable and thread-safe.
class IndexLists {
 public:
  virtual ~IndexLists() = default;

  virtual size_t count() const = 0;
  /// Indices in a list. REQUIRES: list < count().
  virtual uint64_t size(size_t list) const = 0;
  /// A list. REQUIRES: list < count(). Errors: EIO, ESTALE if its file changed since it was opened.
  virtual Result<std::vector<uint32_t>> read(size_t list) const = 0;
};

/// Lists that are in memory already. Errors: EINVAL for no list at all, or an index >= n.
Result<std::shared_ptr<const IndexLists>> make_index_lists(std::vector<std::vector<uint32_t>> lists,
                                                           uint64_t n);

/// Checks a file in the format above and keeps it open; an epoch is read when it is asked for, so that
/// memory does not grow with the epochs (24 bytes each). Errors: EINVAL with the line, or errno of the file.
Result<std::shared_ptr<const IndexLists>> read_index_list(const std::string& path, uint64_t n);

/// One weight per line (decimal or C hexadecimal floating point), '#' comments and blank lines ignored.
/// Errors: EINVAL with the line (a weight is finite and >= 0; at most `limit` of them), or errno.
Result<std::vector<double>> read_weights(const std::string& path, uint64_t limit);

}  // namespace clairfs
