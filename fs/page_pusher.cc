#include "fs/page_pusher.h"

#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/io_memory.h"
#include "fs/inodes.h"

namespace clairfs {

// 0 or an errno. The kernel wants the whole message in one write.
int PagePusher::store(FileId file, uint64_t offset, const std::vector<iovec>& memory) const {
  const int device = device_.load();
  if (device < 0) return ENOTCONN;
  uint64_t bytes = 0;
  for (const iovec& part : memory) bytes += part.iov_len;
  fuse_notify_store_out what{};
  what.nodeid = inode_of(file);
  what.offset = offset;
  what.size = static_cast<uint32_t>(bytes);
  fuse_out_header header{};
  header.len = static_cast<uint32_t>(sizeof header + sizeof what + bytes);
  header.error = FUSE_NOTIFY_STORE;
  std::vector<iovec> message = {{&header, sizeof header}, {&what, sizeof what}};
  message.insert(message.end(), memory.begin(), memory.end());
  return ::writev(device, message.data(), static_cast<int>(message.size())) < 0 ? errno : 0;
}

Status PagePusher::push(FileId file, uint64_t offset, const std::vector<iovec>& memory) {
  // One system call takes IOV_MAX parts, a message's length is 32 bits (a chunk may have a gigabyte), and
  // each message must end with a page or with the file.
  constexpr IoLimits kMessage{IOV_MAX / 2, 64ULL << 20, kPageSize};
  const uint64_t end = offset + total_bytes(memory);
  for (IoCursor rest(memory); offset < end;) {
    const std::vector<iovec> piece = first_of({rest.pieces(), rest.count()}, kMessage);
    int error = store(file, offset, piece);
    if (error == ENOENT) {
      metrics_.staging_lookups.add();
      const Fd known(::open(path(file).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      if (known) error = store(file, offset, piece);
    }
    if (error != 0) return system_error(error, "push " + catalog_.path(file) + " into the page cache");
    offset += total_bytes(piece);
    rest.advance(total_bytes(piece));
  }
  return {};
}

void PagePusher::drop(FileId file, uint64_t offset, uint64_t length) {
  const Fd fd(::open(path(file).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (fd)
    ::posix_fadvise(fd.get(), static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_DONTNEED);
}

}  // namespace clairfs
