// Parts of the work that benchmarks and tests switch off, to show what each contributes.
//
// CLAIRFS_BENCH_WITHOUT names them, parted by commas: "merge" (neighbouring fetches are read together),
// "order" (tiers are filled in the order of the file), "leaving" (pushes leave out what READs have asked for:
// without it they wait, as one does that comes a moment before the READ). Results are the same, and slower.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace clairfs {

/// Whether that part is at work.
inline bool at_work(std::string_view part) {
  const char* without = ::secure_getenv("CLAIRFS_BENCH_WITHOUT");
  return without == nullptr ||
         ("," + std::string(without) + ",").find("," + std::string(part) + ",") == std::string::npos;
}

}  // namespace clairfs
