#include "fs/control/history.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

HistoryRow row_at(double seconds) {
  HistoryRow row;
  row.seconds = seconds;
  row.pfs_bytes = static_cast<uint64_t>(seconds) * 1000;
  return row;
}

}  // namespace

TEST_CASE("a history is read back as it was") {
  History history;
  const HistoryRow row{1.5, 1, 2, 3, 4, 5, 1ULL << 60, 0.25, 7};
  history.add(row);
  const auto rows = parse_history(history.csv());
  REQUIRE(rows);
  CHECK(*rows == std::vector<HistoryRow>{row});
}

TEST_CASE("a long history covers all of it, in ever longer steps") {
  History history;
  double now = 0;
  for (int at = 0; at < 5000; ++at) now += std::chrono::duration<double>(history.add(row_at(now))).count();
  const auto rows = parse_history(history.csv());
  REQUIRE(rows);
  CHECK(rows->size() <= 1024);
  CHECK(rows->size() >= 512);
  CHECK(rows->front().seconds == 0);
  CHECK(rows->back().seconds > 0.99 * now - 512);
  const double step = (*rows)[1].seconds - (*rows)[0].seconds;
  for (size_t at = 1; at < rows->size(); ++at) CHECK((*rows)[at].seconds - (*rows)[at - 1].seconds == step);
}

TEST_CASE("what is no history is not taken for one") {
  CHECK(!parse_history(""));
  CHECK(!parse_history("seconds\n1\n"));
  History history;
  history.add(row_at(1));
  CHECK(!parse_history(history.csv() + "1,2\n"));
  CHECK(parse_history(History().csv())->empty());
}

TEST_CASE("the figures are those of the metrics") {
  Metrics metrics;
  metrics.bytes_nvme.add(5);
  metrics.pfs_bytes.add(6);
  metrics.stall_ns.add(2'000'000'000);
  const HistoryRow row = history_row(metrics, 3, 4);
  CHECK(row.nvme_bytes == 5);
  CHECK(row.source_bytes == 6);
  CHECK(row.stall_seconds == 2);
  CHECK(row.ahead_samples == 4);
}
