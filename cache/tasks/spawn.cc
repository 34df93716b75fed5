#include "cache/tasks/spawn.h"

#include <csignal>

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

namespace clairfs {
namespace {

// A descriptor of ours that is given must not be 0 to 2 unless it becomes itself: an earlier one would take
// its place.
void give_files(posix_spawn_file_actions_t& actions, const std::array<int, 3>& files) {
  for (int to = 0; to < static_cast<int>(files.size()); ++to) {
    if (files[to] < 0) {
      posix_spawn_file_actions_addopen(&actions, to, "/dev/null", O_RDWR, 0);
    } else {
      posix_spawn_file_actions_adddup2(&actions, files[to], to);
    }
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
}

void give_signals(posix_spawnattr_t& attributes, const Spawn& what) {
  const int session = what.new_session ? POSIX_SPAWN_SETSID : 0;
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(session | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, what.signals == Spawn::Signals::blocked ? &all : &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
}

}  // namespace

Result<pid_t> spawn(const Spawn& what) {
  std::vector<char*> arguments;
  arguments.reserve(what.arguments.size() + 1);
  for (const std::string& argument : what.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  give_files(files, what.files);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  give_signals(attributes, what);
  pid_t process = 0;
  const int error =
      ::posix_spawnp(&process, what.program.c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return system_error(error, "start " + what.program);
  return process;
}

}  // namespace clairfs
