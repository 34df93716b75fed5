// XXH3-64 over scattered memory, as if it were contiguous. (https://github.com/Cyan4973/xxHash)
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <sys/uio.h>

namespace clairfs {

uint64_t xxh3_64(std::span<const iovec> memory);

/// The same piece by piece. Not thread-safe.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  void add(std::span<const iovec> memory);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace clairfs
