// Other processes: waiting for their end, naming them, reading from a mount whose daemon may hang.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// A descriptor that stands for the process (pidfd_open(2)); none when it is gone.
Fd open_process(pid_t pid);

/// Waits until the process has ended. False when it still runs after `patience`.
bool wait_for_end(const Fd& process, std::chrono::milliseconds patience);

/// Command name as in /proc/PID/comm, empty when the process is gone.
std::string process_name(pid_t pid);

/// Whether the main thread of a process has ended, as of a killed process whose other threads cannot end.
/// False if the process is gone altogether, or if /proc does not tell.
bool main_thread_ended(pid_t pid);

/// "python3 (1234)" for processes with a working directory, an open file or a mapping at or below `path`, at
/// most `most`. Best effort: sees what this user may see in /proc.
std::vector<std::string> processes_using(const std::string& path, size_t most);

/// A mount namespace, "mnt:[4026532177]", and a process in it, "bash (1234)".
struct NamespaceUser {
  std::string mount_namespace;
  std::string process;
};

/// The mount namespaces but this process's own where a clairfs has the device (MountEntry::device). Best
/// effort: sees what this user may see in /proc.
std::vector<NamespaceUser> namespaces_with(const std::string& device);

/// The processes of those in `now` that were in `before` too, at most `most`. The others have another mount:
/// once a filesystem is unmounted, the kernel gives its device number to the next.
std::vector<std::string> still_with(const std::vector<NamespaceUser>& before,
                                    const std::vector<NamespaceUser>& now, size_t most);

/// ETIMEDOUT for a path where nothing answers: what to do about it. Only what is ours can be ended by us.
Error silent_path(const std::string& path);

/// The result of `work` on `path`, done in a child that is killed if it takes longer than `patience`: a call
/// into a filesystem that does not answer can only be ended with the process that made it. REQUIRES: the
/// process has one thread. Errors: those of `work` with code and message; silent_path().
Result<std::string> with_deadline(const std::string& path, std::chrono::milliseconds patience,
                                  const std::function<Result<std::string>()>& work);

/// Like read_text_file(), but gives up after `patience` when the filesystem does not answer. REQUIRES: the
/// process has one thread. Errors: those of read_text_file(); silent_path().
Result<std::string> read_with_deadline(const std::string& path, std::chrono::milliseconds patience);

/// The outcome of statvfs(3) on `path`: 0 or its errno; ETIMEDOUT when the filesystem does not answer within
/// `patience`. Not stat(2): the kernel may keep attributes that a daemon served long after the daemon's end.
/// REQUIRES: as for read_with_deadline().
int probe(const std::string& path, std::chrono::milliseconds patience);

/// Runs a program with its output thrown away and its stderr captured. Returns what it wrote to stderr when
/// it failed. Errors: it could not be started (code as given), or EIO with its stderr's last line.
Status run_program(const std::vector<std::string>& arguments);

}  // namespace clairfs
