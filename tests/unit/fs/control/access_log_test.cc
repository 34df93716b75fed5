#include "fs/control/access_log.h"

#include <cerrno>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

std::vector<std::string> lines_of(const AccessLog& log) {
  std::istringstream in(log.text());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("the access log has a line for each READ") {
  const auto catalog = made_up_catalog({100, 200});
  AccessLog log(*catalog);
  CHECK(log.text().empty());
  const auto time = std::chrono::system_clock::time_point(std::chrono::microseconds(1'700'000'000'000'042));
  log.record({time, FileId(1), 4096, 131072, Origin::nvme, false, 0, std::chrono::microseconds(250), 4321});
  log.record({time, FileId(2), 0, 200, Origin::pfs, true, ESTALE, std::chrono::milliseconds(3)});
  const auto lines = lines_of(log);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("2023-11-14T22:13:20.000042Z read "));
  CHECK(lines[0].find("f10000 offset=4096 length=131072 from=nvme waited=") != std::string::npos);
  CHECK(lines[0].ends_with(" pid=4321"));
  CHECK(lines[1].find("f10001 offset=0 length=200 from=pfs joined waited=") != std::string::npos);
  CHECK(lines[1].find(" pid=0 error=Stale file handle") != std::string::npos);
}

TEST_CASE("the access log keeps the last thousand, oldest first") {
  const auto catalog = made_up_catalog({100});
  AccessLog log(*catalog);
  const uint64_t records = GENERATE(1023U, 1024U, 1025U, 3000U);
  for (uint64_t i = 0; i < records; ++i) log.record({{}, FileId(1), i, 1});
  const auto lines = lines_of(log);
  const uint64_t kept = std::min<uint64_t>(records, 1024);
  REQUIRE(lines.size() == kept);
  CHECK(lines.front().find(fmt::format("offset={} ", records - kept)) != std::string::npos);
  CHECK(lines.back().find(fmt::format("offset={} ", records - 1)) != std::string::npos);
}

TEST_CASE("where bytes came from has a word") {
  CHECK(origin_name(Origin::ram) == std::string("ram"));
  CHECK(origin_name(Origin::peer) == std::string("peer"));
}
