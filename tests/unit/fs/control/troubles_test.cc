#include "fs/control/troubles.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

std::optional<Trouble> find(const std::vector<Trouble>& troubles, const std::string& code) {
  const auto found =
      std::find_if(troubles.begin(), troubles.end(), [&](const Trouble& t) { return t.code == code; });
  return found == troubles.end() ? std::nullopt : std::optional(*found);
}

const std::vector<PlanBrief> kPlans = {{"train", TrackerState::suspended, 0, "left the plan at x.png"},
                                       {"val", TrackerState::following, 9, ""}};

}  // namespace

TEST_CASE("where nothing is wrong there is no trouble") {
  const Metrics metrics;
  CHECK(list_troubles(metrics, {kPlans[1]}, {}).empty());
  CHECK(without_names(metrics, {kPlans[1]}).empty());
}

TEST_CASE("a read of a changed file is one trouble, and not a failed read besides") {
  Metrics metrics;
  metrics.reads_failed.add(5);
  metrics.reads_refused.add(4);
  metrics.pfs_stale_files.add(4);
  const auto troubles =
      list_troubles(metrics, {}, {.failed_read = "f (Input/output error)", .refused_read = "g"});
  REQUIRE(troubles.size() == 2);
  CHECK(troubles[0].text == "1 read failed");
  CHECK(troubles[0].first == "f (Input/output error)");
  CHECK(troubles[1].count == 4);
  CHECK(troubles[1].first == "g");
}

TEST_CASE("a suspended plan is a trouble with its reason, of which others hear the number alone") {
  const Metrics metrics;
  const auto told = find(list_troubles(metrics, kPlans, {}), "plan_suspended");
  REQUIRE(told);
  CHECK(told->text.find("plan train is suspended") == 0);
  CHECK(told->text.find("nothing is fetched ahead for it") != std::string::npos);
  CHECK(told->first == "left the plan at x.png");
  const auto others = find(without_names(metrics, kPlans), "plan_suspended");
  REQUIRE(others);
  CHECK(others->text == "1 plan is suspended");
  CHECK(others->first.empty());
}

TEST_CASE("a suspended plan says what is followed instead") {
  PlanBrief plan = kPlans[0];
  plan.followed_instead = "name=auto root=a\nb seed=43";
  const auto told = find(list_troubles(Metrics(), {plan}, {}), "plan_suspended");
  REQUIRE(told);
  CHECK(told->text.find("followed instead: name=auto root=a\\nb seed=43") != std::string::npos);
  CHECK(told->text.find("nothing is fetched") == std::string::npos);
  CHECK(find(without_names(Metrics(), {plan}), "plan_suspended")->text == "1 plan is suspended");
}

TEST_CASE(
    "a plan that could not be made is a trouble with the reason, of which others hear the number alone") {
  const Metrics metrics;
  PlanBrief first{"train", {}, 0, "", false, PlanBrief::Making::failed, "no such file: x"};
  PlanBrief replacing{"val", TrackerState::following, 9, "", true, PlanBrief::Making::failed, "y"};
  const PlanBrief indexing{"test", {}, 0, "", false, PlanBrief::Making::indexing};
  const auto troubles = list_troubles(metrics, {first, replacing, indexing}, {});
  REQUIRE(troubles.size() == 2);
  CHECK(troubles[0].code == "plan_failed");
  CHECK(troubles[0].text == "plan train could not be made: nothing is fetched ahead for it");
  CHECK(troubles[0].first == "no such file: x");
  CHECK(troubles[1].text == "plan val could not be made: what it was to replace stays in force");
  const auto others = without_names(metrics, {first, replacing, indexing});
  REQUIRE(others.size() == 1);
  CHECK(others[0].code == "plan_failed");
  CHECK(others[0].text == "2 plans could not be made");
  CHECK(others[0].first.empty());
}

TEST_CASE("a file that only fetches ahead found changed is named") {
  Metrics metrics;
  metrics.pfs_stale_files.add(2);
  const auto troubles = list_troubles(metrics, {}, {.stale = "a/b"});
  REQUIRE(troubles.size() == 1);
  CHECK(troubles[0].code == "fetches_refused");
  CHECK(troubles[0].first == "a/b");
}

TEST_CASE("every trouble has its name for the owner, and none for others") {
  Metrics metrics;
  metrics.reads_failed.add();
  metrics.fuse_dirty_writes.add(2);
  metrics.catalog_unreadable.set(1);
  metrics.pfs_errors.add(2);
  metrics.pfs_silent.set(1);
  metrics.nvme_silent.set(1);
  metrics.nvme_full.set(2);
  metrics.nvme_cut_short.set(2);
  metrics.nvme_disabled.set(1);
  metrics.nvme_errors.add();
  metrics.nvme_checksum_failures.add(3);
  const TroubleNames names{.unreadable = "folder",
                           .failed_read = "file",
                           .dirty_writer = "file, by process 7 (python3)",
                           .source_error = "a (Input/output error)",
                           .silent = "b, for 12.00 s",
                           .full_disks = {"/nv1", "/nv2"},
                           .nvme_silent = {"/nv0: no answer for 12.00 s"},
                           .nvme_cut_short = {"/nv3: deleted", "/nv4: why"},
                           .nvme_errors = {"/nv5: write a chunk: error"},
                           .nvme_damaged = {"/nv5: wrong checksum"},
                           .nvme_disabled = {"/nv5: 8 failed"}};
  const auto troubles = list_troubles(metrics, {}, names);
  CHECK(find(troubles, "entries_unreadable")->first == "in folder");
  CHECK(find(troubles, "dirty_writes")->first == "file, by process 7 (python3)");
  CHECK(find(troubles, "source_errors")->first == "a (Input/output error)");
  CHECK(find(troubles, "source_silent")->first == "b, for 12.00 s");
  CHECK(find(troubles, "source_silent")->text == "1 request to the source has had no answer yet");
  CHECK(find(troubles, "nvme_silent")->first == "/nv0: no answer for 12.00 s");
  CHECK(find(troubles, "nvme_full")->first == "/nv1, /nv2");
  CHECK(find(troubles, "nvme_full")->text.find("full") != std::string::npos);
  CHECK(find(troubles, "nvme_cut_short")->first == "/nv3: deleted; /nv4: why");
  CHECK(find(troubles, "nvme_cut_short")->text.find("full") == std::string::npos);
  CHECK(find(troubles, "nvme_errors")->first == "/nv5: write a chunk: error");
  CHECK(find(troubles, "nvme_checksum_failures")->first == "/nv5: wrong checksum");
  CHECK(find(troubles, "nvme_disabled")->first == "/nv5: 8 failed");
  CHECK(find(troubles, "nvme_disabled")->text == "1 NVMe directory is switched off: see the log");
  for (const Trouble& trouble : troubles) {
    CAPTURE(trouble.code);
    CHECK(!trouble.first.empty());
  }
  const auto others = without_names(metrics, {});
  CHECK(others.size() == troubles.size());
  for (const Trouble& trouble : others) CHECK(trouble.first.empty());
}
