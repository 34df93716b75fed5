#include "cache/base/units.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("sizes are read as people write them") {
  CHECK(parse_size("0").value() == 0);
  CHECK(parse_size("4096").value() == 4096);
  CHECK(parse_size("512M").value() == 512ULL << 20);
  CHECK(parse_size("20GiB").value() == 20ULL << 30);
  CHECK(parse_size("1.5 gb").value() == 3ULL << 29);
  CHECK(parse_size("2t").value() == 2ULL << 40);
}

TEST_CASE("what is not a size is refused with an example") {
  for (const char* text : {"", "M", "-1", "1X", "1MiBs", "nan", "inf", "1e30", "1 2", "9999999T"}) {
    const auto parsed = parse_size(text);
    INFO(text);
    REQUIRE(!parsed);
    CHECK(parsed.error().code == EINVAL);
    CHECK(parsed.error().message.find("20GiB") != std::string::npos);
  }
}

TEST_CASE("sizes and durations are printed with a fitting unit") {
  CHECK(format_size(17) == "17 B");
  CHECK(format_size(1536) == "1.5 KiB");
  CHECK(format_size(3ULL << 30) == "3.0 GiB");
  CHECK(format_duration(std::chrono::microseconds(120)) == "120 us");
  CHECK(format_duration(std::chrono::milliseconds(1250)) == "1.25 s");
  CHECK(format_uptime(std::chrono::milliseconds(59'999)) == "00:00:59");
  CHECK(format_uptime(std::chrono::hours(26) + std::chrono::seconds(189)) == "26:03:09");
}
