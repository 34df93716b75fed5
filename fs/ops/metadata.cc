// lookup, forget, getattr, readlink, statfs: answered from the catalog, never from the source.
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/base/lmdb_lock.h"
#include "fs/ops/operations.h"

namespace clairfs {

void reply_control_entry(fuse_req_t req, Inode inode, double entry_timeout) {
  fuse_entry_param entry{};
  entry.ino = inode;
  entry.attr = *context_of(req).control.attributes(inode);
  entry.attr_timeout = kForever;  // a snapshot does not change
  entry.entry_timeout = entry_timeout;
  fuse_reply_entry(req, &entry);
}

struct stat shown_attributes(const FuseContext& context, FileId file) {
  struct stat attributes = context.catalog.attributes(file);
  constexpr mode_t kWriteBits = S_IWUSR | S_IWGRP | S_IWOTH;
  if (context.mount.hides_write_bits() && S_ISREG(attributes.st_mode)) attributes.st_mode &= ~kWriteBits;
  return attributes;
}

bool is_hidden(const FuseContext& context, FileId directory, std::string_view name) {
  return context.mount.hides_write_bits() && is_lmdb_lock(context.catalog, directory, name);
}

namespace {

// A snapshot of the file, or the link to the place where it takes writes, for those who may write to it.
Result<Inode> look_up_control_file(fuse_req_t req, std::string_view name) {
  FuseContext& context = context_of(req);
  const bool may = may_control(req);
  if (may && name == kPlanFile) {
    if (std::string path = context.mount.plan_path(fuse_req_ctx(req)->pid); !path.empty())
      return context.control.lookup_link(std::move(path));
  }
  return context.control.lookup(name, may);
}

void reply_absent(fuse_req_t req) {
  fuse_entry_param entry{};  // inode 0 with a timeout: the kernel remembers that there is no such name
  entry.entry_timeout = kForever;
  fuse_reply_entry(req, &entry);
}

// The kernel passes names of up to 1024 bytes on; as elsewhere, a component has at most 255.
constexpr size_t kLongestName = 255;

void lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_lookup.add();
  if (std::strlen(name) > kLongestName) return void(fuse_reply_err(req, ENAMETOOLONG));
  if (parent == kControlInode) {
    const auto inode = look_up_control_file(req, name);
    if (!inode) return void(fuse_reply_err(req, inode.error().code));
    return reply_control_entry(req, *inode, 0);
  }
  if (parent == kRootInode && name == ControlFiles::kDirectoryName) {
    return reply_control_entry(req, kControlInode, kForever);
  }
  const auto directory = file_of(context.catalog, parent);
  if (!directory) return void(fuse_reply_err(req, ENOENT));
  if (is_hidden(context, *directory, name)) return void(fuse_reply_err(req, EROFS));
  const auto file = context.catalog.lookup(*directory, name);
  if (!file) return reply_absent(req);
  fuse_entry_param entry{};
  entry.ino = inode_of(*file);
  entry.attr = shown_attributes(context, *file);
  entry.attr_timeout = kForever;
  entry.entry_timeout = kForever;
  fuse_reply_entry(req, &entry);
}

void forget(fuse_req_t req, fuse_ino_t inode, uint64_t lookups) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_forget.add();
  if (is_control(inode)) context.control.forget(inode, lookups);
  fuse_reply_none(req);
}

void forget_many(fuse_req_t req, size_t count, fuse_forget_data* forgets) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_forget.add(count);
  for (size_t i = 0; i < count; ++i) {
    if (is_control(forgets[i].ino)) context.control.forget(forgets[i].ino, forgets[i].nlookup);
  }
  fuse_reply_none(req);
}

void getattr(fuse_req_t req, fuse_ino_t inode, fuse_file_info*) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_getattr.add();
  if (is_control(inode)) {
    const auto attributes = context.control.attributes(inode);
    if (!attributes) return void(fuse_reply_err(req, ENOENT));
    return void(fuse_reply_attr(req, &*attributes, kForever));
  }
  const auto file = file_of(context.catalog, inode);
  if (!file) return void(fuse_reply_err(req, ENOENT));
  const struct stat attributes = shown_attributes(context, *file);
  fuse_reply_attr(req, &attributes, kForever);
}

void readlink(fuse_req_t req, fuse_ino_t inode) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_readlink.add();
  if (is_control(inode)) {
    const auto target = context.control.content(inode);
    if (!target) return void(fuse_reply_err(req, EINVAL));
    return void(fuse_reply_readlink(req, target->c_str()));
  }
  const auto file = file_of(context.catalog, inode);
  if (!file || context.catalog.kind(*file) != Catalog::Kind::symlink)
    return void(fuse_reply_err(req, EINVAL));
  fuse_reply_readlink(req, std::string(context.catalog.symlink_target(*file)).c_str());
}

void statfs(fuse_req_t req, fuse_ino_t) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_statfs.add();
  struct statvfs st {};
  st.f_bsize = st.f_frsize = 4096;
  st.f_blocks = (context.catalog.total_bytes() + st.f_frsize - 1) / st.f_frsize;
  st.f_files = context.catalog.size();
  st.f_namemax = kLongestName;
  st.f_flag = ST_RDONLY;
  fuse_reply_statfs(req, &st);
}

}  // namespace

void set_metadata_operations(fuse_lowlevel_ops& ops) {
  ops.lookup = lookup;
  ops.forget = forget;
  ops.forget_multi = forget_many;
  ops.getattr = getattr;
  ops.readlink = readlink;
  ops.statfs = statfs;
}

}  // namespace clairfs
