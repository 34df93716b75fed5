#include "net/mpi/launch.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/base/text.h"
#include "net/mpi/job_environment.h"

namespace clairfs {
namespace {

Result<uint32_t> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return Error{EINVAL, fmt::format("the launcher did not set {}", name)};
  const auto value = parse_whole<uint32_t>(text);
  if (!value) return Error{EINVAL, fmt::format("{}={} in the environment is not a number", name, text)};
  return *value;
}

bool is_set(const char* name) {
  return std::getenv(name) != nullptr;
}

Result<JobPlace> place_from(const char* rank_name, const char* size_name) {
  const auto rank = number(rank_name);
  if (!rank) return rank.error();
  const auto size = number(size_name);
  if (!size) return size.error();
  if (*rank >= *size) {
    return Error{EINVAL, fmt::format("{}={} is not below {}={} in the environment", rank_name, *rank,
                                     size_name, *size)};
  }
  return JobPlace{NodeId(*rank), *size};
}

bool is_launcher_variable(std::string_view assignment) {
  for (const char* prefix : {"PMI_", "PMIX_", "MPI_LOCAL", "HYDI_", "OMPI_", "PRTE_"}) {
    if (assignment.starts_with(prefix)) return true;
  }
  return false;
}

void close_in_children(const char* name) {
  const auto fd = number(name);
  if (fd) ::fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);
}

}  // namespace

Result<JobPlace> mpi_place() {
  if (is_set("PMI_RANK")) return place_from("PMI_RANK", "PMI_SIZE");
  if (is_set("PMIX_RANK")) {
    const char* size = is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "OMPI_COMM_WORLD_SIZE";
    if (is_set(size)) return place_from("PMIX_RANK", size);
    return Error{EINVAL, fmt::format("the launcher speaks PMIx alone (PMIX_RANK is set, {} is not); {}", size,
                                     way_to_a_job())};
  }
  if (is_set("PMI_PORT")) {
    return Error{EINVAL, "mpiexec -pmi-port does not tell a process its rank: leave out -pmi-port"};
  }
  if (is_set("SLURM_STEP_NUM_TASKS") && is_set("SLURM_PROCID")) {
    const auto tasks = number("SLURM_STEP_NUM_TASKS");
    if (!tasks) return tasks.error();
    if (*tasks > 1) {
      return Error{EINVAL,
                   fmt::format("srun started {} tasks without telling them of each other: add --mpi=pmi2, or "
                               "--ntasks=1 for nodes without peers, or form the job with --job HOST:PORT",
                               *tasks)};
    }
  }
  return JobPlace{};
}

void forget_launcher() {
  for (const char* name : {"PMI_FD", "HYDI_CONTROL_FD"}) close_in_children(name);
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view assignment(*entry);
    if (is_launcher_variable(assignment)) names.emplace_back(assignment.substr(0, assignment.find('=')));
  }
  for (const auto& name : names) ::unsetenv(name.c_str());
}

MpiLaunch MpiLaunch::take_over() {
  MpiLaunch launch;
  if (const auto fd = number("PMI_FD")) launch.pmi_fd_ = static_cast<int>(*fd);
  forget_launcher();
  return launch;
}

void MpiLaunch::leave() {
  const int fd = std::exchange(pmi_fd_, -1);
  if (fd < 0) return;
  // PMI-1, section "Finalize" of its wire protocol: one line each way, answered with cmd=finalize_ack.
  constexpr std::string_view kFinalize = "cmd=finalize\n";
  if (::send(fd, kFinalize.data(), kFinalize.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  pollfd answer{fd, POLLIN, 0};
  constexpr int kPatienceMs = 1000;
  if (::poll(&answer, 1, kPatienceMs) <= 0) return;
  char line[256];
  static_cast<void>(::recv(fd, line, sizeof line, MSG_DONTWAIT));
}

}  // namespace clairfs
