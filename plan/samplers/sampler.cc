#include "plan/samplers/sampler.h"

#include <cerrno>
#include <new>

namespace clairfs {

std::vector<uint32_t> RankOrder::to_vector() const {
  std::vector<uint32_t> indices(size());
  for (uint64_t k = 0; k < indices.size(); ++k) indices[k] = (*this)[k];
  return indices;
}

Result<IndexOrder> Sampler::order(Epoch epoch) {
  try {
    return make_order(epoch);
  } catch (const std::bad_alloc&) {
    return Error{ENOMEM, "not enough memory for the order of epoch " + std::to_string(epoch.value)};
  }
}

Result<RankOrder> Sampler::rank_order(Epoch epoch, TrainingRank rank) {
  if (rank.value >= world_) {
    return Error{EINVAL,
                 "rank: " + std::to_string(rank.value) + " is not below world = " + std::to_string(world_)};
  }
  Result<IndexOrder> made = order(epoch);
  if (!made) return made.error();
  return RankOrder(std::move(*made), slice(epoch, rank));
}

}  // namespace clairfs
