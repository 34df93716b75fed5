#include "cache/io/local_files.h"

#include <algorithm>
#include <array>

#include <linux/magic.h>
#include <sys/vfs.h>

namespace clairfs {
namespace {

// Overlay is not among them: what it lies over may be a network filesystem.
constexpr std::array<long, 5> kLocal = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                        F2FS_SUPER_MAGIC, TMPFS_MAGIC};

}  // namespace

bool is_on_local_filesystem(int directory) {
  struct statfs filesystem {};
  return ::fstatfs(directory, &filesystem) == 0 &&
         std::find(kLocal.begin(), kLocal.end(), static_cast<long>(filesystem.f_type)) != kLocal.end();
}

}  // namespace clairfs
