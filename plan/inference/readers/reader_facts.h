// The facts about a job in the environment of a process that reads: torchrun, Slurm and Lightning put them
// there.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/tracking/rank_trackers.h"

namespace clairfs {

struct ReaderFacts {
  std::optional<uint64_t> world;  ///< training ranks of the job
  std::vector<uint64_t> seeds;    ///< such as PL_GLOBAL_SEED

  bool operator==(const ReaderFacts&) const = default;
};

/// Reads an environment as /proc/PID/environ has it: NAME=VALUE, each ended by a NUL. Takes any bytes.
ReaderFacts facts_of_environment(std::string_view environment);

/// Of the process of that thread; nothing where it has ended, is another user's, or has another namespace.
ReaderFacts facts_of_reader(ThreadId thread);

}  // namespace clairfs
