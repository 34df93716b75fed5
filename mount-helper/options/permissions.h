// Checks that this process may mount with FUSE at all, and names what is missing with its fix.
#pragma once

#include <string>

#include <sys/types.h>

#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// The facts that decide whether a mount can work; tests make their own.
struct FuseFacts {
  bool privileged = false;            ///< CAP_SYS_ADMIN is in force: mount(2) itself may be called
  int device_errno = 0;               ///< of opening /dev/fuse for reading and writing
  std::string fusermount;             ///< path of fusermount3, empty if there is none
  bool fusermount_setuid = false;     ///< setuid and owned by root
  bool no_new_privs = false;          ///< setuid programs have no effect here
  bool user_allow_other = false;      ///< the line stands in /etc/fuse.conf
  bool may_write_mountpoint = false;  ///< fusermount3 insists on it
  bool root = false;
};

/// As this machine and process are. `mountpoint` exists.
FuseFacts gather_fuse_facts(const std::string& mountpoint);

/// Errors: EACCES, ENODEV or EPERM; one line with the missing permission and the fix.
Status check_permissions(const MountOptions& options, const FuseFacts& facts);

/// Whether the text of /etc/fuse.conf has the line user_allow_other.
bool allows_other(const std::string& fuse_conf);

}  // namespace clairfs
