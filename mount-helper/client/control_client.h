// Speaking to a mount's daemon through its control socket, which is open also where the kernel's mount is
// read-only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// A mount whose daemon answers, as a path at or below its mountpoint names it.
struct ControlledMount {
  std::string mountpoint;
  std::string folder;    ///< the path below the mountpoint; empty: the mountpoint itself
  std::string socket;    ///< name of the control socket
  std::string source{};  ///< the dataset's directory
};

/// Errors: those of find_clairfs_mount(); ETIMEDOUT; EPROTO when the daemon names no socket. REQUIRES: this
/// process has one thread.
Result<ControlledMount> find_controlled_mount(const std::string& path);

/// Sends a command (fs/control/commands.h). `seconds`: how long its answer may take. Errors: the daemon's
/// answer; EPERM for users who may not control the mount; where it cannot be reached, with the advice.
Result<std::string> ask_mount(const ControlledMount& mount, std::string_view command, int seconds);

/// The words of a command line as a plan's text. One word is the text as it stands, so that what setfattr
/// takes, or JSON, can be given in quotes. Of several, each is one key=value, whose value is taken literally:
/// the shell has taken the quotes off already.
std::string plan_text_of(const std::vector<std::string>& words);

/// The text to register for a plan given at `mount` from the directory `here`: files named by list=, weights=
/// and indices= absolute, as the daemon is elsewhere; root= relative to the mountpoint, by default
/// mount.folder. Text that is no plan stays as it is, so that the daemon refuses it and notes why. Errors:
/// EINVAL where mount.folder is a folder and root= another one, and for more text than a plan may have.
Result<std::string> plan_to_register(const std::string& text, const ControlledMount& mount,
                                     const std::string& here);

}  // namespace clairfs
