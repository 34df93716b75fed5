// Which node of its job a process is.
#pragma once

#include <cstdint>

#include "cache/base/types.h"

namespace clairfs {

/// This process's place in its job, by a launcher (net/mpi/launch.h), or by --rank and --nodes.
/// Without a job: node 0 of 1.
struct JobPlace {
  NodeId self;
  uint32_t size = 1;
};

}  // namespace clairfs
