// The mount behind a PlanDoor: a root and in it the control file `plan`, which takes a plan as its text or as
// its attribute. Inodes are those of control files, but for the root.

#include <cerrno>
#include <string_view>

#include "fs/ops/operations.h"

namespace clairfs {
namespace {

void look_up_behind_door(fuse_req_t req, fuse_ino_t parent, const char* name) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_lookup.add();
  if (parent != kRootInode || std::string_view(name) != kPlanFile) return void(fuse_reply_err(req, ENOENT));
  const auto inode = context.control.lookup(name, may_control(req));
  if (!inode) return void(fuse_reply_err(req, inode.error().code));
  reply_control_entry(req, *inode, 0);
}

void get_attributes_behind_door(fuse_req_t req, fuse_ino_t inode, fuse_file_info*) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_getattr.add();
  const auto attributes = context.control.attributes(inode == kRootInode ? kControlInode : inode);
  if (!attributes) return void(fuse_reply_err(req, ENOENT));
  fuse_reply_attr(req, &*attributes, kForever);
}

}  // namespace

void set_plan_door_operations(fuse_lowlevel_ops& ops) {
  set_metadata_operations(ops);
  set_file_operations(ops);
  set_xattr_operations(ops);
  set_control_operations(ops);
  set_refused_operations(ops);
  ops.lookup = look_up_behind_door;
  ops.getattr = get_attributes_behind_door;
}

}  // namespace clairfs
