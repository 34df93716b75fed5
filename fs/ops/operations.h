// The FUSE operations, one group a file. Each handler ends in exactly one reply; none blocks.
#pragma once

#define FUSE_USE_VERSION 314
#include <string_view>

#include <fuse_lowlevel.h>

#include "fs/session/context.h"

namespace clairfs {

/// The dataset does not change while it is mounted, so the kernel may keep names and attributes for ever (a
/// year: the kernel adds it to the clock, so "for ever" must not overflow).
constexpr double kForever = 365.0 * 24 * 3600;

inline FuseContext& context_of(fuse_req_t req) {
  return *static_cast<SessionData*>(fuse_req_userdata(req))->context;
}

/// Answers EROFS and counts it.
void refuse(fuse_req_t req);

/// Whether the requesting user may control the mount: root and the user who mounted.
bool may_control(fuse_req_t req);

/// Answers with a control file's snapshot.
void reply_control_entry(fuse_req_t req, Inode inode, double entry_timeout);

/// The control file that `inode` is a snapshot of, if it takes writes; else null.
const ControlFile* writable_control_file(const FuseContext& context, Inode inode);

/// A dataset entry's attributes as the mount shows them.
struct stat shown_attributes(const FuseContext& context, FileId file);

/// Whether the mount shows no such entry, and refuses to look for one: LMDB's lock files, where the kernel
/// does not refuse by itself to open them for writing (lmdb_lock.h). REQUIRES: `directory` is one.
bool is_hidden(const FuseContext& context, FileId directory, std::string_view name);

/// Fills in the handlers of each group.
void set_metadata_operations(fuse_lowlevel_ops& ops);   // lookup, forget, getattr, readlink, statfs
void set_directory_operations(fuse_lowlevel_ops& ops);  // opendir, readdir, readdirplus
void set_file_operations(fuse_lowlevel_ops& ops);       // open, read, ioctl
void set_xattr_operations(fuse_lowlevel_ops& ops);      // getxattr, listxattr, setxattr, removexattr
void set_control_operations(fuse_lowlevel_ops& ops);    // setattr, write
void set_refused_operations(fuse_lowlevel_ops& ops);    // all else that would change something: EROFS

/// Those of the mount behind a PlanDoor.
void set_plan_door_operations(fuse_lowlevel_ops& ops);

}  // namespace clairfs
