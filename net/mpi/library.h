// MPI (MPICH), loaded into the process when a job of several nodes needs it, and never linked: a mount that
// is a node by itself starts, and does all it does, on a machine without MPI.
//
// The build fixes what a library must look like: handles, constants and MPI_Status are those of the mpi.h
// that clairfs was built with. They are the same in all libraries of the MPICH ABI (MPICH since 3.1, Intel
// MPI, Cray MPICH, MVAPICH2), any of which may be named in CLAIRFS_MPI_LIBRARY. Open MPI's and those of MPI
// 5's own ABI differ.
#pragma once

#include <string>
#include <string_view>

#include <mpi.h>

#include "cache/base/result.h"

namespace clairfs {

/// The functions that clairfs calls, under MPI's names. Constant, so it may be read from any thread; the net
/// thread alone may call them.
struct MpiLibrary {
  decltype(&MPI_Get_library_version) Get_library_version = nullptr;
  decltype(&MPI_Init_thread) Init_thread = nullptr;
  decltype(&MPI_Comm_set_errhandler) Comm_set_errhandler = nullptr;
  decltype(&MPI_Comm_rank) Comm_rank = nullptr;
  decltype(&MPI_Comm_size) Comm_size = nullptr;
  decltype(&MPI_Comm_get_attr) Comm_get_attr = nullptr;
  decltype(&MPI_Comm_dup) Comm_dup = nullptr;
  decltype(&MPI_Isend) Isend = nullptr;
  decltype(&MPI_Irecv) Irecv = nullptr;
  decltype(&MPI_Improbe) Improbe = nullptr;
  decltype(&MPI_Imrecv) Imrecv = nullptr;
  decltype(&MPI_Cancel) Cancel = nullptr;
  decltype(&MPI_Testsome) Testsome = nullptr;
  decltype(&MPI_Test_cancelled) Test_cancelled = nullptr;
  decltype(&MPI_Get_count) Get_count = nullptr;
  decltype(&MPI_Error_class) Error_class = nullptr;
  decltype(&MPI_Error_string) Error_string = nullptr;
  decltype(&MPI_Get_address) Get_address = nullptr;
  decltype(&MPI_Type_create_hindexed) Type_create_hindexed = nullptr;
  decltype(&MPI_Type_commit) Type_commit = nullptr;
  decltype(&MPI_Type_free) Type_free = nullptr;
};

/// The major version of MPICH in what MPI_Get_library_version() says; 0: not MPICH's own.
int mpich_major(std::string_view version);

/// Loads a library by file name, as dlopen() looks for it, and finds the functions. It stays loaded until the
/// process ends. A function that a library of LD_PRELOAD defines wins, as it would had MPI been linked (tools
/// that measure MPI, tests that disturb it). Errors, with the way out in the message: ENOENT when it cannot
/// be loaded, ENOTSUP when it is no MPI or not of MPICH's ABI.
Result<MpiLibrary> load_mpi(const std::string& file);

/// The library of this process: CLAIRFS_MPI_LIBRARY of the environment, else the one that clairfs was built
/// with. The first call loads it. Thread-safe, but for the environment. Errors: those of load_mpi().
const Result<MpiLibrary>& loaded_mpi();

/// The same, once it is known to be there. REQUIRES: loaded_mpi() is ok.
inline const MpiLibrary& mpi() {
  return *loaded_mpi();
}

}  // namespace clairfs
