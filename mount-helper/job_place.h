// A mount that is one of several nodes of a job: what the launcher's place means for the options.
#pragma once

#include "cache/base/result.h"
#include "mount-helper/mount_options.h"
#include "net/mpi_launch.h"

namespace clairfs {

/// Puts the rank in the place of every "{rank}" in the options' paths, so that several nodes of one machine
/// can be told apart; without a job the rank is 0. Errors: EINVAL when a job of several nodes is to be
/// mounted in the background, which its launcher would take for its end.
Result<MountOptions> for_place(MountOptions options, const MpiPlace& place);

/// EBUSY, with the advice what to do.
Error shared_mount_point(const std::string& mountpoint);

}  // namespace clairfs
