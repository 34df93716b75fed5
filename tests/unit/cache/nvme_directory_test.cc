#include "cache/nvme_directory.h"

#include <cerrno>

#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "tests/unit/cache/io_support.h"

using namespace clairfs;
using namespace clairfs::testing;

namespace {

/// The error for `path`, which has to be refused with a message that holds `part`.
void refused(const std::string& path, int code, const std::string& part) {
  const auto made = lock_nvme_directory(path);
  INFO(path);
  REQUIRE(!made.ok());
  INFO(made.error().message);
  CHECK(made.error().code == code);
  CHECK(made.error().message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a directory is made for its owner alone, and locked") {
  const TemporaryDirectory dir;
  const std::string path = dir / "store";
  {
    const auto made = lock_nvme_directory(path + "//");
    REQUIRE(made.ok());
    struct stat st;
    REQUIRE(::stat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0700);
    refused(path, EBUSY, "process " + std::to_string(::getpid()));
  }
  CHECK(lock_nvme_directory(path).ok());
}

TEST_CASE("a directory that will not do is refused with the reason") {
  const TemporaryDirectory dir;
  refused(dir / "missing/store", ENOENT, "mkdir -p");

  write_file(dir / "file", "");
  refused(dir / "file", ENOTDIR, "not a directory");

  REQUIRE(::mkdir((dir / "target").c_str(), 0700) == 0);
  REQUIRE(::symlink("target", (dir / "link").c_str()) == 0);
  refused(dir / "link", ELOOP, "symlink");
  refused(dir / "link/", ELOOP, "symlink");

  for (const mode_t mode : {0750, 0705, 0777}) {
    REQUIRE(::chmod((dir / "target").c_str(), mode) == 0);
    refused(dir / "target", EPERM, "chmod 700");
  }
  REQUIRE(::chmod((dir / "target").c_str(), 0700) == 0);
  REQUIRE(::symlink("elsewhere", (dir / "target/lock").c_str()) == 0);
  refused(dir / "target", ELOOP, "lock");
}

TEST_CASE("another user's directory is refused") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can give a directory to another user");
    return;
  }
  const TemporaryDirectory dir;
  REQUIRE(::mkdir((dir / "store").c_str(), 0700) == 0);
  REQUIRE(::chown((dir / "store").c_str(), 65534, 65534) == 0);
  refused(dir / "store", EPERM, "belongs to user 65534");
}

TEST_CASE("a read-only filesystem is refused") {
  const TemporaryDirectory dir;
  const TmpfsMount tmpfs(dir.path(), MS_RDONLY, "size=1m,mode=700");
  if (!tmpfs.mounted()) {
    WARN("skipped: only root can mount a tmpfs");
    return;
  }
  refused(dir.path(), EROFS, "can be written");
}
