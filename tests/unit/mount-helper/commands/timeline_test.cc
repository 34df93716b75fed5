#include "mount-helper/commands/timeline.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Ten seconds: the first half from the source at 1 MiB/s, the second pushed ahead at 4 MiB/s.
std::vector<HistoryRow> ten_seconds() {
  std::vector<HistoryRow> rows(11);
  for (size_t at = 1; at < rows.size(); ++at) {
    rows[at] = rows[at - 1];
    rows[at].seconds = static_cast<double>(at);
    (at <= 5 ? rows[at].pfs_bytes : rows[at].pushed_bytes) += (at <= 5 ? 1U : 4U) << 20;
    rows[at].stall_seconds += at <= 5 ? 3 : 0;
    rows[at].ahead_samples = at <= 5 ? 0 : 1200;
  }
  return rows;
}

}  // namespace

TEST_CASE("a timeline shows rates, what is ahead, and who waits") {
  const std::string picture = timeline(ten_seconds(), "/mnt/data");
  for (const char* words :
       {">/mnt/data: what readers", ">from the PFS<", ">pushed ahead<", ">Samples ahead of the readers<",
        ">Readers that wait for data<", ">seconds since the mount began<", ">MiB/s<", ">samples<",
        ">readers<", ">1,200<", ">3<", ">4<"}) {
    INFO(words);
    CHECK(picture.find(words) != std::string::npos);
  }
  CHECK(picture.find("from NVMe") == std::string::npos);  // never
  // Of 10 s on 680 pixels the first second ends at 90 + 68; 4 MiB/s are the top of the first chart.
  CHECK(picture.find(R"(cx="158.00")") != std::string::npos);
  CHECK(picture.find(R"(cx="770.00" cy="50.00")") != std::string::npos);
}

TEST_CASE("a timeline of hours is in minutes, and one of nothing is a picture all the same") {
  auto rows = ten_seconds();
  for (HistoryRow& row : rows) row.seconds *= 600;
  CHECK(timeline(rows, "m").find("minutes since") != std::string::npos);
  CHECK(timeline({}, "m").find("</svg>") != std::string::npos);
  CHECK(timeline({HistoryRow()}, "m").find("</svg>") != std::string::npos);
}
