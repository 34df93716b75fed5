// Reads the job that the launcher (mpiexec, srun) describes from the environment, before MPI is initialised.
//
// The mount point may name the rank, and the mount is made before MPI_Init, so rank and size must be known
// without MPI. A process without a launcher, or the only one, is a node by itself and never touches MPI.
#pragma once

#include "cache/base/result.h"
#include "cache/base/types.h"

namespace clairfs {

/// The place that the environment gives us:
/// - PMI_RANK and PMI_SIZE: mpiexec of MPICH and its kin, srun --mpi=pmi2;
/// - PMIX_RANK, and the size from SLURM_STEP_NUM_TASKS or OMPI_COMM_WORLD_SIZE: srun --mpi=pmix, for an MPICH
/// that was
///   built with PMIx (Debian's was not, and then connecting says so);
/// - none of them: no job. SLURM_* alone is none: a shell within an allocation has them too.
/// Errors: EINVAL with what is wrong: numbers that are none, a rank not below the size, mpiexec -pmi-port
/// (which tells no rank), or a Slurm step of several tasks that offers no PMI: each task would take itself
/// for all. Not safe against other threads changing the environment.
Result<JobPlace> mpi_place();

/// Removes what a launcher has put into the environment, and keeps its descriptors from being inherited.
/// REQUIRES: no other thread reads or writes the environment meanwhile.
void forget_launcher();

/// The line to the launcher's process manager (PMI), over which it learns that a rank ends on purpose.
class MpiLaunch {
 public:
  /// Takes the line over, removes what the launcher put into our environment, and keeps its descriptors from
  /// being inherited: a child that is itself an MPI program must not take itself for this rank. REQUIRES: MPI
  /// is initialised (it reads them), and no other thread reads or writes the environment meanwhile.
  static MpiLaunch take_over();

  /// Tells the launcher that this rank is done, as MPI_Finalize would, but without waiting for the other
  /// ranks: so mpiexec neither takes the end of this process for a crash nor ends the others. Waits at most a
  /// second for the answer. Once only; does nothing where there is no such line.
  void leave();

 private:
  int pmi_fd_ = -1;  // MPI's; it closes it, or the end of the process does
};

}  // namespace clairfs
