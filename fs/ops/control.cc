// setattr and write: truncating and writing a control file. On the dataset both are refused.
#include <cerrno>
#include <string>
#include <string_view>

#include <unistd.h>

#include "fs/ops/operations.h"

namespace clairfs {

const ControlFile* writable_control_file(const FuseContext& context, Inode inode) {
  const ControlFile* file = is_control(inode) ? context.control.file(inode) : nullptr;
  return file != nullptr && file->write ? file : nullptr;
}

namespace {

// `echo text > file` truncates first; the snapshot itself does not change.
void setattr(fuse_req_t req, fuse_ino_t inode, struct stat*, int to_set, fuse_file_info*) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_setattr.add();
  constexpr int kOfTruncation =
      FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_CTIME;
  if (writable_control_file(context, inode) == nullptr || (to_set & ~kOfTruncation) != 0) return refuse(req);
  auto attributes = context.control.attributes(inode);
  if (!attributes) return void(fuse_reply_err(req, ENOENT));
  attributes->st_size = 0;
  context.control.truncate(inode);
  fuse_reply_attr(req, &*attributes, kForever);
}

void write_control_file(fuse_req_t req, Inode inode, const ControlFile& file, std::string_view text,
                        uint64_t offset) {
  if (!may_control(req)) return void(fuse_reply_err(req, EPERM));
  FuseContext& context = context_of(req);
  const auto whole = context.control.append(inode, text, offset);
  if (!whole) return void(fuse_reply_err(req, context.plans.refuse(whole.error()).error().code));
  context.control_tasks.post(
      [&file, whole = *whole, offset] {
        return file.write(whole, std::string_view(whole).substr(0, offset));
      },
      [req, &context, inode, size = text.size()](const Status& status) {
        if (status) return void(fuse_reply_write(req, size));
        context.control.spoil(inode, status.error());
        fuse_reply_err(req, status.error().code);
      });
}

// What was changed in the page cache is refused only when it is written back: it is dropped, first what is
// known to be changed, then all of the file, so that no reader goes on seeing bytes that are not the
// dataset's.
void drop_dirty_pages(FuseContext& context, FileId file, size_t size, off_t offset, pid_t writer) {
  context.metrics.fuse_dirty_writes.add();
  context.invalidations.post([&context, file, size, offset](const std::atomic<bool>&) {
    context.mount.invalidate(inode_of(file), offset, static_cast<off_t>(size));
    context.mount.invalidate(inode_of(file), 0, 0);
  });
  const auto look_for_writer = [&context, file, writer] {
    context.dirty_pages.found(file, writer);
    return Status();
  };
  context.control_tasks.post(look_for_writer, [](const Status&) {});
}

void write(fuse_req_t req, fuse_ino_t inode, const char* data, size_t size, off_t offset,
           fuse_file_info* info) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_write.add();
  if (const ControlFile* file = writable_control_file(context, inode)) {
    return write_control_file(req, inode, *file, {data, size}, static_cast<uint64_t>(offset));
  }
  const bool by_write_back = info != nullptr && info->writepage != 0;
  const pid_t writer = by_write_back ? 0 : fuse_req_ctx(req)->pid;
  refuse(req);
  if (const auto file = file_of(context.catalog, inode))
    drop_dirty_pages(context, *file, size, offset, writer);
}

}  // namespace

bool may_control(fuse_req_t req) {
  const uid_t user = fuse_req_ctx(req)->uid;
  return user == 0 || user == ::geteuid();
}

void set_control_operations(fuse_lowlevel_ops& ops) {
  ops.setattr = setattr;
  ops.write = write;
}

}  // namespace clairfs
