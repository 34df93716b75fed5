#include "net/meeting/pmi_relay.h"

#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("MPI is told what a launcher tells") {
  PmiRelay relay({NodeId(1), 3});
  const auto answer = [&](const std::string& line) {
    const auto outcome = relay.from_mpi(line);
    CHECK(outcome.to_host.empty());
    return outcome.to_mpi;
  };
  CHECK(answer("cmd=init pmi_version=1 pmi_subversion=1") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  CHECK(answer("cmd=get_maxes").starts_with("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"));
  CHECK(answer("cmd=get_appnum").starts_with("cmd=appnum appnum=0"));
  CHECK(answer("cmd=get_my_kvsname").starts_with("cmd=my_kvsname kvsname="));
  CHECK(answer("cmd=get_universe_size").starts_with("cmd=universe_size size=3"));
  CHECK(answer("cmd=get kvsname=clairfs key=PMI_process_mapping").find("value=(vector,(0,3,1))") !=
        std::string::npos);
  CHECK(answer("cmd=finalize").starts_with("cmd=finalize_ack"));
  CHECK(answer("cmd=spawn nprocs=1").find("rc=-1") != std::string::npos);
}

TEST_CASE("what is put goes to the others with the barrier, and theirs comes with its end") {
  PmiRelay relay({NodeId(0), 2});
  CHECK(relay.from_mpi("cmd=put kvsname=clairfs key=card-0 value=a=b c value=d").to_mpi ==
        "cmd=put_result rc=0 msg=success\n");
  CHECK(relay.from_mpi("cmd=get kvsname=clairfs key=card-0").to_mpi ==
        "cmd=get_result rc=0 msg=success value=a=b c value=d\n");
  CHECK(relay.from_mpi("cmd=get kvsname=clairfs key=card-1").to_mpi.find("rc=-1") != std::string::npos);

  auto barrier = relay.from_mpi("cmd=barrier_in");
  CHECK(barrier.to_mpi.empty());
  CHECK(barrier.to_host == "put card-0 a=b c value=d\nbarrier\n");
  CHECK(relay.in_barrier());
  CHECK(relay.from_host("put card-1 theirs, with blanks").to_mpi.empty());
  CHECK(relay.from_host("barrier").to_mpi == "cmd=barrier_out rc=0\n");
  CHECK_FALSE(relay.in_barrier());
  CHECK(relay.from_mpi("cmd=get kvsname=clairfs key=card-1").to_mpi ==
        "cmd=get_result rc=0 msg=success value=theirs, with blanks\n");

  barrier = relay.from_mpi("cmd=barrier_in");
  CHECK(barrier.to_host == "barrier\n");  // each put once
  CHECK(relay.from_host("barrier").to_mpi == "cmd=barrier_out rc=0\n");
  CHECK(relay.from_host("barrier").to_mpi.empty());  // nobody waits
}

TEST_CASE("garbage does the relay no harm") {
  PmiRelay relay({NodeId(0), 2});
  std::mt19937 chance(1);
  const std::string letters = "cmd=putgekyvalubrin_0 =\t\\%s";
  for (int i = 0; i < 20'000; ++i) {
    std::string line;
    for (unsigned n = chance() % 40; n > 0; --n) line += letters[chance() % letters.size()];
    for (const auto& outcome :
         {relay.from_mpi(line), relay.from_host(line), relay.from_host("put " + line)}) {
      CHECK((outcome.to_mpi.empty() || outcome.to_mpi.ends_with('\n')));
      CHECK((outcome.to_host.empty() || outcome.to_host.ends_with("barrier\n")));
    }
  }
}
