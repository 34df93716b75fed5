#include "net/mpi/launch.h"

#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/thread.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// The launcher's part of the environment, for a scope.
class Launched {
 public:
  explicit Launched(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Launched() { clear(); }

 private:
  static void clear() {
    for (const char* name :
         {"PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID", "PMIX_RANK", "SLURM_PROCID",
          "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALRANKID", "HYDI_CONTROL_FD"}) {
      ::unsetenv(name);
    }
  }
};

void check_place(const std::map<std::string, std::string>& variables, uint32_t rank, uint32_t size) {
  const Launched launched(variables);
  const auto place = mpi_place();
  REQUIRE(place.ok());
  CHECK(place->self == NodeId(rank));
  CHECK(place->size == size);
}

void check_refused(const std::map<std::string, std::string>& variables, const std::string& naming) {
  const Launched launched(variables);
  const auto place = mpi_place();
  REQUIRE_FALSE(place.ok());
  CHECK(place.error().code == EINVAL);
  CHECK(place.error().message.find(naming) != std::string::npos);
}

}  // namespace

TEST_CASE("without a launcher there is one node") {
  check_place({}, 0, 1);
  check_place({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, 0, 1);
  check_place({{"SLURM_PROCID", "0"}}, 0, 1);  // a shell within an allocation
  check_place({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, 0, 1);
}

TEST_CASE("the launcher tells rank and size") {
  check_place({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}, 3, 8);
  check_place({{"PMIX_RANK", "3"}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}}, 3, 8);
  check_place({{"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, 1, 2);
}

TEST_CASE("what the launcher cannot mean is refused by name") {
  check_refused({{"PMI_RANK", "3"}}, "PMI_SIZE");
  check_refused({{"PMI_RANK", "three"}, {"PMI_SIZE", "8"}}, "PMI_RANK=three");
  check_refused({{"PMI_RANK", "-1"}, {"PMI_SIZE", "8"}}, "PMI_RANK=-1");
  check_refused({{"PMI_RANK", "8"}, {"PMI_SIZE", "8"}}, "PMI_SIZE=8");
  check_refused({{"PMI_PORT", "host:1234"}, {"PMI_ID", "0"}}, "-pmi-port");
  check_refused({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}, "--mpi=pmi2");
}

TEST_CASE("children inherit nothing of the launch, and the launcher is told of the end") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Fd ours(ends[0]);
  const Fd launchers(ends[1]);
  const Launched launched({{"PMI_RANK", "1"},
                           {"PMI_SIZE", "2"},
                           {"PMI_FD", std::to_string(ours.get())},
                           {"MPI_LOCALRANKID", "1"},
                           {"SLURM_PROCID", "1"}});
  MpiLaunch launch = MpiLaunch::take_over();
  for (const char* name : {"PMI_RANK", "PMI_SIZE", "PMI_FD", "MPI_LOCALRANKID"}) {
    CHECK(std::getenv(name) == nullptr);
  }
  CHECK(std::getenv("SLURM_PROCID") != nullptr);  // not MPI's
  CHECK((::fcntl(ours.get(), F_GETFD) & FD_CLOEXEC) != 0);

  std::string heard;
  {
    const NamedThread launcher("launcher", [&] {
      char line[64];
      const ssize_t n = ::recv(launchers.get(), line, sizeof line, 0);
      heard.assign(line, n > 0 ? static_cast<size_t>(n) : 0);
      static_cast<void>(::send(launchers.get(), "cmd=finalize_ack\n", 17, MSG_NOSIGNAL));
    });
    launch.leave();
  }
  CHECK(heard == "cmd=finalize\n");
  launch.leave();
  char nothing = 0;
  CHECK(::recv(launchers.get(), &nothing, 1, MSG_DONTWAIT) == -1);  // once only
}

TEST_CASE("a launcher that is gone does not matter") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Fd ours(ends[0]);
  ::close(ends[1]);
  const Launched launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", std::to_string(ours.get())}});
  MpiLaunch launch = MpiLaunch::take_over();
  launch.leave();
}
