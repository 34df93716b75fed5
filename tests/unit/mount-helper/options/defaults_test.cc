#include "mount-helper/options/defaults.h"

#include <map>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint64_t kGiB = 1ULL << 30;

Machine machine_with(const std::map<std::string, std::string>& files) {
  Machine machine;
  machine.read_file = [files](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
  return machine;
}

const std::string kMeminfo =
    "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n";  // 16 GiB

}  // namespace

TEST_CASE("available memory is MemAvailable without a cgroup limit") {
  CHECK(available_memory(machine_with({{"/proc/meminfo", kMeminfo}})) == 16 * kGiB);
  CHECK(available_memory(machine_with({{"/proc/meminfo", kMeminfo},
                                       {"/proc/self/cgroup", "0::/job\n"},
                                       {"/sys/fs/cgroup/job/memory.max", "max\n"}})) == 16 * kGiB);
}

TEST_CASE("a lower cgroup limit counts, wherever it stands above us") {
  const std::string four_gib = std::to_string(4 * kGiB) + "\n";
  const auto with = [&](const std::string& cgroup, const std::string& path, const std::string& limit) {
    return available_memory(
        machine_with({{"/proc/meminfo", kMeminfo}, {"/proc/self/cgroup", cgroup}, {path, limit}}));
  };
  CHECK(with("0::/job/step\n", "/sys/fs/cgroup/job/step/memory.max", four_gib) == 4 * kGiB);
  CHECK(with("0::/job/step\n", "/sys/fs/cgroup/job/memory.max", four_gib) == 4 * kGiB);
  CHECK(with("0::/\n", "/sys/fs/cgroup/memory.max", four_gib) == 4 * kGiB);
  CHECK(with("9:name=systemd:/\n4:cpu,memory:/docker/1\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
             four_gib) == 4 * kGiB);
  SECTION("a higher one does not") {
    CHECK(with("4:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n") ==
          16 * kGiB);
  }
}

TEST_CASE("unreadable or odd system files give a small default instead of none") {
  CHECK(available_memory(machine_with({})) == kGiB);
  CHECK(available_memory(machine_with(
            {{"/proc/meminfo", "nothing here"}, {"/proc/self/cgroup", "0\nx:y\n:::\n"}})) == kGiB);
}

TEST_CASE(
    "a quarter of the memory goes to the RAM tier, a tenth and at most 1 GiB to staging, a quarter may be "
    "kept") {
  const MountOptions large = default_options(machine_with({{"/proc/meminfo", kMeminfo}}));
  CHECK(large.ram == 4 * kGiB);
  CHECK(large.staging == kGiB);
  CHECK(large.page_cache == large.ram);
  const MountOptions small = default_options(machine_with({{"/proc/meminfo", "MemAvailable: 1048576 kB\n"}}));
  CHECK(small.ram == kGiB / 4);
  CHECK(small.staging == kGiB / 10);
  CHECK(small.page_cache == kGiB / 4);
  CHECK(small.chunk == 4ULL << 20);
  CHECK(small.nvme.empty());
  CHECK(small.io == IoKind::automatic);
}

TEST_CASE("the catalog directory is the user's cache directory") {
  Machine machine = machine_with({});
  CHECK(default_options(machine).catalog_dir == "/var/cache/clairfs");
  machine.uid = 1000;
  machine.home = "/home/u";
  CHECK(default_options(machine).catalog_dir == "/home/u/.cache/clairfs");
  machine.xdg_cache_home = "relative";  // to be ignored, says the XDG specification
  CHECK(default_options(machine).catalog_dir == "/home/u/.cache/clairfs");
  machine.xdg_cache_home = "/scratch/u";
  CHECK(default_options(machine).catalog_dir == "/scratch/u/clairfs");
  machine.xdg_cache_home = machine.home = "";
  CHECK(default_options(machine).catalog_dir.empty());
}

TEST_CASE("FUSE threads follow the processors within bounds") {
  Machine machine = machine_with({});
  CHECK(default_options(machine).fuse_threads == 2);
  machine.processors = 5;
  CHECK(default_options(machine).fuse_threads == 5);
  machine.processors = 128;
  CHECK(default_options(machine).fuse_threads == 8);
}

TEST_CASE("this machine has defaults that can be used") {
  const MountOptions options = default_options(this_machine());
  CHECK(options.ram > 0);
  CHECK(options.staging > 0);
  CHECK(options.catalog_dir.starts_with("/"));
}
