#include "fs/page_cache/page_pusher.h"

#include <array>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/io/memory.h"
#include "fs/base/inodes.h"
#include "fs/base/kernel_version.h"

namespace clairfs {
namespace {

// Without a LOOKUP. 2 us, where a call on another thread is 20.
Fd open_known(const char* path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED;  // Linux 5.12
  return Fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how)));
}

// cachestat(2), of Linux 6.5. C libraries and headers of before do not name it.
constexpr long kCachestat = 451;
struct CacheStat {
  uint64_t cached = 0;
  uint64_t dirty = 0;
  uint64_t writeback = 0;
  uint64_t evicted = 0;
  uint64_t recently_evicted = 0;
};

// In the table of an OwnFilesThread; past libc, since sanitizers keep one book of descriptors, by number, for
// the whole process.
int open_own(const char* path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_NOFOLLOW | O_CLOEXEC));
}
void close_own(int fd) {
  ::syscall(SYS_close, fd);
}

}  // namespace

// 0 or an errno. The kernel wants the whole message in one write.
int PagePusher::store(FileId file, uint64_t offset, const std::vector<iovec>& memory) const {
  const uint64_t bytes = total_bytes(memory);
  fuse_notify_store_out what{};
  what.nodeid = inode_of(file);
  what.offset = offset;
  what.size = static_cast<uint32_t>(bytes);
  fuse_out_header header{};
  header.len = static_cast<uint32_t>(sizeof header + sizeof what + bytes);
  header.error = FUSE_NOTIFY_STORE;
  std::vector<iovec> message = {{&header, sizeof header}, {&what, sizeof what}};
  message.insert(message.end(), memory.begin(), memory.end());
  return ::writev(device_, message.data(), static_cast<int>(message.size())) < 0 ? errno : 0;
}

std::vector<PageRange> PagePusher::without_asked(const PageRange& pages) const {
  return asked_ != nullptr ? asked_->without(pages) : std::vector<PageRange>{pages};
}

Status PagePusher::push(FileId file, uint64_t offset, const std::vector<iovec>& memory) {
  for (const PageRange& part : without_asked({file, offset, offset + total_bytes(memory)})) {
    const std::vector<iovec> bytes = slice_of(memory, part.begin - offset, part.end - part.begin);
    if (Status pushed = push_part(part, bytes); !pushed) return pushed;
  }
  return {};
}

Status PagePusher::push_part(const PageRange& part, const std::vector<iovec>& memory) {
  // One system call takes IOV_MAX parts, a message's length is 32 bits (a chunk may have a gigabyte), and
  // each message must end with a page or with the file.
  constexpr IoLimits kMessage{IOV_MAX / 2, 64ULL << 20, kPageSize};
  uint64_t offset = part.begin;
  for (IoCursor rest(memory); offset < part.end;) {
    const std::vector<iovec> piece = first_of({rest.pieces(), rest.count()}, kMessage);
    int error = store(part.file, offset, piece);
    if (error == ENOENT) {
      metrics_.staging_lookups.add();
      make_known(part.file);
      error = store(part.file, offset, piece);
    }
    if (error != 0) return system_error(error, "push " + catalog_.path(part.file) + " into the page cache");
    offset += total_bytes(piece);
    rest.advance(total_bytes(piece));
  }
  return {};
}

void PagePusher::make_known(FileId file) {
  const std::string name = path(file);
  lookups_.run([&] {
    const int fd = open_own(name.c_str(), O_PATH);
    if (fd >= 0) close_own(fd);
  });
}

// Advice is the cheaper way: an invalidation costs a GETATTR the next time that somebody asks for the file's
// attributes. But the kernel does not follow it for pages that a process has mapped.
void PagePusher::drop(FileId file, uint64_t offset, uint64_t length) {
  if (!mapped_.contains(file)) {
    advise_away(file, offset, length);
    const auto left = pages_of(file, offset, length);
    // Where the kernel does not tell: files of records often are.
    if (left ? *left == 0 : !records_) return;
    mapped_.insert(file);
  }
  // A page that a READ has asked for is wanted now.
  for (const PageRange& part : without_asked({file, offset, offset + length}))
    invalidate(file, part.begin, part.end - part.begin);
}

void PagePusher::invalidate(FileId file, uint64_t offset, uint64_t length) const {
  fuse_notify_inval_inode_out what{};
  what.ino = inode_of(file);
  what.off = static_cast<int64_t>(offset);
  what.len = static_cast<int64_t>(length);
  fuse_out_header header{};
  header.len = sizeof header + sizeof what;
  header.error = FUSE_NOTIFY_INVAL_INODE;
  const std::array<iovec, 2> message{{{&header, sizeof header}, {&what, sizeof what}}};
  // ENOENT: the kernel does not know the file, so it has no pages of it.
  [[maybe_unused]] const auto sent = ::writev(device_, message.data(), static_cast<int>(message.size()));
}

void PagePusher::advise_away(FileId file, uint64_t offset, uint64_t length) {
  const std::string name = path(file);
  const auto begin = static_cast<off_t>(offset);
  const auto bytes = static_cast<off_t>(length);
  if (opens_ask_nothing_) {
    if (const Fd known = open_known(name.c_str(), O_RDONLY)) {
      ::posix_fadvise(known.get(), begin, bytes, POSIX_FADV_DONTNEED);
      return;
    }
  }
  lookups_.run([&] {
    const int fd = open_own(name.c_str(), O_RDONLY);
    if (fd < 0) return;
    ::syscall(SYS_fadvise64, fd, begin, bytes, POSIX_FADV_DONTNEED);
    close_own(fd);
    opens_ask_nothing_ = zero_message_open_is_safe(running_kernel());
  });
}

std::optional<uint64_t> PagePusher::pages_of(FileId file, uint64_t offset, uint64_t length) {
  if (!may_ask_ || !opens_ask_nothing_) return std::nullopt;
  // The kernel would ask this very daemon for the file's mode, to see who may know.
  if (::geteuid() != 0 && catalog_.attributes(file).st_uid != ::geteuid()) return std::nullopt;
  const Fd known = open_known(path(file).c_str(), O_RDONLY);
  if (!known) {
    // No inode, no pages; unless it is the way there that cannot be walked so.
    const bool there = errno == EAGAIN && open_known(mountpoint_.c_str(), O_PATH);
    return there ? std::optional<uint64_t>(0) : std::nullopt;
  }
  const std::array<uint64_t, 2> range{offset, length};
  CacheStat found;
  may_ask_ = ::syscall(kCachestat, known.get(), range.data(), &found, 0) == 0;
  return may_ask_ ? std::optional(found.cached) : std::nullopt;
}

}  // namespace clairfs
