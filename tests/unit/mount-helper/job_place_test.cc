#include "mount-helper/job_place.h"

#include <atomic>
#include <optional>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/unit/mount-helper/temporary_directory.h"

namespace clairfs {
namespace {

MountOptions options_of(const std::string& mountpoint) {
  MountOptions options;
  options.foreground = true;
  options.source = "/data";
  options.mountpoint = mountpoint;
  return options;
}

}  // namespace

TEST_CASE("every path may name the rank") {
  MountOptions options = options_of("/mnt/{rank}/data-{rank}");
  options.nvme = {{"/nvme/{rank}", 5}, {"/disk", 6}};
  options.catalog_dir = "{rank}";
  options.log_file = "/log/{rank}.txt";
  const auto placed = for_place(options, {Rank(12), 16});
  REQUIRE(placed);
  CHECK(placed->source == "/data");
  CHECK(placed->mountpoint == "/mnt/12/data-12");
  CHECK(placed->nvme == std::vector<NvmeDir>{{"/nvme/12", 5}, {"/disk", 6}});
  CHECK(placed->catalog_dir == "12");
  CHECK(placed->log_file == "/log/12.txt");
}

TEST_CASE("without a job the rank is 0") {
  const auto placed = for_place(options_of("/mnt/{rank}"), {});
  REQUIRE(placed);
  CHECK(placed->mountpoint == "/mnt/0");
}

TEST_CASE("a mount point is one node's at a time") {
  const TemporaryDirectory one;
  const TemporaryDirectory two;
  auto claim = claim_mount_point(one.path());
  REQUIRE(claim);
  CHECK(*claim);
  CHECK(*claim_mount_point(two.path()));
  std::optional<Result<Fd>> second;
  std::atomic<bool> claimed{false};
  std::thread waits([&] {
    second = claim_mount_point(one.path());
    claimed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(claimed);
  *claim = Fd();
  waits.join();
  REQUIRE(*second);
  CHECK(**second);
  CHECK_FALSE(*claim_mount_point("/nowhere/at all"));
}

TEST_CASE("a node of a job stays in the foreground") {
  MountOptions options = options_of("/mnt");
  options.foreground = false;
  CHECK(for_place(options, {Rank(0), 1}).ok());
  const auto refused = for_place(options, {Rank(0), 2});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("add -f") != std::string::npos);
}

}  // namespace clairfs
