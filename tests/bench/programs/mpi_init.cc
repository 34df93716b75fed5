// What MPI alone takes to begin, beside which the start of a job is measured: `mpiexec -n N mpi_init` prints
// for each rank when MPI_Init had returned, in seconds of CLOCK_MONOTONIC.
#include <chrono>
#include <cstdio>

#define MPICH_SKIP_MPICXX 1  // the functions of C are enough
#include <mpi.h>

int main(int argc, char** argv) {
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("%.6f\n", now.count());
  return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
