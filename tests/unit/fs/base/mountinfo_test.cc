#include "fs/base/mountinfo.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr const char* kMountinfo =
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "30 22 0:40 / /mnt/a\\040b\\011c\\012d\\134e rw,nosuid - fuse.clairfs /pfs/im\\040ages "
    "rw,user_id=1000,group_id=0\n"
    "31 22 0:41 / /mnt/data rw shared:7 master:2 - fuse.clairfs /pfs/one rw\n"
    "32 31 0:42 / /mnt/data rw shared:8 - fuse.clairfs /pfs/two rw\n"
    "33 31 0:43 / /mnt/data/inner rw - tmpfs tmpfs rw\n"
    "broken line\n\n";

}  // namespace

TEST_CASE("mountinfo is read with its escapes and optional fields") {
  const auto mounts = parse_mountinfo(kMountinfo);
  REQUIRE(mounts.size() == 5);
  CHECK(mounts[0].mountpoint == "/");
  CHECK(!mounts[0].is_clairfs());
  CHECK(mounts[1].mountpoint == "/mnt/a b\tc\nd\\e");
  CHECK(mounts[1].source == "/pfs/im ages");
  CHECK(mounts[1].is_clairfs());
  CHECK(mounts[2].type == "fuse.clairfs");
  CHECK(mounts[1].owner == 1000U);
  CHECK(mounts[1].group == 0U);
  CHECK(mounts[1].device == "0:40");
  CHECK(!mounts[2].owner);
}

TEST_CASE("each filesystem that can be asked is listed once") {
  const std::string binds =
      "40 22 0:41 / /elsewhere rw - fuse.clairfs /pfs/one rw\n"
      "41 22 0:42 / /copy rw - fuse.clairfs /pfs/two rw\n"
      "42 22 0:42 /train /folder rw - fuse.clairfs /pfs/two rw\n"
      "43 22 0:44 / /mnt/under rw - fuse.clairfs /pfs/three rw\n"
      "44 43 0:45 / /mnt/under rw - tmpfs tmpfs rw\n";
  std::vector<std::string> points;
  for (const MountEntry& mount : clairfs_mounts(parse_mountinfo(kMountinfo + binds)))
    points.push_back(mount.mountpoint + " " + mount.source);
  // Of 0:41 the first one is below another mount, its bind mount is not.
  const std::vector<std::string> wanted{"/mnt/a b\tc\nd\\e /pfs/im ages", "/mnt/data /pfs/two",
                                        "/elsewhere /pfs/one"};
  CHECK(points == wanted);
}

TEST_CASE("the topmost and innermost mount of a path is found") {
  const auto mounts = parse_mountinfo(kMountinfo);
  CHECK(mount_at(mounts, "/mnt/data")->source == "/pfs/two");
  CHECK(mount_at(mounts, "/mnt/data")->device == "0:42");
  CHECK(!mount_at(mounts, "/mnt/data/x"));
  CHECK(mount_containing(mounts, "/mnt/data/x/y")->source == "/pfs/two");
  CHECK(mount_containing(mounts, "/mnt/data/inner/y")->type == "tmpfs");
  CHECK(mount_containing(mounts, "/mnt/database")->mountpoint == "/");
  CHECK(!mount_containing({}, "/mnt"));
}

TEST_CASE("a path is within itself and what lies above it") {
  CHECK(is_within("/a/b", "/a"));
  CHECK(is_within("/a", "/a"));
  CHECK(is_within("/a", "/"));
  CHECK(!is_within("/ab", "/a"));
  CHECK(!is_within("/a", "/a/b"));
}
