#include "cache/io/memory.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

namespace clairfs {

uint64_t total_bytes(std::span<const iovec> memory) {
  uint64_t total = 0;
  for (const iovec& piece : memory) total += piece.iov_len;
  return total;
}

std::vector<iovec> slice_of(std::span<const iovec> memory, uint64_t offset, uint64_t length) {
  std::vector<iovec> slice;
  for (const iovec& piece : memory) {
    if (length == 0) break;
    if (offset >= piece.iov_len) {
      offset -= piece.iov_len;
      continue;
    }
    const uint64_t bytes = std::min<uint64_t>(piece.iov_len - offset, length);
    slice.push_back({static_cast<std::byte*>(piece.iov_base) + offset, bytes});
    length -= bytes;
    offset = 0;
  }
  return slice;
}

void copy_memory(std::span<const iovec> from, std::span<const iovec> to) {
  size_t target = 0;
  uint64_t written = 0;  // of that piece
  for (const iovec& piece : from) {
    for (uint64_t read = 0; read < piece.iov_len;) {
      if (written == to[target].iov_len) {
        ++target;
        written = 0;
        continue;
      }
      const uint64_t bytes = std::min<uint64_t>(piece.iov_len - read, to[target].iov_len - written);
      std::memcpy(static_cast<std::byte*>(to[target].iov_base) + written,
                  static_cast<const std::byte*>(piece.iov_base) + read, bytes);
      read += bytes;
      written += bytes;
    }
  }
}

std::string joined(std::span<const iovec> memory) {
  std::string bytes;
  bytes.reserve(total_bytes(memory));
  for (const iovec& piece : memory) bytes.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  return bytes;
}

std::vector<iovec> first_of(std::span<const iovec> memory, const IoLimits& limits) {
  const uint64_t held = total_bytes(memory.first(std::min(memory.size(), limits.parts)));
  uint64_t bytes = std::min(held, limits.bytes);
  if (bytes < total_bytes(memory)) bytes -= bytes % limits.unit;
  return slice_of(memory, 0, bytes);
}

IoCursor::IoCursor(std::vector<iovec> memory) : memory_(std::move(memory)) {
  skip_empty();
}

unsigned IoCursor::count() const {
  return static_cast<unsigned>(std::min<size_t>(memory_.size() - first_, IOV_MAX));
}

void IoCursor::advance(uint64_t bytes) {
  while (bytes > 0) {
    iovec& piece = memory_[first_];
    const uint64_t step = std::min<uint64_t>(piece.iov_len, bytes);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + step;
    piece.iov_len -= step;
    bytes -= step;
    skip_empty();
  }
}

void IoCursor::skip_empty() {
  while (first_ < memory_.size() && memory_[first_].iov_len == 0) ++first_;
}

}  // namespace clairfs
