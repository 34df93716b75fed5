// A mount that is one of several nodes of a job: what the launcher's place means for the options.
#pragma once

#include "cache/base/fd.h"
#include "cache/base/result.h"
#include "mount-helper/mount_options.h"
#include "net/mpi_launch.h"

namespace clairfs {

/// Puts the rank in the place of every "{rank}" in the options' paths, so that several nodes of one machine
/// can be told apart; without a job the rank is 0. Errors: EINVAL when a job of several nodes is to be
/// mounted in the background, which its launcher would take for its end.
Result<MountOptions> for_place(MountOptions options, const MpiPlace& place);

/// Keeps the mount point for this node, against the others of this machine, as long as the descriptor is
/// open. The first thing that is done with it: nodes that begin together would all find it free, and a mount
/// of a node that waits for the others answers nobody, so even a look at it would never end. None where the
/// path cannot be resolved (validation says why), or somebody holds its name for seconds without mounting
/// there. Errors: EBUSY when a clairfs is mounted there, with the advice what to do.
Result<Fd> claim_mount_point(const std::string& mountpoint);

}  // namespace clairfs
