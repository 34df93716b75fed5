#include "net/mpi/library.h"

#include <cerrno>
#include <string>

#include <dlfcn.h>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

void check_refused(const std::string& file, int code, const std::string& why) {
  const auto library = load_mpi(file);
  REQUIRE_FALSE(library.ok());
  CHECK(library.error().code == code);
  CHECK_THAT(library.error().message, Contains(why));
  CHECK_THAT(library.error().message, Contains("apt install mpich"));
  CHECK_THAT(library.error().message, Contains("CLAIRFS_MPI_LIBRARY"));
  CHECK(library.error().message.find('\n') == std::string::npos);
}

template <class Function>
void check_is(Function* function, const std::string& name) {
  Dl_info found{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(function), &found) != 0);
  // MPICH has each function under two names.
  CHECK((found.dli_sname == name || found.dli_sname == "P" + name));
}

}  // namespace

TEST_CASE("an MPI that is missing or of another kind is refused with the way out", "[mpi_library]") {
  check_refused("/nowhere/libmpich.so.12", ENOENT, "/nowhere/libmpich.so.12: cannot open");
  check_refused("libc.so.6", ENOTSUP, "libc.so.6 is not of MPICH's ABI");
}

TEST_CASE("the MPI of the build is loaded with all functions", "[mpi_library]") {
  REQUIRE(loaded_mpi().ok());
  CHECK(&*loaded_mpi() == &mpi());
  const MpiLibrary& m = mpi();
  check_is(m.Init_thread, "MPI_Init_thread");
  check_is(m.Comm_set_errhandler, "MPI_Comm_set_errhandler");
  check_is(m.Comm_rank, "MPI_Comm_rank");
  check_is(m.Get_library_version, "MPI_Get_library_version");
  check_is(m.Comm_size, "MPI_Comm_size");
  check_is(m.Comm_get_attr, "MPI_Comm_get_attr");
  check_is(m.Comm_dup, "MPI_Comm_dup");
  check_is(m.Isend, "MPI_Isend");
  check_is(m.Irecv, "MPI_Irecv");
  check_is(m.Improbe, "MPI_Improbe");
  check_is(m.Imrecv, "MPI_Imrecv");
  check_is(m.Cancel, "MPI_Cancel");
  check_is(m.Testsome, "MPI_Testsome");
  check_is(m.Test_cancelled, "MPI_Test_cancelled");
  check_is(m.Get_count, "MPI_Get_count");
  check_is(m.Error_class, "MPI_Error_class");
  check_is(m.Error_string, "MPI_Error_string");
  check_is(m.Get_address, "MPI_Get_address");
  check_is(m.Type_create_hindexed, "MPI_Type_create_hindexed");
  check_is(m.Type_commit, "MPI_Type_commit");
  check_is(m.Type_free, "MPI_Type_free");
  // What the process has loaded meanwhile is not taken for the functions of another library.
  check_refused("libc.so.6", ENOTSUP, "libc.so.6 is not of MPICH's ABI");
}

TEST_CASE("MPICH's own version is told from others", "[mpi_library]") {
  CHECK(mpich_major("MPICH Version:      5.0.2\nMPICH Release date: ...") == 5);
  CHECK(mpich_major("MPICH Version:\t4.0.2") == 4);
  CHECK(mpich_major("Intel(R) MPI Library 2021.10 for Linux* OS") == 0);
  CHECK(mpich_major("") == 0);
}
