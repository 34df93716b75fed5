// Starting another program.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cache/base/result.h"

namespace clairfs {

/// How a program is started. It gets our environment and folder, and none of our descriptors but those of
/// `files`: it must not hold open what others read to the end.
struct Spawn {
  enum class Signals {
    as_usual,  ///< none blocked
    blocked,   ///< all: one that comes before the program listens waits for it
  };

  std::string program{};                 ///< a path, or a name to look for in PATH
  std::vector<std::string> arguments{};  ///< the first is its own name
  /// Its standard input, output and error; -1: /dev/null. Ours, above 2 or at its own place.
  std::array<int, 3> files{-1, -1, -1};
  bool new_session = false;             ///< a signal to our process group is not for it
  Signals signals = Signals::as_usual;  ///< none is ignored, whatever we ignore
};

/// The process, which the caller waits for. Thread-safe. Errors: those of posix_spawnp(), "start PROGRAM".
Result<pid_t> spawn(const Spawn& what);

}  // namespace clairfs
