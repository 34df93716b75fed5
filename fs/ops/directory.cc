// opendir, readdir, readdirplus: the catalog's sorted children. Offsets are positions in the listing, so they
// stay valid however a listing is interrupted.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "fs/ops/operations.h"

namespace clairfs {
namespace {

// Before the children come "." and "..".
constexpr uint64_t kDots = 2;

fuse_entry_param without_lookup(Inode inode, mode_t mode) {
  fuse_entry_param entry{};  // ino 0: the listing names it, but the kernel takes no reference
  entry.attr.st_ino = inode;
  entry.attr.st_mode = mode;
  return entry;
}

// A listing's entry number `position`; false at the end.
bool entry_at(FuseContext& context, FileId directory, uint64_t position, std::string& name,
              fuse_entry_param& entry) {
  const Catalog& catalog = context.catalog;
  if (position < kDots) {
    name = position == 0 ? "." : "..";
    entry = without_lookup(inode_of(position == 0 ? directory : catalog.parent(directory)), S_IFDIR);
    return true;
  }
  const Catalog::Children children = catalog.children(directory);
  if (position - kDots >= children.count) return false;
  const FileId child(children.first.value + static_cast<uint32_t>(position - kDots));
  name = catalog.name(child);
  entry = {};
  entry.ino = inode_of(child);
  entry.attr = shown_attributes(context, child);
  entry.attr_timeout = kForever;
  entry.entry_timeout = kForever;
  return true;
}

bool control_entry_at(FuseContext& context, uint64_t position, std::string& name, fuse_entry_param& entry) {
  const auto& files = context.control.files();
  if (position >= files.size() + kDots) return false;
  name = position == 0 ? "." : position == 1 ? ".." : files[position - kDots].name;
  const Inode number = position == 0   ? kControlInode
                       : position == 1 ? kRootInode
                                       : ControlFiles::number(position - kDots);
  entry = without_lookup(number, position < kDots ? S_IFDIR : S_IFREG);
  return true;
}

void list(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, bool plus) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_readdir.add();
  const auto directory = file_of(context.catalog, inode);
  const bool control = inode == kControlInode;
  if (!control && (!directory || context.catalog.kind(*directory) != Catalog::Kind::directory)) {
    return void(fuse_reply_err(req, ENOTDIR));
  }
  std::vector<char> buffer(size);
  size_t used = 0;
  std::string name;
  fuse_entry_param entry{};
  for (auto position = static_cast<uint64_t>(std::max<off_t>(offset, 0));; ++position) {
    const bool more = control ? control_entry_at(context, position, name, entry)
                              : entry_at(context, *directory, position, name, entry);
    if (!more) break;
    if (!control && is_hidden(context, *directory, name)) continue;
    const auto next = static_cast<off_t>(position + 1);
    const size_t needed =
        plus ? fuse_add_direntry_plus(req, buffer.data() + used, size - used, name.c_str(), &entry, next)
             : fuse_add_direntry(req, buffer.data() + used, size - used, name.c_str(), &entry.attr, next);
    if (needed > size - used) break;
    used += needed;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void readdir(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info*) {
  list(req, inode, size, offset, false);
}

void readdirplus(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info*) {
  list(req, inode, size, offset, true);
}

// Zero-message opendir: the kernel never asks again, and caches listings.
void opendir(fuse_req_t req, fuse_ino_t, fuse_file_info*) {
  context_of(req).metrics.fuse_opendir.add();
  fuse_reply_err(req, ENOSYS);
}

}  // namespace

void set_directory_operations(fuse_lowlevel_ops& ops) {
  ops.opendir = opendir;
  ops.readdir = readdir;
  ops.readdirplus = readdirplus;
}

}  // namespace clairfs
