// Reads from the environment whether there are other nodes where no launcher of MPI has made a job of them:
// torchrun, Kubernetes, Slurm, Open MPI, Flux.
#pragma once

#include <cstdint>
#include <string>

#include "cache/base/result.h"

namespace clairfs {

// All of these read the environment: not safe against other threads that change it.

/// The rank of this node for --job: GROUP_RANK (torchrun), else JOB_COMPLETION_INDEX (Kubernetes' indexed
/// jobs). Errors: EINVAL, when there is none or it is no number.
Result<uint32_t> node_rank_from_environment();

/// The number of nodes for --job: GROUP_WORLD_SIZE, else WORLD_SIZE / LOCAL_WORLD_SIZE (torchrun); Kubernetes
/// tells none. Errors: EINVAL, when there is none or it is no number.
Result<uint32_t> node_count_from_environment();

/// For a mount that is a node by itself: the sign that there are others, and the way to a job with them, as a
/// line for people. Empty where nothing tells of other nodes.
std::string hint_at_other_nodes();

/// How the mounts of several nodes become a job: the end of a message that says why they did not.
std::string way_to_a_job();

}  // namespace clairfs
