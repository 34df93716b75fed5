#include "mount-helper/commands/top_report.h"

#include <algorithm>

#include "tests/support/catch.h"

using namespace clairfs;
using nlohmann::json;

namespace {

json stats(uint64_t ram, uint64_t pfs, uint64_t passed) {
  return {
      {"daemon", {{"control_socket", "one"}}},
      {"mountpoint", "/mnt"},
      {"source", "/pfs"},
      {"bytes", {{"ram", ram}, {"nvme", 0}, {"peer", 0}, {"pfs", pfs}}},
      {"stall_seconds", static_cast<double>(pfs) * 1e-6},
      {"pfs", {{"bytes", pfs * 10}, {"opens", pfs}, {"in_flight", 3}}},
      {"tiers", {{"ram", {{"bytes", 512}, {"capacity", 1024}}}, {"nvme", {{"bytes", 0}, {"capacity", 0}}}}},
      {"plan_list",
       {{{"name", "default"},
         {"text", "seed=1"},
         {"state", "following"},
         {"plan", {{"ranks_per_node", 2}, {"workers", 4}}},
         {"epoch", 3},
         {"high_water", 70},
         {"epoch_length", 100},
         {"samples", 100},
         {"bytes", 1000000},
         {"ahead", 50},
         {"passed", passed}}}}};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

}  // namespace

TEST_CASE("what plans passed and no request asked for came from the page cache") {
  // 100 samples of 10,000 bytes were passed; of these 200,000 bytes were requested.
  const ByteSources bytes = byte_sources(stats(0, 0, 100), stats(150000, 50000, 200));
  CHECK(bytes.page_cache_known);
  CHECK(bytes.page_cache == Approx(800000));
  CHECK(bytes.all() == Approx(1000000));
  const std::string text = joined(top_lines(stats(0, 0, 100), stats(150000, 50000, 200), 2));
  CHECK_THAT(text, Contains("page cache 80.0 %  RAM 15.0 %  NVMe 0.0 %  PFS 5.0 %"));
}

TEST_CASE("without progress of a plan the page cache's share is not known") {
  CHECK(!byte_sources(stats(0, 0, 100), stats(150000, 0, 100)).page_cache_known);
  json after = stats(150000, 0, 100);
  after["plan_list"] = json::array();
  const std::string text = joined(top_lines(stats(0, 0, 100), after, 1));
  CHECK_THAT(text, Contains("page cache not known  RAM 100.0 %") && Contains("no plan"));
}

TEST_CASE("more requested than passed leaves nothing to the page cache") {
  CHECK(byte_sources(stats(0, 0, 0), stats(5000000, 0, 10)).page_cache == 0);
}

TEST_CASE("rates are per second of the time between the readings") {
  const std::string text = joined(top_lines(stats(0, 0, 100), stats(0, 800000, 300), 4));
  CHECK_THAT(text,
             Contains("plan default  following  epoch 3  70 of 100  50 samples/s  ahead 50 samples (1.0 s)"));
  CHECK_THAT(text, Contains("PFS     1.9 MiB/s  200000 opens/s  3 at once"));
  CHECK_THAT(text, Contains("stall   2.5 % of the time of 8 readers"));
  CHECK_THAT(text, Contains("filled  RAM 512 B of 1.0 KiB (50 %)\n"));
}

TEST_CASE("programs get the same as one object in a line") {
  json after = stats(150000, 50000, 200);
  after["troubles"] = {
      {{"kind", "reads_failed"}, {"count", 2}, {"text", "2 reads failed"}, {"first", "a\nb"}}};
  const std::string line = top_json(stats(0, 0, 100), after, 2, 1e9 + 0.5);
  CHECK(line.find('\n') == std::string::npos);
  const json report = json::parse(line);
  CHECK(report["time"] == 1e9 + 0.5);
  CHECK(report["span_seconds"] == 2);
  CHECK(report["mountpoint"] == "/mnt");
  CHECK(report["read_bytes_per_second"] ==
        json({{"page_cache", 400000}, {"ram", 75000}, {"nvme", 0}, {"peers", 0}, {"pfs", 25000}}));
  CHECK(report["source_bytes_per_second"] == 250000);
  CHECK(report["tier_bytes"]["ram"] == 512);
  CHECK(report["plans"].size() == 1);
  CHECK(report["plans"][0]["samples_per_second"] == 50);
  CHECK(report["plans"][0]["state"] == "following");
  CHECK(report["troubles"][0]["first"] == "a\nb");
  CHECK(json::parse(top_json(stats(0, 0, 7), stats(0, 0, 7), 1, 0))["read_bytes_per_second"]["page_cache"]
            .is_null());
  CHECK(json::parse(top_json(json::object(), {{"plan_list", {"text", nullptr}}}, 0, 0))["plans"].empty());
}

TEST_CASE("a plan that is new, or was replaced, has no rate yet") {
  json before = stats(0, 0, 0);
  before["plan_list"][0]["text"] = "seed=2";
  CHECK_THAT(joined(top_lines(before, stats(0, 0, 1000), 1)), Contains(" 0 samples/s"));
  before["plan_list"] = json::array();
  CHECK_THAT(joined(top_lines(before, stats(0, 0, 1000), 1)), Contains(" 0 samples/s"));
  CHECK_THAT(joined(top_lines(stats(0, 0, 1000), stats(0, 0, 5), 1)),
             Contains(" 0 samples/s"));  // begun anew
}

TEST_CASE("a suspended plan says why, and names stay on their line") {
  json after = stats(0, 0, 0);
  after["plan_list"][0]["state"] = "suspended";
  after["plan_list"][0]["divergence"] = {{"text", "epoch 0: expected a\nb, saw c\033[J: matches epoch 3"}};
  const auto lines = top_lines(stats(0, 0, 0), after, 1);
  CHECK_THAT(lines.back(), Contains("expected a\\nb, saw c\\x1b[J: matches epoch 3"));
  CHECK(std::none_of(lines.begin(), lines.end(),
                     [](const auto& l) { return l.find('\n') != std::string::npos; }));
}

TEST_CASE("a suspended plan says what is followed instead") {
  json after = stats(0, 0, 0);
  after["plan_list"][0]["state"] = "suspended";
  after["plan_list"][0]["divergence"] = {{"text", "epoch 0"}};
  after["plan_list"][0]["followed_instead"] = "name=auto root=a\nb seed=43";
  CHECK_THAT(top_lines(stats(0, 0, 0), after, 1).back(),
             Contains("left the plan at epoch 0; followed instead: name=auto root=a\\nb seed=43"));
}

TEST_CASE("troubles are marked, and a suspended plan's stands with its plan alone") {
  json after = stats(0, 0, 0);
  after["plan_list"][0]["state"] = "suspended";
  after["plan_list"][0]["divergence"] = {{"text", "epoch 0"}};
  after["troubles"] = {
      {{"kind", "plan_suspended"}, {"count", 1}, {"text", "plan default is suspended"}},
      {{"kind", "reads_failed"}, {"count", 2}, {"text", "2 reads failed"}, {"first", "a\nb"}}};
  const auto lines = top_lines(stats(0, 0, 0), after, 1);
  REQUIRE(lines.size() >= 2);
  CHECK(lines.back() == "! 2 reads failed: a\\nb");
  CHECK(lines[lines.size() - 2] == "! left the plan at epoch 0");
  after["plan_list"] = json::array();  // as others see it
  const auto others = joined(top_lines(stats(0, 0, 0), after, 1));
  CHECK_THAT(others, Contains("! plan default is suspended\n"));
}

TEST_CASE("a plan that could not be made says why, marked, and once") {
  json after = stats(0, 0, 0);
  after["plan_list"][0] = {{"name", "default"}, {"state", "failed"}, {"error", "read a\nb: no"}};
  after["troubles"] = {{{"kind", "plan_failed"}, {"count", 1}, {"text", "plan default could not be made"}}};
  const auto lines = top_lines(stats(0, 0, 0), after, 1);
  REQUIRE(lines.size() >= 2);
  CHECK(lines.back() == "! read a\\nb: no");
  CHECK(lines[lines.size() - 2] == "plan default  failed");
}

TEST_CASE("long lines are wrapped between fields, and never inside a character") {
  CHECK(wrapped("short", 80) == std::vector<std::string>{"short"});
  const auto parts = wrapped("plan default  following  epoch 3  70 of 100  50 samples/s", 30);
  CHECK(parts == std::vector<std::string>{"plan default  following", "        epoch 3  70 of 100",
                                          "        50 samples/s"});
  std::string umlauts;
  for (int i = 0; i < 40; ++i) umlauts += "\u00e4";
  std::string back;
  for (const std::string& part : wrapped(umlauts, 21)) {
    CHECK(part.size() <= 21);
    back += part.substr(part.find_first_not_of(' '));
  }
  CHECK(back == umlauts);
  for (const auto& part : wrapped(std::string(100, 'x') + " " + std::string(100, 'y'), 3))
    CHECK(part.size() <= 20);
}

TEST_CASE("readings that lack fields do no harm") {
  CHECK(!top_lines(json::object(), json::object(), 1).empty());
  CHECK(
      !top_lines(json::object(), {{"plan_list", {{{"name", 3}}, "text", nullptr}}, {"bytes", 7}}, 0).empty());
  CHECK(!top_lines(stats(1, 1, 1), json::object(), 1).empty());
}

TEST_CASE("readings of two daemons cannot be subtracted") {
  json other = stats(0, 0, 0);
  other["daemon"]["control_socket"] = "two";
  CHECK(same_daemon(stats(0, 0, 0), stats(1, 1, 1)));
  CHECK(!same_daemon(stats(0, 0, 0), other));
}
