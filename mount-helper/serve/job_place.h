// A mount that is one of several nodes of a job: what the launcher's place means for the options.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/base/fd.h"
#include "cache/base/result.h"
#include "cache/base/types.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// This node's place: with --job what it and its companions or the environment say, else the launcher's.
/// Errors: EINVAL, what is missing or cannot be; those of mpi_place(). Not safe against other threads
/// changing the environment.
Result<JobPlace> place_of(const MountOptions& options);

/// Lines that tell of a job that is not as the user may think. Not safe as above.
std::vector<std::string> job_warnings(const MountOptions& options, const JobPlace& place);

/// Puts the node's number in the place of every "{rank}" in the options' paths, so that several nodes of one
/// machine can be told apart; without a job it is 0. Reads the job's secret. Errors: EINVAL when a launcher's
/// job of several nodes is to be mounted in the background, which the launcher would take for its end; those
/// of the secret's file, EINVAL when it is empty.
Result<MountOptions> options_for_node(MountOptions options, const JobPlace& place);

/// Keeps the mount point for this mount, against others of this machine that see the same mounts, as long as
/// the descriptor is open. Called before anything else is done with the mount point: mounts that begin
/// together would all find it free, and the mount of a node that waits for the others answers no request, so
/// even a look at it would never end. None where the path cannot be resolved, or, on a single node, a clairfs
/// is mounted there already: validation says more. None, too, where a process of another user than root
/// holds its name, which anybody may take, and in a job where any process does for seconds without mounting.
/// Errors: EBUSY, with the advice what to do: in a job, when a clairfs is mounted there; on a single node,
/// when another one is being mounted there and does not get ready. Calls `on_wait` whenever the mount point
/// is taken and it is about to wait.
Result<Fd> claim_mount_point(const std::string& mountpoint, bool in_job,
                             const std::function<void()>& on_wait = {});

}  // namespace clairfs
