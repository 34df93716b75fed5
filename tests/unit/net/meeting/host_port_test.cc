#include "net/meeting/host_port.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("hosts and ports are read, and written as they were") {
  for (const char* text : {"node0:5200", "10.0.0.1:1", "[fd00::1]:65535", "job-0.job.ns.svc:80"}) {
    const auto at = parse_host_port(text);
    REQUIRE(at);
    CHECK(at->text() == text);
  }
  CHECK(parse_host_port("[fd00::1]:5200")->host == "fd00::1");
}

TEST_CASE("what is no host and port is refused") {
  for (const char* text :
       {"", ":", "node0", "node0:", ":5200", "node0:0", "node0:65536", "node0:-1", "node0:5x", "fd00::1:5200",
        "[]:5200", "http://node0:80", "a b:5200", "tcp:node0:5200"}) {
    INFO(text);
    const auto at = parse_host_port(text);
    REQUIRE_FALSE(at);
    CHECK(at.error().message.find("HOST:PORT") != std::string::npos);
  }
}
