#include "cache/nvme/space.h"

namespace clairfs {

std::vector<Extent> NvmeSpace::allocate_runs(uint32_t slots, size_t max_extents) {
  std::vector<Extent> extents;
  if (!free_.fit(slots, max_extents)) return extents;
  while (slots > 0) {
    extents.push_back(free_.take(slots));
    slots -= extents.back().count;
  }
  return extents;
}

}  // namespace clairfs
