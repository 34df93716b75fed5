// XXH3-64 over scattered memory, as if it were contiguous. (https://github.com/Cyan4973/xxHash)
#pragma once

#include <cstdint>
#include <span>

#include <sys/uio.h>

namespace clairfs {

uint64_t xxh3_64(std::span<const iovec> memory);

}  // namespace clairfs
