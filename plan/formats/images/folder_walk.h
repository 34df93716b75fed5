// Walks the catalog as os.walk(followlinks=True), and the datasets on top of it, walk folders.
//
// os.walk takes everything that stat() does not call a directory for a file: a dangling link and, at the
// depth where the kernel gives up with ELOOP or ENAMETOOLONG, a link to a folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/formats/dataset.h"
#include "plan/formats/link_resolver.h"

namespace clairfs {

/// A folder as a walk came to it.
struct WalkedFolder {
  std::string path;  ///< below the catalog's root, as os.walk names it
  FileId id;
  uint32_t links = 0;   ///< symlinks in `path`
  bool linked = false;  ///< the catalog knows it by another path

  /// The path of an entry of that name.
  std::string below(std::string_view name) const {
    return path + (path.empty() ? "" : "/") + std::string(name);
  }
};

/// An entry of a folder, as the walk sees it.
struct WalkedEntry {
  enum class Kind : uint8_t {
    file,     ///< `target`
    folder,   ///< `folder`
    outside,  ///< a folder outside the dataset: `folder.path` in the machine's tree
    loop,     ///< of symlinks: to os.walk a file
    too_deep  ///< a folder that cannot be listed: its path is too long
  };
  Kind kind = Kind::file;
  WalkedFolder folder = {};
  std::optional<FileId> target = {};  ///< of a file, if the mount serves it
};

/// For the format of that name, which refusals name. Thread-safe. The objects that `source` and `format`
/// refer to outlive it.
class FolderWalk {
 public:
  FolderWalk(const DatasetSource& source, std::string_view format);

  WalkedFolder root(const DatasetRoot& root) const;
  WalkedEntry look(const WalkedFolder& folder, FileId entry) const;

  /// Folders, or files, that a walk may come to. One link to a folder above it repeats the tree 40 times
  /// before the kernel stops; two such links would do so 2^40 times. The first must work, the second must not
  /// take all memory.
  uint64_t most() const { return most_; }
  /// EINVAL: they are more.
  Error too_many() const;
  /// EINVAL: `entry` of `folder` is WalkedEntry::Kind::outside, `found`.
  Error leads_outside(const WalkedFolder& folder, FileId entry, const WalkedEntry& found) const;

 private:
  const Catalog& catalog_;
  const LinkResolver resolver_;
  const std::string_view format_;
  const uint64_t most_;
};

}  // namespace clairfs
