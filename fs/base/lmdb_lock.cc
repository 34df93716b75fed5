#include "fs/base/lmdb_lock.h"

#include <optional>

namespace clairfs {
namespace {

constexpr uint64_t kPage = 4096;     // the smallest of LMDB's; the first two describe the database
constexpr uint64_t kLockEntry = 64;  // its table of readers has one a cache line

// The name of the database whose lock file is called `name`; empty if none's is.
std::string_view database_of(std::string_view name) {
  constexpr std::string_view kSuffix = "-lock";
  if (name == "lock.mdb") return "data.mdb";
  if (!name.ends_with(kSuffix)) return "";
  return name.substr(0, name.size() - kSuffix.size());
}

bool has_whole(const Catalog& catalog, FileId file, uint64_t unit, uint64_t least) {
  if (catalog.kind(file) != Catalog::Kind::file) return false;
  const uint64_t size = catalog.stamp(file).size;
  return size % unit == 0 && size >= least;
}

}  // namespace

bool is_lmdb_lock(const Catalog& catalog, FileId directory, std::string_view name) {
  const std::string_view database_name = database_of(name);
  if (database_name.empty()) return false;
  const auto database = catalog.lookup(directory, database_name);
  if (!database || !has_whole(catalog, *database, kPage, 2 * kPage)) return false;
  const auto lock = catalog.lookup(directory, name);
  return !lock || has_whole(catalog, *lock, kLockEntry, 0);
}

}  // namespace clairfs
