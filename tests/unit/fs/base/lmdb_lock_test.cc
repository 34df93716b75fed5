#include "fs/base/lmdb_lock.h"

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

struct Entry {
  std::string_view name;
  uint64_t size;
  uint32_t type = S_IFREG;
};

/// Whether `name` is a lock file in a directory of these entries, sorted by name.
bool is_lock(std::string_view name, const std::vector<Entry>& entries) {
  CatalogBuilder builder("/source", 4096, entries.size() + 1);
  const FileId root = builder.add(FileId(0), "", {.mode = S_IFDIR | 0755});
  for (const Entry& entry : entries) {
    builder.add(root, entry.name, {.size = entry.size, .mode = entry.type | 0644});
    if (entry.type == S_IFLNK) builder.set_target("elsewhere");
  }
  const auto catalog = builder.finish(0, 0);
  REQUIRE(catalog.ok());
  return is_lmdb_lock(**catalog, root, name);
}

}  // namespace

TEST_CASE("a lock file lies beside its database, or would") {
  CHECK(is_lock("lock.mdb", {{"data.mdb", 8192}, {"lock.mdb", 8192}}));
  CHECK(is_lock("lock.mdb", {{"data.mdb", 409600}}));
  CHECK(is_lock("train.lmdb-lock", {{"train.lmdb", 8192}, {"train.lmdb-lock", 8192}}));
  CHECK(is_lock("train.lmdb-lock", {{"train.lmdb", 8192}}));
  CHECK(is_lock("data.mdb-lock", {{"data.mdb", 8192}}));
  CHECK(is_lock("lock.mdb", {{"data.mdb", 8192}, {"lock.mdb", 0}}));  // its maker was killed
}

TEST_CASE("what is only called like a lock file is none") {
  CHECK_FALSE(is_lock("lock.mdb", {{"lock.mdb", 8192}}));
  CHECK_FALSE(is_lock("lock.mdb", {}));
  CHECK_FALSE(is_lock("-lock", {{"-lock", 8192}, {"data.mdb", 8192}}));
  CHECK_FALSE(is_lock("train-lock", {{"train-lock", 8192}, {"train.lmdb", 8192}}));
  CHECK_FALSE(is_lock("data.mdb", {{"data.mdb", 8192}, {"lock.mdb", 8192}}));
  CHECK_FALSE(is_lock("train.lock", {{"train", 8192}, {"train.lock", 8192}}));
}

TEST_CASE("beside what cannot be a database there is no lock file") {
  CHECK_FALSE(is_lock("lock.mdb", {{"data.mdb", 4096}, {"lock.mdb", 8192}}));
  CHECK_FALSE(is_lock("lock.mdb", {{"data.mdb", 0}, {"lock.mdb", 8192}}));
  CHECK_FALSE(is_lock("poetry-lock", {{"poetry", 10000}, {"poetry-lock", 8192}}));
  CHECK_FALSE(is_lock("lock.mdb", {{"data.mdb", 8192, S_IFDIR}, {"lock.mdb", 8192}}));
  CHECK_FALSE(is_lock("lock.mdb", {{"data.mdb", 8192, S_IFLNK}, {"lock.mdb", 8192}}));
}

TEST_CASE("what cannot be a lock file is none, whatever it lies beside") {
  CHECK_FALSE(is_lock("weights-lock", {{"weights", 8192}, {"weights-lock", 1000}}));
  CHECK_FALSE(is_lock("lock.mdb", {{"data.mdb", 8192}, {"lock.mdb", 8192, S_IFDIR}}));
  CHECK_FALSE(is_lock("lock.mdb", {{"data.mdb", 8192}, {"lock.mdb", 8192, S_IFLNK}}));
}
