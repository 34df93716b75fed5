// Strong types for ids, so that a file number can never be passed where a chunk number is meant.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace clairfs {

/// A dense, zero-based number. `Tag` only tells the kinds apart.
template <class Tag>
struct Id {
  uint32_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(uint32_t number) : value(number) {}
  constexpr size_t index() const { return value; }
  auto operator<=>(const Id&) const = default;
};

/// An entry of the catalog: directory, regular file or symlink. The root is 0.
using FileId = Id<struct FileTag>;
/// A unit of caching: a small file whole, or an aligned piece of a large file.
using ChunkId = Id<struct ChunkTag>;
/// A node of the job (one daemon a node), as the launcher or --rank numbers them.
using NodeId = Id<struct NodeTag>;
/// A pass over the training set, counted from 0.
using Epoch = Id<struct EpochTag>;

/// Which node of its job a process is, as a launcher or --rank and --nodes say. Without a job: node 0 of 1.
struct JobPlace {
  NodeId self;
  uint32_t size = 1;
};

/// Where bytes came from, the slowest last.
enum class Origin : uint8_t { ram, nvme, peer, pfs };
inline constexpr size_t kOrigins = 4;  ///< how many there are

}  // namespace clairfs

template <class Tag>
struct std::hash<clairfs::Id<Tag>> {
  size_t operator()(clairfs::Id<Tag> id) const noexcept { return std::hash<uint32_t>()(id.value); }
};
