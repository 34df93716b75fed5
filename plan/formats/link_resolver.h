// Follows symlinks on the catalog as the kernel would on the mount.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/catalog/catalog.h"

namespace clairfs {

/// Where the dataset's root stands in the machine's tree, so that links which name it by an absolute path, or
/// which climb out and come back, are followed. Empty: unknown.
struct LinkPrefixes {
  std::string source;  ///< real path of the source directory
  std::string mount;   ///< mount point
  /// Whether a path outside the dataset is a directory; by default asks the system with stat(2).
  std::function<bool(const std::string& path)> is_directory;
};

/// Where a path leads.
struct Resolved {
  enum class Kind : uint8_t {
    directory,          ///< `id`
    file,               ///< `id`
    missing,            ///< ENOENT or ENOTDIR
    loop,               ///< ELOOP
    outside,            ///< out of the dataset, and no directory (or unknown)
    outside_directory,  ///< out of the dataset, `path` is a directory
  };
  Kind kind = Kind::missing;
  FileId id;
  uint32_t links = 0;  ///< symlinks followed so far
  std::string path;    ///< outside only
};

/// Thread-safe. The catalog outlives it.
class LinkResolver {
 public:
  /// Linux follows that many symlinks in one path, then fails with ELOOP (MAXSYMLINKS).
  static constexpr uint32_t kMaxLinks = 40;

  LinkResolver(const Catalog& catalog, const LinkPrefixes& prefixes);

  /// Resolves `path` from the directory `from`, when `links` symlinks of the path before it were followed
  /// already.
  Resolved resolve(FileId from, std::string_view path, uint32_t links = 0) const;

  /// Bytes that a path below the dataset's root may have before the kernel says ENAMETOOLONG.
  size_t longest_path() const { return longest_path_; }

 private:
  /// Sets `rest` to the part of an absolute path inside the dataset; false if it leads elsewhere.
  bool inside(std::string_view absolute, std::string& rest) const;
  Resolved outside(const std::string& path, uint32_t links) const;

  const Catalog& catalog_;
  const std::function<bool(const std::string&)> is_directory_;
  std::vector<std::vector<std::string>>
      roots_;  ///< components of the prefixes, the one used by readers first
  size_t longest_path_ = 0;
};

}  // namespace clairfs
