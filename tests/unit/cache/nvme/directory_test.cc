#include "cache/nvme/directory.h"

#include <cerrno>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include "cache/nvme/record.h"
#include "tests/support/catch.h"
#include "tests/unit/cache/io/io_support.h"

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

TEST_CASE("the dataset of a directory is noted for people") {
  const TemporaryDirectory dir;
  const std::string path = dir / "store";
  CHECK(nvme_directory_dataset(path).empty());
  {
    const auto made = lock_nvme_directory(path, "/pfs/data set");
    REQUIRE(made.ok());
    CHECK(nvme_directory_dataset(path) == "/pfs/data set");
    refused(path, EBUSY, "process " + std::to_string(::getpid()) + ";");
  }
  CHECK(nvme_directory_dataset(path) == "/pfs/data set");
  write_file(path + "/lock", "4711\n");  // as it was before datasets were noted
  CHECK(nvme_directory_dataset(path).empty());
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
  refused(dir / "target", ENOTEMPTY, "lock");
}

TEST_CASE("a directory is looked at without being made or locked") {
  const TemporaryDirectory dir;
  CHECK(check_nvme_directory(dir / "store").ok());
  CHECK(::access((dir / "store").c_str(), F_OK) != 0);
  const auto made = lock_nvme_directory(dir / "store");
  REQUIRE(made.ok());
  CHECK(check_nvme_directory(dir / "store").ok());

  write_file(dir / "file", "");
  CHECK(check_nvme_directory(dir / "file").error().code == ENOTDIR);
  CHECK(check_nvme_directory(dir / "file/store").error().code == ENOTDIR);
  REQUIRE(::mkdir((dir / "other").c_str(), 0700) == 0);
  write_file(dir / "other/thesis.tex", "precious");
  CHECK(check_nvme_directory(dir / "other").error().code == ENOTEMPTY);
  REQUIRE(::chmod((dir / "other").c_str(), 0755) == 0);
  CHECK(check_nvme_directory(dir / "other").error().code == EPERM);
}

TEST_CASE("where others keep files, a directory of its own is advised") {
  const TemporaryDirectory dir;
  REQUIRE(::mkdir((dir / "shared").c_str(), 0700) == 0);
  REQUIRE(::chmod((dir / "shared").c_str(), 01777) == 0);
  refused(dir / "shared", EPERM, dir / "shared/clairfs");
  REQUIRE(::chmod((dir / "shared").c_str(), 0755) == 0);
  refused(dir / "shared", EPERM, "chmod 700");
  write_file(dir / "shared/file", "");
  refused(dir / "shared", EPERM, dir / "shared/clairfs");
}

TEST_CASE("a directory with files of others is refused, and they stay as they are") {
  const TemporaryDirectory dir;
  const std::string path = dir / "store";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  const std::string name = GENERATE("index", "lock", "index.new", "segment-000000", "photo.jpg");
  write_file(path + "/" + name, "precious\n");
  refused(path, ENOTEMPTY, "holds " + name);
  CHECK(std::filesystem::file_size(path + "/" + name) == 9);
  CHECK(std::distance(std::filesystem::directory_iterator(path), {}) == 1);
}

TEST_CASE("what a store may leave is no reason to refuse") {
  const TemporaryDirectory dir;
  const std::string path = dir / "store";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  REQUIRE(::mkdir((path + "/lost+found").c_str(), 0700) == 0);
  REQUIRE(lock_nvme_directory(path).ok());
  write_file(path + "/segment-000000", "x");
  write_file(path + "/index", "damaged beyond recognition");
  write_file(path + "/index.new", "");
  write_file(path + "/lock", GENERATE(as<std::string>{}, "", "4711\n", std::string(5, '\0')));
  REQUIRE(lock_nvme_directory(path).ok());
  SECTION("another file, and no index that can be known as one") {
    write_file(path + "/notes", "");
    refused(path, ENOTEMPTY, "notes");
  }
  SECTION("another file beside an index of whatever version") {
    write_file(path + "/notes", "");
    NvmeIndexHeader header = NvmeIndexHeader::make(1);
    header.version = 77;
    write_file(path + "/index", std::string(reinterpret_cast<const char*>(&header), sizeof header));
    CHECK(lock_nvme_directory(path).ok());
  }
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
