#include "mount-helper/options/validate.h"

#include <cerrno>
#include <filesystem>

#include <unistd.h>

#include "cache/memory/ram_arena.h"
#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

struct Fixture {
  TemporaryDirectory directory;
  std::string source = directory.make("source");
  std::string mountpoint = directory.make("mountpoint");

  MountOptions options() const {
    MountOptions options;
    options.source = source;
    options.mountpoint = mountpoint;
    options.catalog_dir = directory.path() + "/catalogs";
    return options;
  }
  std::string error(const MountOptions& options, std::vector<MountEntry> mounts = {}) const {
    const auto settled = resolve_paths(options, mounts);
    return settled ? "" : settled.error().message;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "paths become absolute and real") {
  std::filesystem::create_directory_symlink(source, directory.path() + "/link");
  MountOptions given = options();
  given.source = std::filesystem::relative(directory.path() + "/link").string();
  given.mountpoint += "/";
  given.log_file = directory.path() + "/link/../log";
  given.nvme = {{directory.make("nvme") + "/.", 1 << 20}};
  const auto settled = resolve_paths(given, {});
  REQUIRE(settled);
  CHECK(settled->source == source);
  CHECK(settled->mountpoint == mountpoint);
  CHECK(settled->log_file == directory.path() + "/log");
  CHECK(settled->nvme == std::vector<NvmeDir>{{directory.path() + "/nvme", 1 << 20}});
  CHECK(!std::filesystem::exists(given.catalog_dir));
}

TEST_CASE_METHOD(Fixture, "an NVMe directory without a size gets most of the free space") {
  MountOptions given = options();
  given.nvme = {{directory.make("nvme"), 0}};
  const auto settled = resolve_paths(given, {});
  REQUIRE(settled);
  const auto space = std::filesystem::space(directory.path());
  CHECK(settled->nvme[0].capacity > 0);
  CHECK(settled->nvme[0].capacity < space.available + (1ULL << 30));  // others may write meanwhile
}

TEST_CASE_METHOD(Fixture, "an NVMe directory may have a share of the free space") {
  MountOptions given = options();
  given.nvme = {{directory.make("nvme"), 0, 0, 10}};
  const auto settled = resolve_paths(given, {});
  REQUIRE(settled);
  const uint64_t tenth = std::filesystem::space(directory.path()).available / 10;
  CHECK(settled->nvme[0].share == 10);
  CHECK(settled->nvme[0].capacity < tenth + (1ULL << 28));  // others may write meanwhile
  CHECK(settled->nvme[0].capacity + (1ULL << 28) > tenth);
  CHECK(mount_warnings(*settled, 1ULL << 40).empty());
}

TEST_CASE_METHOD(Fixture, "a size whose unit was forgotten is doubted") {
  MountOptions given = options();
  given.nvme = {{directory.make("nvme"), 500}};
  CHECK_THAT(error(given), Contains("nvme:500 B is too small, give at least 1.0 MiB; a SIZE without a unit"));
  given.nvme.clear();
  given.ram = 64;
  given.staging = 4096;
  const auto settled = resolve_paths(given, {});
  REQUIRE(settled);
  const auto doubts = mount_warnings(*settled, 1ULL << 40);
  REQUIRE(doubts.size() == 1);
  CHECK_THAT(doubts[0], Contains("--ram of 64 B is less than a page") && Contains("in bytes"));
}

TEST_CASE_METHOD(Fixture, "what no mount can have is refused before the scan") {
  MountOptions given = options();
  given.ram = 3ULL << 40;
  CHECK(error(given) == "--ram 3.0 TiB is too much, give less than 2.0 TiB");
  CHECK(RamArena::create(given.ram, kRamUnit).error().message ==
        "the RAM tier of 3.0 TiB must be smaller than 2.0 TiB; lower --ram");
  given.ram = (2ULL << 40) - 1;
  CHECK(error(given).empty());
  CHECK(RamArena::create(2ULL << 40, kRamUnit).error().code == EINVAL);
  given.log_file = directory.make("logs");
  CHECK(error(given) == "log file " + given.log_file + " is a directory; give a file in it");
}

TEST_CASE_METHOD(Fixture, "files of records are not cut into larger chunks than others") {
  MountOptions given = options();
  given.chunk = 64 << 10;
  given.record_chunks = {{"*.h5", 64 << 10}};
  CHECK(resolve_paths(given, {}));
  given.record_chunks.push_back({"*.lmdb", 1 << 20});
  const auto refused = resolve_paths(given, {});
  REQUIRE(!refused);
  CHECK(refused.error().code == EINVAL);
  CHECK_THAT(refused.error().message,
             StartsWith("--record-chunk *.lmdb=1.0 MiB is more than --chunk, 64.0 KiB"));
}

TEST_CASE_METHOD(Fixture, "source and mountpoint must be separate directories") {
  MountOptions given = options();
  SECTION("missing source") {
    given.source += "/none";
    CHECK_THAT(error(given), Contains("source " + given.source) && Contains("No such file"));
  }
  SECTION("source is a file") {
    given.source = directory.write("file", "x");
    CHECK_THAT(error(given), Contains("is not a directory"));
  }
  SECTION("missing mountpoint") {
    given.mountpoint += "/none";
    CHECK_THAT(error(given), Contains("does not exist; make it with: mkdir -p " + given.mountpoint));
  }
  SECTION("mountpoint is a file") {
    given.mountpoint = directory.write("file", "x");
    CHECK_THAT(error(given), Contains("mountpoint " + given.mountpoint + " is not a directory"));
  }
  SECTION("the same") {
    given.mountpoint = source;
    CHECK_THAT(error(given), Contains("source and mountpoint are both"));
  }
  SECTION("mountpoint inside the source") {
    given.mountpoint = directory.make("source/inner");
    CHECK_THAT(error(given), Contains("lies inside the source"));
  }
  SECTION("source inside the mountpoint") {
    given.mountpoint = directory.path();
    CHECK_THAT(error(given), Contains("lies inside the mountpoint"));
  }
  SECTION("a name that only begins alike is fine") {
    given.mountpoint = directory.make("source2");
    CHECK(error(given).empty());
  }
}

TEST_CASE_METHOD(Fixture, "a mount that is already there is named with the command that ends it") {
  const std::string line = error(options(), {{mountpoint, "fuse.clairfs", "/pfs/x"}});
  CHECK_THAT(line, Contains("already a clairfs mount of /pfs/x") && Contains("clairfs umount " + mountpoint));
  CHECK(error(options(), {{mountpoint, "ext4", "/dev/sda"}}).empty());
}

TEST_CASE_METHOD(Fixture, "nothing is ever written into the source or under the mountpoint") {
  MountOptions given = options();
  SECTION("nvme in the source") {
    given.nvme = {{directory.make("source/nvme"), 1 << 20}};
    CHECK_THAT(error(given), Contains("lies in the source, which is never written"));
  }
  SECTION("nvme under the mountpoint") {
    given.nvme = {{directory.make("mountpoint/nvme"), 1 << 20}};
    CHECK_THAT(error(given), Contains("lies below the mountpoint"));
  }
  SECTION("nvme in the source, though it does not exist yet") {
    given.nvme = {{source + "/none/", 1 << 20}};
    CHECK_THAT(error(given), Contains("lies in the source, which is never written"));
  }
  SECTION("nvme missing with its parent") {
    given.nvme = {{directory.path() + "/none/nvme", 1 << 20}};
    CHECK_THAT(error(given),
               Contains("NVMe directory") && Contains("mkdir -p " + directory.path() + "/none,"));
  }
  SECTION("nvme in the source, behind a symlink after what does not exist") {
    std::filesystem::create_directory_symlink(source, directory.path() + "/link");
    given.nvme = {{directory.path() + "/none/../link/new", 1 << 20}};
    CHECK_THAT(error(given), Contains("its parent directory is missing"));
    given.nvme = {{directory.path() + "/link/new", 1 << 20}};
    CHECK_THAT(error(given), Contains("lies in the source"));
  }
  SECTION("nvme is a file") {
    given.nvme = {{directory.write("file", ""), 1 << 20}};
    CHECK_THAT(error(given), Contains("is not a directory"));
  }
  SECTION("nvme twice") {
    given.nvme = {{directory.make("nvme"), 1 << 20}, {directory.path() + "/nvme/", 1 << 20}};
    CHECK_THAT(error(given), Contains("given twice"));
  }
  SECTION("catalog in the source, through a symlink, though it does not exist yet") {
    std::filesystem::create_directory_symlink(source, directory.path() + "/link");
    given.catalog_dir = directory.path() + "/link/cache";
    CHECK_THAT(error(given), Contains("catalog directory " + source + "/cache lies in the source"));
  }
  SECTION("no catalog directory") {
    given.catalog_dir.clear();
    CHECK_THAT(error(given), Contains("--catalog-dir"));
  }
  SECTION("log under the mountpoint") {
    given.log_file = mountpoint + "/log";
    CHECK_THAT(error(given), Contains("log file") && Contains("lies below the mountpoint"));
  }
}

TEST_CASE_METHOD(Fixture, "a stranger's symlink is not followed to where something is written") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can give a link to another user");
    return;
  }
  directory.make("real");
  const std::string theirs = directory.path() + "/theirs";
  std::filesystem::create_directory_symlink("real", theirs);
  std::filesystem::create_directory_symlink(theirs + "/.", directory.path() + "/ours");
  const auto errors = [&](const std::string& way) {
    std::vector<std::string> lines;
    for (std::string MountOptions::*place : {&MountOptions::catalog_dir, &MountOptions::log_file}) {
      MountOptions given = options();
      given.*place = directory.path() + way;
      lines.push_back(error(given));
    }
    MountOptions given = options();
    given.nvme = {{directory.path() + way, 1 << 20}};
    lines.push_back(error(given));
    return lines;
  };
  const auto way = GENERATE("/theirs/new", "/ours/new", "/real/../theirs/new", "//theirs/./new");
  CAPTURE(way);
  for (const std::string& line : errors(way)) CHECK(line.empty());
  REQUIRE(::lchown(theirs.c_str(), 65534, 65534) == 0);
  for (const std::string& line : errors(way))
    CHECK_THAT(line, Contains(theirs + " is a symlink of user 65534; give another path"));
}

TEST_CASE_METHOD(Fixture, "symlinks in a circle are refused") {
  std::filesystem::create_directory_symlink("b", directory.path() + "/a");
  std::filesystem::create_directory_symlink("a", directory.path() + "/b");
  MountOptions given = options();
  given.catalog_dir = directory.path() + "/a/new";
  CHECK_THAT(error(given), Contains("Too many levels of symbolic links"));
}
