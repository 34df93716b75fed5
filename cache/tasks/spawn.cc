#include "cache/tasks/spawn.h"

#include <csignal>

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

namespace clairfs {
namespace {

/// A descriptor of ours that is given must not be 0 to 2 unless it becomes itself: an earlier one would take
/// its place.
class FileActions {
 public:
  explicit FileActions(const std::array<int, 3>& files) {
    posix_spawn_file_actions_init(&actions_);
    for (int to = 0; to < static_cast<int>(files.size()); ++to) {
      if (files[to] < 0) {
        posix_spawn_file_actions_addopen(&actions_, to, "/dev/null", O_RDWR, 0);
      } else {
        posix_spawn_file_actions_adddup2(&actions_, files[to], to);
      }
    }
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

class Attributes {
 public:
  Attributes(bool new_session, bool blocked) {
    posix_spawnattr_init(&attributes_);
    const int session = new_session ? POSIX_SPAWN_SETSID : 0;
    posix_spawnattr_setflags(&attributes_,
                             static_cast<short>(session | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, blocked ? &all : &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<pid_t> spawn(const Spawn& what) {
  std::vector<char*> arguments;
  arguments.reserve(what.arguments.size() + 1);
  for (const std::string& argument : what.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const FileActions files(what.files);
  const Attributes attributes(what.new_session, what.signals == Spawn::Signals::blocked);
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, what.program.c_str(), files.get(), attributes.get(),
                                   arguments.data(), environ);
  if (error != 0) return system_error(error, "start " + what.program);
  return process;
}

}  // namespace clairfs
