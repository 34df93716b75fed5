#include "cache/base/checksum.h"

#include <xxhash.h>

namespace clairfs {

struct Xxh3Stream::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(state_->xxh);
}
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::add(std::span<const iovec> memory) {
  for (const iovec& run : memory) XXH3_64bits_update(state_->xxh, run.iov_base, run.iov_len);
}

uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

uint64_t xxh3_64(std::span<const iovec> memory) {
  if (memory.size() == 1) return XXH3_64bits(memory[0].iov_base, memory[0].iov_len);
  Xxh3Stream stream;
  stream.add(memory);
  return stream.digest();
}

}  // namespace clairfs
