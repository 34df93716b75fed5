#include "net/mpi/network_choice.h"

#include <cstdlib>
#include <optional>

#include <dlfcn.h>

#include "net/mpi/library.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

struct Chosen {
  std::optional<std::string> list;  // of UCX_TLS
  std::string text;
  bool warned = false;
  bool tuned = false;
  bool shares_memory = false;  // MPICH itself, between nodes of one machine
  bool tcp_alone = false;
};

Chosen choose(const std::string& wanted, const char* users) {
  for (const char* name : {"UCX_TLS", "UCX_RNDV_THRESH", "UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE",
                           "UCX_ZCOPY_THRESH", "MPIR_CVAR_NOLOCAL"})
    ::unsetenv(name);
  if (users != nullptr) ::setenv("UCX_TLS", users, 1);
  CapturedLog log;
  Chosen chosen;
  chosen.text = choose_network(wanted, log.logger());
  if (const char* list = std::getenv("UCX_TLS")) chosen.list = list;
  chosen.warned = log.has("may end this node, or cut it off, when another one dies");
  chosen.tuned = std::getenv("UCX_ZCOPY_THRESH") != nullptr;
  chosen.shares_memory = std::getenv("MPIR_CVAR_NOLOCAL") == nullptr;
  chosen.tcp_alone = takes_tcp_alone();
  ::unsetenv("UCX_TLS");
  return chosen;
}

}  // namespace

TEST_CASE("without a choice the network is one on which deaths end nobody else and cut nobody off") {
  const Chosen chosen = choose("", nullptr);
  CHECK(chosen.list == "tcp,self");
  CHECK_FALSE(chosen.warned);
  CHECK(chosen.tuned);
  CHECK_FALSE(chosen.shares_memory);
  CHECK(chosen.text == "--network safe (UCX_TLS=tcp,self)");
}

TEST_CASE("UCX_TLS of the user is honoured") {
  CHECK(choose("", "tcp,self").list == "tcp,self");
  CHECK_FALSE(choose("", "tcp,self").warned);
  const Chosen fast = choose("", "rc,self");
  CHECK(fast.list == "rc,self");
  CHECK(fast.warned);
  CHECK_FALSE(fast.tuned);
  CHECK_FALSE(fast.shares_memory);
  for (const char* shared : {"tcp,self,posix", "tcp,self,sysv", "tcp,sm,self"})
    CHECK(choose("", shared).warned);
  CHECK(fast.text.find("as UCX_TLS is set") != std::string::npos);
}

TEST_CASE("the option wins over UCX_TLS") {
  CHECK(choose("safe", "rc,self").list == "tcp,self");
  CHECK_FALSE(choose("safe", "rc,self").warned);
  const Chosen fast = choose("fast", "tcp,self");
  CHECK_FALSE(fast.list);
  CHECK(fast.warned);
  CHECK(fast.text.find("--network fast (whatever UCX finds)") != std::string::npos);
  CHECK(choose("rc_x,tcp,self", nullptr).list == "rc_x,tcp,self");
  CHECK(choose("rc_x,tcp,self", nullptr).warned);
  CHECK_FALSE(choose("tcp,self", "rc").warned);
}

TEST_CASE("it is known whether nothing but TCP is taken, if MPI is one over UCX", "[mpi_library]") {
  REQUIRE(loaded_mpi().ok());
  const bool over_ucx = ::dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  CHECK(choose("", nullptr).tcp_alone == over_ucx);
  CHECK(choose("safe", "rc,self").tcp_alone == over_ucx);
  for (const char* other : {"fast", "rc_x,tcp,self", "tcp,sm,self", "all"})
    CHECK_FALSE(choose(other, nullptr).tcp_alone);
}

TEST_CASE("what UCX warns of is in the log and nowhere else, if MPI is one over UCX", "[mpi_library]") {
  REQUIRE(loaded_mpi().ok());
  for (const char* name : {"UCX_LOG_LEVEL", "UCX_LOG_FILE"}) ::unsetenv(name);
  CapturedLog log;
  watch_network(log.logger());
  if (void* const ucx = ::dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD)) {
    // As UCX calls it itself. What goes on from the first handler is written by the last, which needs the
    // component.
    using Dispatch = void (*)(const char* file, unsigned line, const char* function, int level,
                              void* component, const char* format, ...);
    const auto dispatch = reinterpret_cast<Dispatch>(::dlsym(ucx, "ucs_log_dispatch"));
    REQUIRE(dispatch != nullptr);
    void* const component = ::dlsym(ucx, "ucs_global_opts");
    const auto say = [&](int level, const char* what) {
      dispatch("x.c", 1, "f", level, component, "%s", what);
    };
    say(1, "an error\n of two lines");
    say(2, "a warning");
    say(3, "a diagnosis");
    say(4, "ep_cfg[1]: tag(tcp/lo tcp/eth0) rma(sysv/memory)");
    CHECK(log.text() == "error: UCX: an error\\n of two lines\nwarning: UCX: a warning\n");
    CHECK(network_taken() == "tcp/lo tcp/eth0");
    forget_log();
    say(2, "another");
  }
  CHECK_FALSE(log.has("another"));
}
