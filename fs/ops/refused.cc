// Everything that would change something: EROFS. What control files and plans take is in control.cc and
// xattr.cc.
#include <cerrno>

#include "fs/ops/operations.h"

namespace clairfs {
void refuse(fuse_req_t req) {
  context_of(req).metrics.fuse_refused.add();
  fuse_reply_err(req, EROFS);
}

void set_refused_operations(fuse_lowlevel_ops& ops) {
  ops.mknod = [](fuse_req_t req, fuse_ino_t, const char*, mode_t, dev_t) { refuse(req); };
  ops.mkdir = [](fuse_req_t req, fuse_ino_t, const char*, mode_t) { refuse(req); };
  ops.unlink = [](fuse_req_t req, fuse_ino_t, const char*) { refuse(req); };
  ops.rmdir = [](fuse_req_t req, fuse_ino_t, const char*) { refuse(req); };
  ops.symlink = [](fuse_req_t req, const char*, fuse_ino_t, const char*) { refuse(req); };
  ops.rename = [](fuse_req_t req, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned) {
    refuse(req);
  };
  ops.link = [](fuse_req_t req, fuse_ino_t, fuse_ino_t, const char*) { refuse(req); };
  ops.create = [](fuse_req_t req, fuse_ino_t, const char*, mode_t, fuse_file_info*) { refuse(req); };
  ops.fallocate = [](fuse_req_t req, fuse_ino_t, int, off_t, off_t, fuse_file_info*) { refuse(req); };
  ops.copy_file_range = [](fuse_req_t req, fuse_ino_t, off_t, fuse_file_info*, fuse_ino_t, off_t,
                           fuse_file_info*, size_t, int) { refuse(req); };
}

}  // namespace clairfs
