#include "mount-helper/inspect/findings.h"

#include <algorithm>
#include <cerrno>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

FuseFacts well_fuse() {
  FuseFacts facts;
  facts.fusermount = "/usr/bin/fusermount3";
  facts.fusermount_setuid = true;
  return facts;
}

MachineFacts well_machine() {
  MachineFacts facts;
  facts.kernel = "6.1.0-13-amd64";
  facts.memory = 64ULL << 30;
  facts.open_files = 1024;
  facts.catalog_dir = "/home/x/.cache/clairfs";
  facts.catalog_free = 10ULL << 30;
  facts.catalog_writable = true;
  facts.launcher = "/usr/bin/mpiexec";
  return facts;
}

const Finding* about(const std::vector<Finding>& findings, const std::string& subject) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.subject == subject; });
  return found == findings.end() ? nullptr : &*found;
}

void check_bad(const FuseFacts& fuse, const MachineFacts& machine, const std::string& subject,
               const std::string& cure) {
  const auto findings = machine_findings(fuse, machine);
  const Finding* finding = about(findings, subject);
  REQUIRE(finding != nullptr);
  CHECK(finding->kind != Finding::Kind::good);
  CHECK_THAT(finding->cure, Contains(cure));
}

}  // namespace

TEST_CASE("a machine that has everything has no complaint but what users may not do") {
  FuseFacts fuse = well_fuse();
  fuse.user_allow_other = true;
  for (const Finding& finding : machine_findings(fuse, well_machine())) {
    CAPTURE(finding.subject, finding.text);
    CHECK(finding.kind == Finding::Kind::good);
    CHECK(finding.cure.empty());
  }
}

TEST_CASE("what is missing is named with its cure") {
  const FuseFacts fuse = well_fuse();
  MachineFacts machine = well_machine();
  FuseFacts without = fuse;
  without.device_errno = ENOENT;
  check_bad(without, machine, "/dev/fuse", "modprobe fuse");
  without.device_errno = EACCES;
  check_bad(without, machine, "/dev/fuse", "chmod 666");
  without = fuse;
  without.fusermount.clear();
  check_bad(without, machine, "fusermount3", "apt install fuse3");
  without = fuse;
  without.fusermount_setuid = false;
  check_bad(without, machine, "fusermount3", "chmod u+s");
  without = fuse;
  without.no_new_privs = true;
  check_bad(without, machine, "fusermount3", "no-new-privileges");
  check_bad(fuse, machine, "--allow-other", "user_allow_other");
  machine.io_uring_errno = EPERM;
  check_bad(fuse, machine, "io_uring", "io_uring_disabled");
  machine.kernel = "6.12.1";
  check_bad(fuse, machine, "kernel", "6.13");
  machine.memory = 1 << 20;
  check_bad(fuse, machine, "memory", "--ram");
  machine.open_files = 64;
  check_bad(fuse, machine, "open files", "ulimit");
  machine.options_error = "/etc/clairfs.conf:1: ram: 'lots' is not a size";
  check_bad(fuse, machine, "options", "mend it");
  machine.catalog_free = 1;
  check_bad(fuse, machine, "catalogs", "prune");
  machine.catalog_writable = false;
  check_bad(fuse, machine, "catalogs", "--catalog-dir");
  machine.mpi_error = "libmpich.so.12: not found";
  check_bad(fuse, machine, "jobs", "apt install mpich");
}

TEST_CASE("each trouble of a mount comes with a cure, whatever the mount says") {
  const auto stats = nlohmann::json::parse(R"({"troubles": [
      {"kind": "plan_suspended", "count": 1, "text": "plan x is suspended", "first": "left\nit"},
      {"kind": "of a later version", "text": 3}, 7,
      {"kind": "plan_failed", "count": 1, "text": "plan y could not be made"}], "catalog": {"bytes": 100},
      "tiers": {"ram": {"capacity": 10}}})");
  const auto findings = mount_findings("/mnt/a", stats);
  REQUIRE(findings.size() == 5);
  CHECK_THAT(findings[0].cure, Contains("clairfs plan check /mnt/a"));
  CHECK(findings[1].cure == "see the log");
  CHECK_THAT(findings[3].cure, Contains("clairfs plan cancel /mnt/a --name NAME"));
  CHECK(findings[4].kind == Finding::Kind::note);
  const std::string text = findings_text(findings);
  CHECK_THAT(text, Contains("plan x is suspended: left\\nit"));
  const auto json = nlohmann::json::parse(findings_json(findings));
  REQUIRE(json.size() == findings.size());
  CHECK(json[0]["kind"] == "bad");
  CHECK(json[0]["cure"] == findings[0].cure);
  CHECK(json[4]["kind"] == "note");
  CHECK(nlohmann::json::parse(findings_json({})) == nlohmann::json::array());
  CHECK(mount_findings("/mnt/a", nlohmann::json()).front().kind == Finding::Kind::bad);
  CHECK(mount_findings("/mnt/a", nlohmann::json::array()).front().kind == Finding::Kind::bad);
  const auto well = nlohmann::json::parse(R"({"troubles": [], "catalog": {"bytes": 10},
                                              "tiers": {"ram": {"capacity": 10}}})");
  CHECK(mount_findings("/mnt/a", well).front().kind == Finding::Kind::good);
}
