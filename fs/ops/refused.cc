// Everything that would change something: EROFS, for files and control files alike unless a control file says
// otherwise. The kernel's mount is read-write so that control files can be written at all.
#include <cerrno>

#include "fs/ops/operations.h"

namespace clairfs {
namespace {

void refuse(fuse_req_t req) {
  context_of(req).metrics.fuse_refused.add();
  fuse_reply_err(req, EROFS);
}

// Pages changed through a shared mapping are in the page cache before they are refused here: they are
// dropped, so that no reader goes on seeing bytes that are not the dataset's. (write() itself drops its pages
// on error.)
void refuse_write(fuse_req_t req, fuse_ino_t inode, const char*, size_t size, off_t offset,
                  fuse_file_info* info) {
  FuseContext& context = context_of(req);
  if (info != nullptr && info->writepage != 0) {
    context.tasks.post([&context, inode, size, offset](const std::atomic<bool>&) {
      context.invalidate(inode, offset, static_cast<off_t>(size));
    });
  }
  refuse(req);
}

}  // namespace

void set_refused_operations(fuse_lowlevel_ops& ops) {
  ops.setattr = [](fuse_req_t req, fuse_ino_t, struct stat*, int, fuse_file_info*) { refuse(req); };
  ops.mknod = [](fuse_req_t req, fuse_ino_t, const char*, mode_t, dev_t) { refuse(req); };
  ops.mkdir = [](fuse_req_t req, fuse_ino_t, const char*, mode_t) { refuse(req); };
  ops.unlink = [](fuse_req_t req, fuse_ino_t, const char*) { refuse(req); };
  ops.rmdir = [](fuse_req_t req, fuse_ino_t, const char*) { refuse(req); };
  ops.symlink = [](fuse_req_t req, const char*, fuse_ino_t, const char*) { refuse(req); };
  ops.rename = [](fuse_req_t req, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned) {
    refuse(req);
  };
  ops.link = [](fuse_req_t req, fuse_ino_t, fuse_ino_t, const char*) { refuse(req); };
  ops.write = refuse_write;
  ops.create = [](fuse_req_t req, fuse_ino_t, const char*, mode_t, fuse_file_info*) { refuse(req); };
  ops.setxattr = [](fuse_req_t req, fuse_ino_t, const char*, const char*, size_t, int) { refuse(req); };
  ops.removexattr = [](fuse_req_t req, fuse_ino_t, const char*) { refuse(req); };
  ops.fallocate = [](fuse_req_t req, fuse_ino_t, int, off_t, off_t, fuse_file_info*) { refuse(req); };
  ops.copy_file_range = [](fuse_req_t req, fuse_ino_t, off_t, fuse_file_info*, fuse_ino_t, off_t,
                           fuse_file_info*, size_t, int) { refuse(req); };
}

}  // namespace clairfs
