#include "fs/fuse_session.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/ops/operations.h"

namespace clairfs {
namespace {

// READs that the kernel may have under way in the background (readahead); libfuse's default of 12 throttles
// parallel readers.
constexpr unsigned kMaxBackground = 128;

// What the kernel reads ahead in a sequential read: the largest READ there is. The default of 128 KiB would
// need eight times as many messages.
constexpr unsigned kReadaheadKiB = 1024;

// What libfuse prints while mounting is the reason that the user needs to see.
thread_local std::string* mount_messages = nullptr;

[[gnu::format(printf, 2, 0)]] void collect_message(fuse_log_level, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof(line), format, arguments);
  if (mount_messages != nullptr) *mount_messages += line;
}

// The unique number of the INIT request while it is being answered. One session a process, answered once.
std::atomic<uint64_t> init_unique{0};
std::atomic<bool> init_answered{false};

ssize_t read_request(int fd, void* buffer, size_t size, void*) {
  const ssize_t n = ::read(fd, buffer, size);
  if (n >= static_cast<ssize_t>(sizeof(fuse_in_header))) {
    const auto* header = static_cast<const fuse_in_header*>(buffer);
    if (header->opcode == FUSE_INIT) init_unique = header->unique;
  }
  return n;
}

ssize_t write_reply(int fd, iovec* parts, int count, void*) {
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

/// The device of what is mounted at `mountpoint`, of several mounts there the one in use; 0: nothing.
dev_t topmost_device(const std::string& mountpoint) {
  std::string escaped;  // as mountinfo has it
  for (const char c : mountpoint)
    escaped += std::strchr(" \t\n\\", c) != nullptr ? fmt::format("\\{:03o}", static_cast<unsigned>(c))
                                                    : std::string(1, c);
  dev_t device = 0;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, parent, root, point;
    unsigned major = 0, minor = 0;
    char colon = 0;
    if (fields >> id >> parent >> major >> colon >> minor >> root >> point && point == escaped)
      device = makedev(major, minor);
  }
  return device;
}

std::string explain_mount_failure(const FuseOptions& options, std::string messages) {
  std::replace(messages.begin(), messages.end(), '\n', ' ');
  std::string text = fmt::format("cannot mount on {}: {}", options.mountpoint,
                                 messages.empty() ? "libfuse gave no reason" : messages);
  if (messages.find("user_allow_other") != std::string::npos) {
    text += "(add the line user_allow_other to /etc/fuse.conf, or mount without --allow-other)";
  } else if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    text += fmt::format("(/dev/fuse: {}; load the fuse module and allow this user to open it)",
                        std::strerror(errno));
  }
  return text;
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

Result<std::unique_ptr<FuseSession>> FuseSession::mount(const FuseOptions& options, Logger& log) {
  std::string messages;
  mount_messages = &messages;
  fuse_set_log_func(collect_message);
  auto self = std::unique_ptr<FuseSession>(new FuseSession(options, log));

  self->nothing_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  char* mount_options = nullptr;
  fuse_opt_add_opt(&mount_options, "default_permissions,subtype=clairfs");
  fuse_opt_add_opt_escaped(&mount_options, ("fsname=" + options.source).c_str());
  if (options.allow_other) fuse_opt_add_opt(&mount_options, "allow_other");
  if (options.kernel_read_only) fuse_opt_add_opt(&mount_options, "ro");
  if (options.no_exec) fuse_opt_add_opt(&mount_options, "noexec");
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&arguments, "clairfs");
  fuse_opt_add_arg(&arguments, "-o");
  fuse_opt_add_arg(&arguments, mount_options);
  ::free(mount_options);

  const fuse_lowlevel_ops ops = operations(&FuseSession::on_init);
  self->session_ = fuse_session_new(&arguments, &ops, sizeof(ops), &self->context_);
  fuse_opt_free_args(&arguments);
  if (self->session_ != nullptr && fuse_session_mount(self->session_, options.mountpoint.c_str()) == 0) {
    self->mounted_ = true;
    fuse_custom_io io{};
    io.read = read_request;
    io.writev = write_reply;
    init_answered = false;
    fuse_session_custom_io(self->session_, &io, fuse_session_fd(self->session_));
  }
  mount_messages = nullptr;
  if (!self->mounted_) return Error{EPERM, explain_mount_failure(options, messages)};
  return self;
}

FuseSession::~FuseSession() {
  stop();
  if (session_ != nullptr) fuse_session_destroy(session_);
}

void FuseSession::on_init(void* userdata, fuse_conn_info* connection) {
  const auto wants = [&](unsigned capability, bool on) {
    if (on) {
      connection->want |= connection->capable & capability;
    } else {
      connection->want &= ~capability;
    }
  };
  wants(FUSE_CAP_AUTO_INVAL_DATA, false);     // libfuse's default; costs an attribute check a cached read
  wants(FUSE_CAP_EXPLICIT_INVAL_DATA, true);  // pages stay until we say otherwise
  wants(FUSE_CAP_READDIRPLUS, true);
  wants(FUSE_CAP_READDIRPLUS_AUTO, false);  // "auto" leaves most inodes unknown after a listing
  wants(FUSE_CAP_PARALLEL_DIROPS, true);
  wants(FUSE_CAP_CACHE_SYMLINKS, true);
  wants(FUSE_CAP_ASYNC_READ, true);
  wants(FUSE_CAP_ATOMIC_O_TRUNC, false);  // with zero-message open a truncating open would never be refused
  wants(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE,
        false);                                               // replies come from memory
  wants(FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS, false);  // the kernel's own will do
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground * 3 / 4;
  connection->max_readahead = kReadaheadKiB * 1024;
  (*static_cast<FuseContext**>(userdata))
      ->log.debug("kernel FUSE protocol {}.{}", connection->proto_major, connection->proto_minor);
  init_answered = true;
}

Status FuseSession::start(FuseContext& context, std::function<void()> on_unmounted) {
  context_ = &context;
  context.invalidate = [this](Inode inode, off_t offset, off_t length) {
    fuse_lowlevel_notify_inval_inode(session_, inode, offset, length);
  };
  // A signal without effect, so that a thread blocked in read() can be made to look at `stopping_`.
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &nothing, nullptr);

  on_unmounted_ = std::move(on_unmounted);
  serving_ = options_.threads;
  for (unsigned i = 0; i < options_.threads; ++i)
    threads_.emplace_back(fmt::format("fuse-{}", i), [this] { serve(); });

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!init_answered) {
    if (std::chrono::steady_clock::now() > deadline) {
      return Error{ETIMEDOUT,
                   fmt::format("the kernel did not begin to talk to the mount {}", options_.mountpoint)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Without a request to ourselves: this thread has the device open, and would wait for ever if all are
  // killed.
  struct statx st {};
  if (::statx(AT_FDCWD, options_.mountpoint.c_str(), AT_STATX_DONT_SYNC, 0, &st) == 0)
    device_ = makedev(st.stx_dev_major, st.stx_dev_minor);
  raise_readahead();
  return {};
}

void FuseSession::serve() {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
  fuse_buf buffer{};
  while (!stopping_ && !fuse_session_exited(session_)) {
    const int got = fuse_session_receive_buf(session_, &buffer);
    if (got == -EINTR) continue;
    if (got <= 0) break;  // 0: unmounted
    fuse_session_process_buf(session_, &buffer);
  }
  ::free(buffer.mem);
  if (serving_.fetch_sub(1) == 1 && !stopping_ && on_unmounted_) on_unmounted_();
}

void FuseSession::stop() {
  if (!stopping_.exchange(true) && mounted_) detach();
  while (serving_ > 0) {
    for (NamedThread& thread : threads_) {
      if (thread.joinable()) pthread_kill(thread.native_handle(), SIGUSR1);
    }
    // Again until it worked: the signal may arrive just before a thread blocks in read().
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  threads_.clear();
}

// Lazily, since files may be open, and without closing the descriptor, since answers may still be on their
// way (libfuse's own unmount closes it first). What somebody else has unmounted, and perhaps mounted anew, is
// left alone: the device number tells.
void FuseSession::detach() {
  if (device_ != 0 && topmost_device(options_.mountpoint) != device_) return;  // 0: start() never knew it
  if (::umount2(options_.mountpoint.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return;
  if (errno != EPERM) {
    log_.error("cannot unmount {}: {}", options_.mountpoint, std::strerror(errno));
    return;
  }
  std::string program = "fusermount3", unmount = "-uqz", end = "--", mountpoint = options_.mountpoint;
  char* arguments[] = {program.data(), unmount.data(), end.data(), mountpoint.data(), nullptr};
  pid_t child = 0;
  int status = ::posix_spawnp(&child, "fusermount3", nullptr, nullptr, arguments, environ);
  if (status == 0) ::waitpid(child, &status, 0);
  if (status != 0) log_.error("cannot unmount {}: fusermount3 failed", options_.mountpoint);
}

void FuseSession::let_go() {
  ::dup2(nothing_.get(), device());
}

// The INIT answer can only lower the readahead; raising it takes root and the device's sysfs entry.
void FuseSession::raise_readahead() {
  if (::geteuid() != 0) return;
  std::ofstream file(fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", major(device_), minor(device_)));
  file << kReadaheadKiB;
  if (!file.flush()) log_.info("the kernel's readahead stays at its default: sysfs cannot be written");
}

}  // namespace clairfs
