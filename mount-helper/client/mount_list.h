// All clairfs mounts that this process sees, with a word on the health of each.
#pragma once

#include <string>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

struct ListedMount {
  std::string mountpoint;
  std::string source;
  /// "well", "stale", "hangs", "of user N" (who mounted it without --allow-other), "N troubles".
  std::string health;
  std::string plans;  ///< "default following"; "none"; "-" where it is not told
  int pid = 0;        ///< 0: not known
};

/// In the order of the kernel's list. A mount that hangs takes its time, which is bounded. REQUIRES: this
/// process has one thread.
Result<std::vector<ListedMount>> list_mounts();

/// A table for people, or a line that says that there is none.
std::string mount_table(const std::vector<ListedMount>& mounts);
/// An array of objects {mountpoint, source, health, plans, pid}.
std::string mount_list_json(const std::vector<ListedMount>& mounts);

}  // namespace clairfs
