#include "mount-helper/options/permissions.h"

#include <cerrno>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// A user for whom everything is in place.
FuseFacts user() {
  FuseFacts facts;
  facts.fusermount = "/usr/bin/fusermount3";
  facts.fusermount_setuid = true;
  facts.may_write_mountpoint = true;
  return facts;
}

std::string error(const FuseFacts& facts, bool allow_other = false) {
  MountOptions options;
  options.mountpoint = "/mnt/x";
  options.allow_other = allow_other;
  return check_permissions(options, facts).error().message;
}

}  // namespace

TEST_CASE("who may mount is not held up") {
  CHECK(error(user()).empty());
  FuseFacts privileged;
  privileged.root = privileged.privileged = true;
  CHECK(error(privileged, true).empty());
}

TEST_CASE("each missing permission is named with its fix") {
  FuseFacts facts = user();
  SECTION("no module or device") {
    facts.device_errno = GENERATE(ENOENT, ENODEV, ENXIO);
    CHECK_THAT(error(facts),
               Contains("/dev/fuse") && Contains("modprobe fuse") && Contains("--device /dev/fuse"));
  }
  SECTION("device closed to the user") {
    facts.device_errno = EACCES;
    CHECK_THAT(error(facts), Contains("no permission to open /dev/fuse"));
  }
  SECTION("device closed by a container, also to root") {
    facts.device_errno = EPERM;
    facts.root = facts.privileged = true;
    CHECK_THAT(error(facts), Contains("container"));
  }
  SECTION("fusermount3 missing") {
    facts.fusermount.clear();
    CHECK_THAT(error(facts), Contains("apt install fuse3"));
  }
  SECTION("fusermount3 without setuid") {
    facts.fusermount_setuid = false;
    CHECK_THAT(error(facts), Contains("chmod 4755 /usr/bin/fusermount3"));
  }
  SECTION("sandboxed") {
    facts.no_new_privs = true;
    CHECK_THAT(error(facts), Contains("no_new_privs"));
  }
  SECTION("mountpoint of someone else") {
    facts.may_write_mountpoint = false;
    CHECK_THAT(error(facts), Contains("/mnt/x"));
  }
  SECTION("allow-other") {
    CHECK_THAT(error(facts, true), Contains("user_allow_other in /etc/fuse.conf"));
    facts.user_allow_other = true;
    CHECK(error(facts, true).empty());
  }
  SECTION("root without capabilities") {
    facts.root = true;
    CHECK_THAT(error(facts), Contains("CAP_SYS_ADMIN"));
  }
}

TEST_CASE("user_allow_other counts only as a line of its own") {
  CHECK(allows_other("mount_max = 1000\n  user_allow_other \n"));
  CHECK(!allows_other("#user_allow_other\n# user_allow_other - explained\n"));
  CHECK(!allows_other("user_allow_other yes\n"));
  CHECK(!allows_other(""));
}
