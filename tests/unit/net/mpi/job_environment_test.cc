#include "net/mpi/job_environment.h"

#include <cerrno>
#include <cstdlib>
#include <map>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// The environment of a node, for a scope.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() { clear(); }

 private:
  static void clear() {
    for (const char* name :
         {"GROUP_RANK", "GROUP_WORLD_SIZE", "JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
          "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "FLUX_JOB_ID", "FLUX_JOB_NNODES"}) {
      ::unsetenv(name);
    }
  }
};

using Variables = std::map<std::string, std::string>;

std::string hint(const Variables& variables) {
  const Environment environment(variables);
  return hint_at_other_nodes();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("torchrun and Kubernetes tell a node's rank") {
  const auto rank = [](const Variables& variables) {
    const Environment environment(variables);
    return node_rank_from_environment();
  };
  CHECK(*rank({{"GROUP_RANK", "3"}}) == 3);
  CHECK(*rank({{"JOB_COMPLETION_INDEX", "5"}}) == 5);
  CHECK(*rank({{"GROUP_RANK", "0"}, {"JOB_COMPLETION_INDEX", "5"}}) == 0);
  CHECK(has(rank({}).error().message, "--rank R"));
  CHECK(has(rank({{"GROUP_RANK", "one"}}).error().message, "GROUP_RANK=one"));
}

TEST_CASE("torchrun tells how many nodes there are") {
  const auto nodes = [](const Variables& variables) {
    const Environment environment(variables);
    return node_count_from_environment();
  };
  CHECK(*nodes({{"GROUP_WORLD_SIZE", "4"}}) == 4);
  CHECK(*nodes({{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}}) == 2);
  CHECK(has(nodes({}).error().message, "--nodes N"));
  CHECK(has(nodes({{"WORLD_SIZE", "16"}}).error().message, "--nodes N"));
  for (const char* here : {"0", "7", "32"})
    CHECK(nodes({{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", here}}).error().code == EINVAL);
}

TEST_CASE("signs of other nodes are named, with the way to a job") {
  CHECK(hint({}).empty());
  CHECK(hint({{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}}).empty());
  CHECK(hint({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "1"}}).empty());
  CHECK(hint({{"WORLD_SIZE", "16"}}).empty());  // of how many nodes, nobody says
  const std::string torchrun = hint({{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}});
  CHECK(has(torchrun, "WORLD_SIZE=16 and LOCAL_WORLD_SIZE=8"));
  CHECK(has(torchrun, "--job HOST:PORT"));
  CHECK_FALSE(has(torchrun, "\n"));
  CHECK(has(hint({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "4"}}), "srun --mpi=pmi2"));
  CHECK(has(hint({{"SLURM_NNODES", "4"}}), "SLURM_NNODES=4"));
  CHECK(has(hint({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
            "OMPI_COMM_WORLD_SIZE=4"));
  CHECK(has(hint({{"FLUX_JOB_ID", "f1"}, {"FLUX_JOB_NNODES", "4"}}), "flux run -o pmi=simple"));
}
