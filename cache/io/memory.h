// Scattered memory: what preadv, pwritev and readv requests move data into and out of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

namespace clairfs {

uint64_t total_bytes(std::span<const iovec> memory);

/// The pieces of `memory` that hold its bytes [offset, offset + length). REQUIRES: they are there.
std::vector<iovec> slice_of(std::span<const iovec> memory, uint64_t offset, uint64_t length);

/// Copies all of `from` to the beginning of `to`. REQUIRES: it fits; they do not overlap.
void copy_memory(std::span<const iovec> from, std::span<const iovec> to);

/// All of it in a row.
std::string joined(std::span<const iovec> memory);

struct IoLimits {
  size_t parts = 0;    ///< pieces of memory, at most
  uint64_t bytes = 0;  ///< and bytes
  uint64_t unit = 1;   ///< a multiple of it, unless nothing comes after
};
/// The beginning of `memory` that one message of limited size takes. REQUIRES: the limits allow one unit.
std::vector<iovec> first_of(std::span<const iovec> memory, const IoLimits& limits);

/// A position in scattered memory that moves on as bytes are transferred. Does not own the memory. Not
/// thread-safe.
class IoCursor {
 public:
  explicit IoCursor(std::vector<iovec> memory);

  bool finished() const { return first_ == memory_.size(); }
  /// The rest of the pieces, for one system call: at most IOV_MAX of them.
  const iovec* pieces() const { return memory_.data() + first_; }
  unsigned count() const;
  /// Bytes of pieces().
  uint64_t bytes() const { return total_bytes({pieces(), count()}); }
  /// REQUIRES: `bytes` <= bytes().
  void advance(uint64_t bytes);

 private:
  void skip_empty();

  std::vector<iovec> memory_;
  size_t first_ = 0;
};

}  // namespace clairfs
