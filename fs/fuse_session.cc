#include "fs/fuse_session.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/base/mountinfo.h"
#include "fs/ops/operations.h"
#include "fs/page_cache/readahead.h"

namespace clairfs {
namespace {

// libfuse before 3.17 forgets to tell the kernel that directories may be read in parallel, so the answer to
// INIT is amended on its way out. Later ones may be built without the functions for that (Debian sid).
constexpr int kAsksForParallelDirectories = 317;  // as fuse_version() counts

ssize_t read_request(int fd, void* buffer, size_t size, void* session) {
  const ssize_t n = ::read(fd, buffer, size);
  if (n >= static_cast<ssize_t>(sizeof(fuse_in_header))) {
    const auto* header = static_cast<const fuse_in_header*>(buffer);
    if (header->opcode == FUSE_INIT) static_cast<SessionData*>(session)->init_unique = header->unique;
  }
  return n;
}

ssize_t write_reply(int fd, iovec* parts, int count, void* session) {
  std::atomic<uint64_t>& init_unique = static_cast<SessionData*>(session)->init_unique;
  const uint64_t init = init_unique.load(std::memory_order_relaxed);
  if (init != 0 && count >= 2 && parts[1].iov_len >= sizeof(fuse_init_out)) {
    const auto* header = static_cast<const fuse_out_header*>(parts[0].iov_base);
    if (header->unique == init && header->error == 0) {
      static_cast<fuse_init_out*>(parts[1].iov_base)->flags |= FUSE_PARALLEL_DIROPS;
      init_unique = 0;
    }
  }
  return ::writev(fd, parts, count);
}

// Whether what is mounted at `mountpoint`, of several mounts there the one in use, is that device.
bool is_mounted(const std::string& mountpoint, dev_t device) {
  const auto mounts = current_mounts();
  const auto top = mounts ? mount_at(*mounts, mountpoint) : std::nullopt;
  return top && top->device == fmt::format("{}:{}", major(device), minor(device));
}

fuse_lowlevel_ops operations(void (*init)(void*, fuse_conn_info*)) {
  fuse_lowlevel_ops ops{};
  ops.init = init;
  set_metadata_operations(ops);
  set_directory_operations(ops);
  set_file_operations(ops);
  set_xattr_operations(ops);
  set_control_operations(ops);
  set_refused_operations(ops);
  return ops;
}

}  // namespace

FuseSession::FuseSession(const FuseOptions& options, Logger& log)
    : options_(options),
      modes_suffice_(!options.read_only && !options.allow_other && ::geteuid() != 0),
      log_(log) {}

Result<std::unique_ptr<FuseSession>> FuseSession::mount(const FuseOptions& options, Logger& log) {
  auto self = std::unique_ptr<FuseSession>(new FuseSession(options, log));
  if (const Status mounted = self->mount(); !mounted) return mounted.error();
  return self;
}

Status FuseSession::mount() {
  nothing_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const fuse_lowlevel_ops ops = operations(&FuseSession::on_init);
  auto session = mount_session(options_, options_.mountpoint, !modes_suffice_, ops, &data_);
  if (!session) return session.error();
  session_ = std::move(*session);
  if (fuse_version() < kAsksForParallelDirectories) {
    fuse_custom_io io{};
    io.read = read_request;
    io.writev = write_reply;
    fuse_session_custom_io(session_.get(), &io, device());
  }
  if (options_.read_only || modes_suffice_) return {};
  auto door = PlanDoor::mount(options_);
  if (door) {
    door_ = std::move(*door);
  } else {
    log_.warn("plans are taken from 'clairfs plan' only, not from .clairfs/plan: {}", door.error().message);
  }
  return {};
}

FuseSession::~FuseSession() {
  stop();
}

void FuseSession::on_init(void* userdata, fuse_conn_info* connection) {
  negotiate(connection);
  connection->max_readahead = kReadaheadKiB * 1024;
  auto& data = *static_cast<SessionData*>(userdata);
  data.context->log.debug("kernel FUSE protocol {}.{}", connection->proto_major, connection->proto_minor);
  data.init_answered = true;
}

Status FuseSession::start(FuseContext& context, std::function<void()> on_unmounted) {
  data_.context = &context;
  // Before anybody is served, and without a request to ourselves: nothing answers it yet, and this thread,
  // which has the device open, would wait for ever if all were killed.
  struct statx st {};
  if (::statx(AT_FDCWD, options_.mountpoint.c_str(), AT_STATX_DONT_SYNC, 0, &st) == 0)
    device_ = makedev(st.stx_dev_major, st.stx_dev_minor);
  context.dirty_pages.mounted_on(device_);
  // A file keeps the value of when it was opened, and the INIT answer can only lower it.
  if (::geteuid() == 0 && !context.readahead.begin(device_))
    log_.info("the kernel's readahead stays at its default: sysfs cannot be written");
  if (door_) door_->start(context);
  loop_.start(session_.get(), "fuse", options_.threads, std::move(on_unmounted));

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!data_.init_answered) {
    if (std::chrono::steady_clock::now() > deadline) {
      return Error{ETIMEDOUT,
                   fmt::format("the kernel did not begin to talk to the mount {}", options_.mountpoint)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

void FuseSession::invalidate(Inode inode, off_t offset, off_t length) {
  fuse_lowlevel_notify_inval_inode(session_.get(), inode, offset, length);
}

void FuseSession::stop() {
  if (!stopping_.exchange(true) && session_) detach();
  loop_.stop();
  if (door_) door_->stop();
}

// Lazily, since files may be open, and without closing the descriptor, since answers may still be on their
// way (libfuse's own unmount closes it first). What somebody else has unmounted, and perhaps mounted anew, is
// left alone: the device number tells.
void FuseSession::detach() {
  if (device_ != 0 && !is_mounted(options_.mountpoint, device_)) return;  // 0: start() never knew it
  if (const Status detached = detach_mount(options_.mountpoint); !detached)
    log_.error("{}", detached.error().message);
}

void FuseSession::close_device() {
  ::dup2(nothing_.get(), device());
  if (door_) door_->close_device(nothing_.get());
}

}  // namespace clairfs
