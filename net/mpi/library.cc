#include "net/mpi/library.h"

#include <cerrno>
#include <cstdlib>
#include <type_traits>

#include <dlfcn.h>
#include <fmt/format.h>

#include "net/mpi/ucx_sends.h"

namespace clairfs {
namespace {

static_assert(
    std::is_same_v<MPI_Comm, int> && std::is_same_v<MPI_Request, int>,
    "this mpi.h is not of MPICH's ABI: install libmpich-dev, and set MPI_C_COMPILER to mpicc.mpich");

constexpr int kCrashesOnRefusedSends = 5;  // major versions of MPICH from this on: see net/mpi/ucx_sends.h

constexpr const char* kVariable = "CLAIRFS_MPI_LIBRARY";
// As the build found it: see mpi.cmake.
constexpr const char* kBuiltWith = CLAIRFS_MPI_SONAME;

Error unusable(int code, const std::string& why) {
  return {code,
          fmt::format("a job of several nodes needs MPI, which cannot be loaded: {}; install MPICH on every "
                      "node (Debian: apt install mpich), name another library of its ABI in {}, or mount "
                      "without peers (--peers off)",
                      why, kVariable)};
}

std::string loader_message() {
  const char* message = ::dlerror();  // of this thread, in glibc
  return message != nullptr ? message : "no reason given";
}

std::string version_of(const MpiLibrary& library) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  const int error = library.Get_library_version(text, &length);  // allowed before MPI_Init
  return error == MPI_SUCCESS ? std::string(text, static_cast<size_t>(length)) : "";
}

// Finds functions, and remembers the first that is not there.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <class Function>
  void find(Function*& function, const char* name) {
    // The library's own, unless LD_PRELOAD brings another, which a look-up through the handle would pass by.
    if (::dlsym(library_, name) != nullptr)
      function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

}  // namespace

Result<MpiLibrary> load_mpi(const std::string& file) {
  // Global, so that RTLD_DEFAULT finds what is in it.
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) return unusable(ENOENT, loader_message());
  // A function that this ABI alone has, since its mpi.h names it (MPI_DUP_FN). Others have other handles.
  if (::dlsym(handle, "MPIR_Dup_fn") == nullptr)
    return unusable(ENOTSUP, file + " is not of MPICH's ABI (nor are Open MPI and MPI 5's own)");
  MpiLibrary library;
  Finder finder(handle);
  finder.find(library.Get_library_version, "MPI_Get_library_version");
  finder.find(library.Init_thread, "MPI_Init_thread");
  finder.find(library.Comm_set_errhandler, "MPI_Comm_set_errhandler");
  finder.find(library.Comm_rank, "MPI_Comm_rank");
  finder.find(library.Comm_size, "MPI_Comm_size");
  finder.find(library.Comm_get_attr, "MPI_Comm_get_attr");
  finder.find(library.Comm_dup, "MPI_Comm_dup");
  finder.find(library.Isend, "MPI_Isend");
  finder.find(library.Irecv, "MPI_Irecv");
  finder.find(library.Improbe, "MPI_Improbe");
  finder.find(library.Imrecv, "MPI_Imrecv");
  finder.find(library.Cancel, "MPI_Cancel");
  finder.find(library.Testsome, "MPI_Testsome");
  finder.find(library.Test_cancelled, "MPI_Test_cancelled");
  finder.find(library.Get_count, "MPI_Get_count");
  finder.find(library.Error_class, "MPI_Error_class");
  finder.find(library.Error_string, "MPI_Error_string");
  finder.find(library.Get_address, "MPI_Get_address");
  finder.find(library.Type_create_hindexed, "MPI_Type_create_hindexed");
  finder.find(library.Type_commit, "MPI_Type_commit");
  finder.find(library.Type_free, "MPI_Type_free");
  if (!finder.missing().empty()) return unusable(ENOTSUP, file + " has no " + finder.missing());
  return library;
}

int mpich_major(std::string_view version) {
  constexpr std::string_view kLabel = "MPICH Version:";
  if (!version.starts_with(kLabel)) return 0;
  return std::atoi(std::string(version.substr(kLabel.size())).c_str());
}

const Result<MpiLibrary>& loaded_mpi() {
  static const Result<MpiLibrary> loaded = [] {
    const char* named = ::secure_getenv(kVariable);
    auto library = load_mpi(named != nullptr && *named != '\0' ? named : kBuiltWith);
    if (library && mpich_major(version_of(*library)) >= kCrashesOnRefusedSends) lose_refused_sends();
    return library;
  }();
  return loaded;
}

}  // namespace clairfs
