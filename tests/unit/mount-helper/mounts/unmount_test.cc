#include "mount-helper/mounts/unmount.h"

#include <cerrno>

#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

/// A mount that is busy for the first attempts.
struct BusyMount {
  int busy_for = 0;
  bool has_others = false;
  bool daemon_answers = true;
  int attempts = 0;
  int pauses = 0;

  Status unmount() {
    return unmount_patiently({[&]() -> Status {
                                if (attempts++ < busy_for) return Error{EBUSY, "busy"};
                                return {};
                              },
                              [&] { return has_others; }, [&] { ++pauses; }, daemon_answers});
  }
};

}  // namespace

TEST_CASE("a mount whose daemon was faster to end it is as good as unmounted") {
  const TemporaryDirectory directory;
  CHECK(unmount(directory.path(), Unmounting::orderly).ok());
  CHECK(unmount(directory.path(), Unmounting::lazy).ok());
}

TEST_CASE("a mount that only its daemon uses is tried until there is a moment between two of its files") {
  BusyMount mount;
  mount.busy_for = 150;
  CHECK(mount.unmount().ok());
  CHECK(mount.attempts == 151);
  CHECK(mount.pauses == 150);
}

TEST_CASE("a mount that others use is busy after two seconds, and one that stays busy after ten") {
  BusyMount mount;
  mount.busy_for = 1000;
  mount.has_others = true;
  CHECK(mount.unmount().error().code == EBUSY);
  CHECK(mount.pauses == 39);
  mount.has_others = false;
  mount.pauses = 0;
  CHECK(mount.unmount().error().code == EBUSY);
  CHECK(mount.pauses == 199);
}

TEST_CASE("a mount whose daemon hangs is busy after two seconds, though nobody is seen to use it") {
  BusyMount mount;
  mount.busy_for = 1000;
  mount.daemon_answers = false;
  CHECK(mount.unmount().error().code == EBUSY);
  CHECK(mount.pauses == 39);
}

TEST_CASE("what will not be unmounted for another reason is tried once") {
  int attempts = 0;
  const Status done = unmount_patiently({[&]() -> Status {
                                           ++attempts;
                                           return Error{EPERM, "no"};
                                         },
                                         [] { return false; }, [] {}, true});
  CHECK(done.error().code == EPERM);
  CHECK(attempts == 1);
}
