#include "cache/base/checksum.h"

#include <memory>

#include <xxhash.h>

namespace clairfs {

uint64_t xxh3_64(std::span<const iovec> memory) {
  if (memory.size() == 1) return XXH3_64bits(memory[0].iov_base, memory[0].iov_len);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const iovec& run : memory) XXH3_64bits_update(state.get(), run.iov_base, run.iov_len);
  return XXH3_64bits_digest(state.get());
}

}  // namespace clairfs
