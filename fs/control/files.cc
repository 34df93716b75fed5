#include "fs/control/files.h"

#include <algorithm>
#include <cerrno>

#include <unistd.h>

namespace clairfs {

Result<Inode> ControlFiles::lookup(std::string_view name, bool may_control) {
  const auto file =
      std::find_if(files_.begin(), files_.end(), [&](const ControlFile& f) { return f.name == name; });
  if (file == files_.end()) return Error{ENOENT, "no such control file"};
  const bool readable = may_control || (file->mode & 0004) != 0;
  const auto& make = may_control || !file->content_for_others ? file->content : file->content_for_others;
  return add_snapshot(&*file, readable ? make() : "", may_control ? kMostBytes : kMostBytes / 2);
}

Result<Inode> ControlFiles::lookup_link(std::string target) {
  return add_snapshot(nullptr, std::move(target), kMostBytes);
}

Result<Inode> ControlFiles::add_snapshot(const ControlFile* file, std::string content, uint64_t most_bytes) {
  const uint64_t bytes = content.size() + kSnapshotBytes;
  MutexLock lock(mutex_);
  if (bytes_ + bytes > most_bytes) return Error{ENFILE, "too many control files are open"};
  bytes_ += bytes;
  const Inode inode = next_++;
  snapshots_[inode] = {file, std::make_shared<const std::string>(std::move(content)), 1};
  return inode;
}

std::shared_ptr<const std::string> ControlFiles::content(Inode inode) const {
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  return found == snapshots_.end() ? nullptr : found->second.content;
}

const ControlFile* ControlFiles::file(Inode inode) const {
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  return found == snapshots_.end() ? nullptr : found->second.file;
}

std::optional<struct stat> ControlFiles::attributes(Inode inode) const {
  struct stat st {};
  st.st_ino = inode;
  st.st_uid = ::geteuid();
  st.st_gid = ::getegid();
  st.st_blksize = 4096;
  st.st_mtim.tv_sec = st.st_ctim.tv_sec = st.st_atim.tv_sec = started_;
  if (inode == kControlInode) {
    st.st_mode = S_IFDIR | 0555;
    st.st_nlink = 2;
    return st;
  }
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  if (found == snapshots_.end()) return std::nullopt;
  const ControlFile* file = found->second.file;
  st.st_ino = file != nullptr ? number(static_cast<size_t>(file - files_.data())) : kControlInode + 1;
  st.st_mode = file != nullptr ? S_IFREG | file->mode : S_IFLNK | 0777;
  st.st_nlink = 1;
  st.st_size = static_cast<off_t>(found->second.content->size());
  st.st_blocks = (st.st_size + 511) / 512;
  return st;
}

Result<std::string> ControlFiles::append(Inode inode, std::string_view text, uint64_t offset) {
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  if (found == snapshots_.end()) return Error{ENOENT, "no such control file"};
  Snapshot& snapshot = found->second;
  if (snapshot.spoilt) return *snapshot.spoilt;
  if (offset == 0) snapshot.written.clear();
  if (offset != snapshot.written.size())
    return Error{EINVAL, "a plan is written from the start of the file: use > and not >>"};
  if (snapshot.written.size() + text.size() > kMostWritten)
    return Error{EFBIG, "a plan has at most 1 MiB; name a file with list= instead"};
  return snapshot.written += text;
}

void ControlFiles::truncate(Inode inode) {
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  if (found == snapshots_.end()) return;
  found->second.written.clear();
  found->second.spoilt.reset();
}

void ControlFiles::spoil(Inode inode, const Error& error) {
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  if (found != snapshots_.end()) found->second.spoilt = error;
}

void ControlFiles::forget(Inode inode, uint64_t lookups) {
  MutexLock lock(mutex_);
  const auto found = snapshots_.find(inode);
  if (found == snapshots_.end()) return;
  found->second.lookups -= std::min(lookups, found->second.lookups);
  if (found->second.lookups > 0) return;
  bytes_ -= found->second.content->size() + kSnapshotBytes;
  snapshots_.erase(found);
}

}  // namespace clairfs
