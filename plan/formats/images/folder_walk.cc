#include "plan/formats/images/folder_walk.h"

#include <utility>

#include <fmt/format.h>

#include "plan/spec/keys.h"

namespace clairfs {

FolderWalk::FolderWalk(const DatasetSource& source, std::string_view format)
    : catalog_(*source.catalog),
      resolver_(*source.catalog, source.prefixes),
      format_(format),
      most_(uint64_t{64} * source.catalog->size() + (1 << 20)) {}

WalkedFolder FolderWalk::root(const DatasetRoot& root) const {
  return {catalog_.path(root.folder), root.folder, root.links, false};
}

WalkedEntry FolderWalk::look(const WalkedFolder& folder, FileId entry) const {
  using Kind = WalkedEntry::Kind;
  const Catalog::Kind kind = catalog_.kind(entry);
  if (kind == Catalog::Kind::file) return {Kind::file, {}, entry};
  std::string path = folder.below(catalog_.name(entry));
  const bool too_long = path.size() > resolver_.longest_path();
  if (kind == Catalog::Kind::directory) {
    if (too_long) return {Kind::too_deep};
    return {Kind::folder, {std::move(path), entry, folder.links, folder.linked}};
  }
  if (too_long) return {Kind::file};
  Resolved target = resolver_.resolve(folder.id, catalog_.name(entry), folder.links);
  switch (target.kind) {
    case Resolved::Kind::directory:
      return {Kind::folder, {std::move(path), target.id, target.links, true}};
    case Resolved::Kind::outside_directory:
      return {Kind::outside, {std::move(target.path), FileId(), target.links, true}};
    case Resolved::Kind::loop:
      return {Kind::loop};
    case Resolved::Kind::file:
      return {Kind::file, {}, target.id};
    default:
      return {Kind::file};
  }
}

Error FolderWalk::too_many() const {
  return plan_error("format", format_,
                    "symlinks lead to the same folders over and over, as the script would follow them too; "
                    "want fewer links, or format=files");
}

Error FolderWalk::leads_outside(const WalkedFolder& folder, FileId entry, const WalkedEntry& found) const {
  return plan_error(
      "format", format_,
      fmt::format("{} leads to the folder {} outside the dataset, whose samples cannot be numbered; "
                  "want a dataset that holds it, or format=list list=FILE",
                  shortened(folder.below(catalog_.name(entry)), 200), shortened(found.folder.path, 200)));
}

}  // namespace clairfs
