// Reading whole files and timing it: what `clairfs bench` measures with.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace clairfs {

/// Relative paths of regular files below `folder`, at most `most`, spread evenly over all of it. Symlinks are
/// not followed. Looks at no more than 200,000 entries.
std::vector<std::string> sample_files(const std::string& folder, size_t most);

struct TimedReads {
  uint64_t files = 0;  ///< read to their end
  uint64_t bytes = 0;
  uint64_t errors = 0;
  double seconds = 0;         ///< from the first to the last
  double median_seconds = 0;  ///< of a file: open, read to its end, close
  double p99_seconds = 0;
};

/// Reads the files `folder`/NAME with `jobs` threads, in their order, until all are read or `limit` is over:
/// files that are being read then are left. `drop_before` gives the pages of each back to the kernel before
/// it is read.
TimedReads time_reads(const std::string& folder, const std::vector<std::string>& names, unsigned jobs,
                      std::chrono::milliseconds limit, bool drop_before);

}  // namespace clairfs
