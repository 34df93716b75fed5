// Parts of the work on records that benchmarks switch off, to show what each contributes.
//
// CLAIRFS_BENCH_WITHOUT names them, parted by commas: "merge" (neighbouring fetches are read together),
// "order" (tiers are filled in the order of the file). Results are the same, and slower.
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
