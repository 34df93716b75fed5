#include "plan/inference/readers/reader_facts.h"

#include <string>

#include <unistd.h>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("the environment of torchrun, Slurm and Lightning tells of the job") {
  const auto facts = [](std::string_view text) { return facts_of_environment(text); };
  using namespace std::string_view_literals;
  CHECK(facts("RANK=3\0WORLD_SIZE=8\0PL_GLOBAL_SEED=7\0"sv) == ReaderFacts{8, {7}});
  CHECK(facts("SLURM_NTASKS=16\0SEED=5\0"sv) == ReaderFacts{16, {5}});
  CHECK(facts("SLURM_NTASKS=16\0WORLD_SIZE=4\0"sv).world == 4);
  CHECK(facts("WORLD_SIZE=4\0SLURM_NTASKS=16\0"sv).world == 4);
  CHECK(facts("SEED=5\0RANDOM_SEED=5\0"sv).seeds == std::vector<uint64_t>{5});
}

TEST_CASE("what is no number, no job or no environment tells nothing") {
  using namespace std::string_view_literals;
  for (const std::string_view text : {""sv, "\0\0\0"sv, "WORLD_SIZE"sv, "WORLD_SIZE=\0"sv, "WORLD_SIZE=0"sv,
                                      "WORLD_SIZE=99999999999"sv, "WORLD_SIZE=-3"sv, "SEED=abc\0=1"sv}) {
    CHECK(facts_of_environment(text) == ReaderFacts());
  }
  CHECK(facts_of_reader(ThreadId(0)) == ReaderFacts());
  CHECK(facts_of_reader(ThreadId(UINT32_MAX)) == ReaderFacts());
  (void)facts_of_reader(ThreadId(static_cast<uint32_t>(::getpid())));  // whatever it is
}
