// open, read, ioctl. A READ is answered from memory at once, or joins the fetch that brings its bytes and is
// answered by the thread that completes it: no FUSE thread waits for data. fs/README.md follows a READ from
// here through all threads and functions.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>

#include "cache/io/memory.h"
#include "fs/base/kernel_version.h"
#include "fs/ops/operations.h"

namespace clairfs {
namespace {

// TCGETS2, which isatty() uses from glibc 2.42 on. Its own macro needs a header that contradicts termios.h.
constexpr unsigned kTcgets2 = _IOC(_IOC_READ, 'T', 0x2A, 44);

// Zero-message open: ENOSYS makes the kernel open files on its own from now on, keeping their pages. Some
// kernels can deadlock with it under memory pressure; there every open costs a message. What keeps files from
// being opened for writing without one, fuse_session.h has.
void open(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info) {
  context_of(req).metrics.fuse_open.add();
  static const bool zero_message = zero_message_open_is_safe(running_kernel());
  if (zero_message) return void(fuse_reply_err(req, ENOSYS));
  if (!is_control(inode) && (info->flags & O_ACCMODE) != O_RDONLY) return refuse(req);
  info->keep_cache = 1;
  info->noflush = 1;
  fuse_reply_open(req, info);
}

// One piece is the header's. More than a system call takes are rare: a chunk scattered over single units.
void reply_memory(fuse_req_t req, const std::vector<iovec>& memory) {
  if (memory.size() < IOV_MAX) {
    fuse_reply_iov(req, memory.data(), static_cast<int>(memory.size()));
  } else {
    const std::string bytes = joined(memory);
    fuse_reply_buf(req, bytes.data(), bytes.size());
  }
}

void reply_bytes(fuse_req_t req, const char* data, size_t size, off_t offset, size_t wanted) {
  const auto begin = std::min(static_cast<size_t>(offset), size);
  fuse_reply_buf(req, data + begin, std::min(wanted, size - begin));
}

void count_read(FuseContext& context, const Result<ReadView>& view, const AccessLog::Entry& entry) {
  Metrics& m = context.metrics;
  if (!view) {
    m.reads_failed.add();
    if (view.error().code == ESTALE) m.reads_refused.add();
    context.failed_reads.record(entry.file, view.error().code);
  } else {
    Counter* const reads[] = {&m.reads_ram, &m.reads_nvme, &m.reads_peer, &m.reads_pfs};
    Counter* const bytes[] = {&m.bytes_ram, &m.bytes_nvme, &m.bytes_peer, &m.bytes_pfs};
    static_assert(std::size(reads) == kOrigins && std::size(bytes) == kOrigins, "one for each origin");
    reads[static_cast<size_t>(view->origin)]->add();
    bytes[static_cast<size_t>(view->origin)]->add(entry.length);
    if (view->joined) m.reads_joined.add();
  }
  if (!view || view->origin != Origin::ram || view->joined)
    m.stall_ns.add(static_cast<uint64_t>(entry.waited.count()));
  context.access_log.record(entry);
}

// As the kernel numbers it; 0 for one outside of this process's namespace, and for the kernel itself.
ThreadId thread_of(fuse_req_t req) {
  return ThreadId(static_cast<uint32_t>(fuse_req_ctx(req)->pid));
}

void answer_from_sentinel(fuse_req_t req, const std::string& bytes, FileId file, uint64_t offset) {
  FuseContext& context = context_of(req);
  const auto length = static_cast<uint32_t>(bytes.size());
  const ThreadId thread = thread_of(req);  // an answered request is gone
  fuse_reply_buf(req, bytes.data(), bytes.size());
  context.metrics.reads_ram.add();
  context.metrics.bytes_ram.add(length);
  context.access_log.record({.time = std::chrono::system_clock::now(),
                             .file = file,
                             .offset = offset,
                             .length = length,
                             .thread = thread.value});
}

void read(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info*) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_read.add();
  if (is_control(inode)) {
    const auto content = context.control.content(inode);
    if (!content) return void(fuse_reply_err(req, EISDIR));
    return reply_bytes(req, content->data(), content->size(), offset, size);
  }
  const auto file = file_of(context.catalog, inode);
  if (!file || context.catalog.kind(*file) != Catalog::Kind::file) return void(fuse_reply_err(req, EISDIR));
  const uint64_t file_size = context.catalog.stamp(*file).size;
  const auto begin = std::min(static_cast<uint64_t>(offset), file_size);
  const uint64_t length = std::min<uint64_t>(size, file_size - begin);
  if (length == 0) return void(fuse_reply_buf(req, nullptr, 0));

  const TimePoint asked = context.clock.now();
  const ThreadId thread = thread_of(req);
  const FileId id = *file;
  // Before the answer: afterwards the reader may be some files further, and would seem to jump back.
  const auto sentinel = context.sentinels.take(id, begin, length);
  const Use use =
      context.plans.observe(thread, id, begin, length, Access::read, sentinel ? sentinel->of : SentinelOf());
  if (sentinel && sentinel->bytes) return answer_from_sentinel(req, *sentinel->bytes, id, begin);
  const PageRange pages{id, page_floor(begin), round_to_pages(begin + length)};
  if (!context.pending_reads.add(req, pages)) return void(fuse_reply_err(req, ENOTCONN));
  const auto answer = [req, &context, asked, thread, id, begin, length](const Result<ReadView>& view) {
    if (!context.pending_reads.take(req)) return;
    AccessLog::Entry entry{.time = std::chrono::system_clock::now(),
                           .file = id,
                           .offset = begin,
                           .length = static_cast<uint32_t>(length),
                           .thread = thread.value};
    if (view) {
      reply_memory(req, view->memory);
      entry.origin = view->origin;
      entry.joined = view->joined;
    } else {
      fuse_reply_err(req, view.error().code);
      entry.origin = Origin::pfs;
      entry.error = view.error().code;
    }
    entry.waited = context.clock.now() - asked;
    count_read(context, view, entry);
  };
  // The rest of a sentinel's sample is in the page cache.
  const auto neighbours = sentinel ? ChunkCache::Neighbours::none : ChunkCache::Neighbours::likely;
  context.cache.read(id, begin, length, answer, use, neighbours);
}

// CPython before 3.14 asks every file that it opens whether it is a terminal: it tells the plans of an open
// that makes no other request.
void ioctl(fuse_req_t req, fuse_ino_t inode, unsigned command, void*, fuse_file_info*, unsigned, const void*,
           size_t, size_t) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_ioctl.add();
  const auto file = is_control(inode) ? std::nullopt : file_of(context.catalog, inode);
  if ((command == TCGETS || command == kTcgets2) && file &&
      context.catalog.kind(*file) == Catalog::Kind::file) {
    context.plans.observe(thread_of(req), *file, 0, 0, Access::open);  // first, as in read()
  }
  fuse_reply_err(req, ENOTTY);
}

}  // namespace

void set_file_operations(fuse_lowlevel_ops& ops) {
  ops.open = open;
  ops.read = read;
  ops.ioctl = ioctl;
}

}  // namespace clairfs
