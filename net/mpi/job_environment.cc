#include "net/mpi/job_environment.h"

#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/text.h"

namespace clairfs {
namespace {

std::optional<uint32_t> number_in(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : parse_whole<uint32_t>(text);
}

bool has_variable(const char* name) {
  return std::getenv(name) != nullptr;
}

Result<uint32_t> need_number(const char* name) {
  const char* text = std::getenv(name);
  if (const auto value = number_in(name)) return *value;
  return Error{EINVAL, fmt::format("{}={} in the environment is not a number", name,
                                   escaped(text == nullptr ? "" : text))};
}

// "WORLD_SIZE=16 and LOCAL_WORLD_SIZE=8" where the first is more than the second.
std::string more_than(const char* all, const char* here) {
  const auto a = number_in(all);
  const auto h = number_in(here);
  return a && h && *a > *h ? fmt::format("{}={} and {}={}", all, *a, here, *h) : "";
}

std::string more_than_one(const char* name) {
  const auto nodes = number_in(name);
  return nodes && *nodes > 1 ? fmt::format("{}={}", name, *nodes) : "";
}

std::string sign_of_other_nodes() {
  for (const auto& sign : {more_than("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
                           more_than("WORLD_SIZE", "LOCAL_WORLD_SIZE"), more_than_one("SLURM_JOB_NUM_NODES"),
                           more_than_one("SLURM_NNODES"), more_than_one("FLUX_JOB_NNODES")}) {
    if (!sign.empty()) return sign;
  }
  return "";
}

}  // namespace

Result<uint32_t> node_rank_from_environment() {
  for (const char* name : {"GROUP_RANK", "JOB_COMPLETION_INDEX"}) {
    if (has_variable(name)) return need_number(name);
  }
  return Error{EINVAL,
               "--job needs --rank R, this node's number from 0 on: neither GROUP_RANK (torchrun) nor "
               "JOB_COMPLETION_INDEX (Kubernetes) is in the environment"};
}

Result<uint32_t> node_count_from_environment() {
  if (has_variable("GROUP_WORLD_SIZE")) return need_number("GROUP_WORLD_SIZE");
  if (has_variable("WORLD_SIZE") && has_variable("LOCAL_WORLD_SIZE")) {
    const auto all = need_number("WORLD_SIZE");
    if (!all) return all;
    const auto here = need_number("LOCAL_WORLD_SIZE");
    if (!here) return here;
    if (*here > 0 && *all >= *here && *all % *here == 0) return *all / *here;
    return Error{EINVAL, fmt::format("WORLD_SIZE={} is no multiple of LOCAL_WORLD_SIZE={}: give --nodes N",
                                     *all, *here)};
  }
  return Error{EINVAL,
               "--job needs --nodes N, the number of nodes: neither GROUP_WORLD_SIZE nor WORLD_SIZE and "
               "LOCAL_WORLD_SIZE (torchrun) are in the environment"};
}

std::string way_to_a_job() {
  std::string launcher = "MPICH's mpiexec or srun --mpi=pmi2";
  if (has_variable("SLURM_JOB_ID")) launcher = "srun --mpi=pmi2";
  if (has_variable("FLUX_JOB_ID")) launcher = "flux run -o pmi=simple";
  return fmt::format("start the mounts with {}, or give each --job HOST:PORT", launcher);
}

std::string hint_at_other_nodes() {
  const std::string sign = sign_of_other_nodes();
  if (sign.empty()) return "";
  return fmt::format(
      "this node has a cache of its own, though {} tells of other nodes: {} (--peers off if that is "
      "meant)",
      sign, way_to_a_job());
}

}  // namespace clairfs
