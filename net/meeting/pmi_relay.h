// PMI-1 for one MPI process, so that MPI finds a launcher where there is none.
//
// MPI's PMI client sends lines "cmd=NAME KEY=VALUE..." and waits for the answer to each. (The wire protocol
// is that of MPICH's src/pmi; Flux's RFC 13 describes it.) All of it is answered here but for the barrier:
// PMI promises what others put only after one. So a barrier is an exchange: this process's puts since the
// last one go to the host of the meeting (net/meeting/host.h), which sends those of all back when all have
// come.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cache/base/types.h"

namespace clairfs {

/// No input does harm. Not thread-safe.
class PmiRelay {
 public:
  explicit PmiRelay(const JobPlace& place) : place_(place) {}

  /// The answer to a line: whole lines, or nothing.
  struct Outcome {
    std::string to_mpi;
    std::string to_host;
  };
  Outcome from_mpi(const std::string& line);
  Outcome from_host(const std::string& line);

  /// MPI waits for the other nodes.
  bool in_barrier() const { return in_barrier_; }

 private:
  std::string put(const std::string& line);
  std::string get(std::string_view key) const;

  const JobPlace place_;
  bool in_barrier_ = false;
  std::string new_puts_;  // as lines for the host
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace clairfs
