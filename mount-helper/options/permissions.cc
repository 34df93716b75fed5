#include "mount-helper/options/permissions.h"

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "fs/base/text_file.h"
#include "mount-helper/mounts/unmount.h"

namespace clairfs {
namespace {

// Whether the effective set has CAP_SYS_ADMIN; see capabilities(7) and proc(5), CapEff.
bool has_admin_capability() {
  constexpr unsigned kCapSysAdmin = 21;
  const auto status = read_text_file("/proc/self/status");
  if (!status) return ::geteuid() == 0;
  const size_t at = status->find("CapEff:");
  if (at == std::string::npos) return ::geteuid() == 0;
  const uint64_t effective = std::strtoull(status->c_str() + at + 7, nullptr, 16);
  return ((effective >> kCapSysAdmin) & 1) != 0;
}

Status check_device(int code) {
  switch (code) {
    case 0:
      return {};
    case ENOENT:
    case ENODEV:
    case ENXIO:
      return Error{
          ENODEV,
          "there is no usable /dev/fuse; load the module with 'modprobe fuse' or, in a container, start it "
          "with --device /dev/fuse"};
    case EACCES:
      return Error{
          EACCES,
          "no permission to open /dev/fuse; an administrator can allow it with 'chmod 666 /dev/fuse' or "
          "by adding you to its group"};
    case EPERM:
      return Error{EPERM,
                   "opening /dev/fuse is forbidden by the container; start it with --device /dev/fuse and "
                   "--cap-add SYS_ADMIN"};
    default:
      return system_error(code, "open /dev/fuse");
  }
}

Status check_fusermount(const MountOptions& options, const FuseFacts& facts) {
  if (facts.root) {
    return Error{EPERM,
                 "root lacks CAP_SYS_ADMIN here, which mounting needs; start the container with --cap-add "
                 "SYS_ADMIN"};
  }
  if (facts.fusermount.empty()) {
    return Error{ENOENT,
                 "fusermount3 is missing, which users other than root need to mount; install it with 'apt "
                 "install fuse3'"};
  }
  if (!facts.fusermount_setuid) {
    return Error{
        EPERM,
        fmt::format("{} is not setuid root, so it cannot mount for you; an administrator can repair it with "
                    "'chown root {} && chmod 4755 {}'",
                    facts.fusermount, facts.fusermount, facts.fusermount)};
  }
  if (facts.no_new_privs) {
    return Error{
        EPERM,
        "this process runs with no_new_privs, which takes the effect from fusermount3; start it outside of "
        "the sandbox, or without NoNewPrivileges= in the systemd unit"};
  }
  if (!facts.may_write_mountpoint) {
    return Error{
        EACCES,
        fmt::format("fusermount3 mounts only over directories that you may write to, and {} is not; take a "
                    "directory of your own",
                    options.mountpoint)};
  }
  if (options.allow_other && !facts.user_allow_other) {
    return Error{
        EPERM,
        "allow-other is not permitted to users other than root; an administrator can permit it with the "
        "line user_allow_other in /etc/fuse.conf"};
  }
  return {};
}

}  // namespace

bool allows_other(const std::string& fuse_conf) {
  std::istringstream lines(fuse_conf);
  for (std::string line; std::getline(lines, line);) {
    std::string word;
    std::string rest;
    if (std::istringstream words(line); words >> word && word == "user_allow_other" && !(words >> rest))
      return true;
  }
  return false;
}

FuseFacts gather_fuse_facts(const std::string& mountpoint) {
  FuseFacts facts;
  facts.root = ::geteuid() == 0;
  facts.privileged = has_admin_capability();
  const Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  facts.device_errno = device ? 0 : errno;
  facts.fusermount = find_fusermount();
  struct stat attributes {};
  facts.fusermount_setuid = !facts.fusermount.empty() && ::stat(facts.fusermount.c_str(), &attributes) == 0 &&
                            (attributes.st_mode & S_ISUID) != 0 && attributes.st_uid == 0;
  facts.no_new_privs = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
  const auto fuse_conf = read_text_file("/etc/fuse.conf");
  facts.user_allow_other = fuse_conf && allows_other(*fuse_conf);
  facts.may_write_mountpoint = ::access(mountpoint.c_str(), W_OK) == 0;
  return facts;
}

Status check_permissions(const MountOptions& options, const FuseFacts& facts) {
  if (Status device = check_device(facts.device_errno); !device) return device;
  if (facts.privileged) return {};
  return check_fusermount(options, facts);
}

}  // namespace clairfs
