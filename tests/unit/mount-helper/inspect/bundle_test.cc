#include "mount-helper/inspect/bundle.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("of a log line that may name files only what cannot is left") {
  const std::string time = "2026-11-24T20:00:00.123+00:00 ";
  CHECK(anonymous_log_line(
            time + "info clairfs 0.1.0 (461f177a3b2c-dirty) pid 17 user 0 on host1, Linux 6: /a on /b") ==
        time + "info clairfs 0.1.0 (461f177a3b2c-dirty) pid 17 user 0 ...");
  CHECK(anonymous_log_line(time + "warning secret name.png was written to") == time + "warning (...)");
  CHECK(anonymous_log_line(time + "info mounted /pfs/secret on /mnt") == time + "info mounted ...");
  CHECK(anonymous_log_line(time + "info [node 3] plan secret: 7 samples") == time + "info [node] plan ...");
  CHECK(anonymous_log_line("a file name\nwith a newline") == "(a line that may name files)");
  CHECK(anonymous_log_line("") == "(a line that may name files)");
}

TEST_CASE("options stay, but for paths, hosts and patterns") {
  CHECK(
      anonymous_config("ram=1024\nnvme=/secret/a:b:4096\nnvme=/secret/x\nrecord-chunk=secret*=h=65536\n"
                       "peers=on\njob=secret:7\ncatalog-dir=/secret\nlog-file=/secret\nsecret=1\nsecret\n") ==
      "ram=1024\nnvme=(...):4096\nnvme=(...)\nrecord-chunk=(...)=65536\npeers=on\njob=(...)\n"
      "catalog-dir=(...)\nlog-file=(...)\n");
}

TEST_CASE("figures stay, and names go") {
  const std::string text =
      anonymous_stats(R"({"source": "/secret", "mountpoint": "/secret", "pfs": {"bytes": 7},
      "daemon": {"pid": 1, "control_socket": "clairfs.secret"},
      "troubles": [{"kind": "reads_failed", "count": 2, "text": "secret", "first": "secret"}, 3],
      "plan_list": [{"name": "secret", "text": "root=secret", "plan": {"root": "secret"}, "state": "following",
                     "divergence": {"seen": "secret"}, "followed_instead": "root=secret"}, "x"],
      "job": {"peers": {"0": {"host": "secret"}}}})");
  CHECK(text.find("secret") == std::string::npos);
  const auto json = nlohmann::json::parse(text);
  CHECK(json["pfs"]["bytes"] == 7);
  CHECK(json["troubles"][0]["kind"] == "reads_failed");
  CHECK(json["troubles"][0]["count"] == 2);
  CHECK(json["plan_list"][0]["state"] == "following");
  CHECK(anonymous_stats("secret") == "(no JSON)");
  CHECK(anonymous_stats(R"(["secret"])") == "(no JSON)");
}
