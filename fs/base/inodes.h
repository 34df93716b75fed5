// FUSE inode numbers and catalog entries correspond: inode = FileId + 1 (FUSE's root is 1).
//
// Inodes of the dataset never change, so FORGET needs no bookkeeping for them. Control files have numbers far
// above any catalog's.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/catalog/catalog.h"

namespace clairfs {

using Inode = uint64_t;

constexpr Inode kRootInode = 1;
/// The directory MOUNT/.clairfs; everything above it is a control file's snapshot, as the kernel numbers
/// them. stat(2) shows the same st_ino for all snapshots of a control file.
constexpr Inode kControlInode = 1ULL << 48;
/// The control file in it that takes plans.
constexpr const char* kPlanFile = "plan";

constexpr Inode inode_of(FileId file) {
  return Inode{file.value} + 1;
}
constexpr bool is_control(Inode inode) {
  return inode >= kControlInode;
}

/// The catalog's entry, or nothing for a control inode or a number that was never given out.
inline std::optional<FileId> file_of(const Catalog& catalog, Inode inode) {
  if (inode == 0 || inode > catalog.size()) return std::nullopt;
  return FileId(static_cast<uint32_t>(inode - 1));
}

}  // namespace clairfs
