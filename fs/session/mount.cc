#include "fs/session/mount.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/tasks/spawn.h"

namespace clairfs {
namespace {

// READs that the kernel may have under way in the background (readahead); libfuse's default of 12 throttles
// parallel readers.
constexpr unsigned kMaxBackground = 128;

// What libfuse prints while mounting is the reason that the user needs to see.
thread_local std::string* mount_messages = nullptr;

[[gnu::format(printf, 2, 0)]] void collect_message(fuse_log_level, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof(line), format, arguments);
  if (mount_messages != nullptr) *mount_messages += line;
}

std::string explain_mount_failure(const std::string& mountpoint, std::string messages) {
  std::replace(messages.begin(), messages.end(), '\n', ' ');
  std::string text = fmt::format("cannot mount on {}: {}", mountpoint,
                                 messages.empty() ? "libfuse gave no reason" : messages);
  if (messages.find("user_allow_other") != std::string::npos) {
    text += "(add the line user_allow_other to /etc/fuse.conf, or mount without --allow-other)";
  } else if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    text += fmt::format("(/dev/fuse: {}; load the fuse module and allow this user to open it)",
                        std::strerror(errno));
  }
  return text;
}

}  // namespace

Result<SessionHandle> mount_session(const FuseOptions& options, const std::string& mountpoint, bool read_only,
                                    const fuse_lowlevel_ops& ops, void* userdata) {
  std::string messages;
  mount_messages = &messages;
  fuse_set_log_func(collect_message);
  char* mount_options = nullptr;
  fuse_opt_add_opt(&mount_options, "default_permissions,subtype=clairfs");
  fuse_opt_add_opt_escaped(&mount_options, ("fsname=" + options.source).c_str());
  if (options.allow_other) fuse_opt_add_opt(&mount_options, "allow_other");
  if (read_only) fuse_opt_add_opt(&mount_options, "ro");
  if (options.no_exec) fuse_opt_add_opt(&mount_options, "noexec");
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&arguments, "clairfs");
  fuse_opt_add_arg(&arguments, "-o");
  fuse_opt_add_arg(&arguments, mount_options);
  ::free(mount_options);

  SessionHandle session(fuse_session_new(&arguments, &ops, sizeof(ops), userdata));
  fuse_opt_free_args(&arguments);
  const bool mounted = session && fuse_session_mount(session.get(), mountpoint.c_str()) == 0;
  mount_messages = nullptr;
  if (!mounted) return Error{EPERM, explain_mount_failure(mountpoint, messages)};
  return session;
}

void negotiate(fuse_conn_info* connection) {
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
}

Status detach_mount(const std::string& mountpoint) {
  if (::umount2(mountpoint.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return {};
  if (errno != EPERM) return system_error(errno, "unmount " + mountpoint);
  const Result<pid_t> child =
      spawn({.program = "fusermount3", .arguments = {"fusermount3", "-uqz", "--", mountpoint}});
  int status = -1;
  if (child) ::waitpid(*child, &status, 0);
  if (status != 0) return Error{EPERM, fmt::format("cannot unmount {}: fusermount3 failed", mountpoint)};
  return {};
}

}  // namespace clairfs
