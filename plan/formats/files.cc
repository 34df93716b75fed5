// All regular files, by path.
#include <algorithm>
#include <string_view>
#include <vector>

#include "plan/formats/formats.h"
#include "plan/formats/samples/file_samples.h"

namespace clairfs {
namespace {

// Sorting whole paths bytewise is sorting siblings bytewise when a folder counts with its '/': "a-b" < "a/x"
// < "a0".
bool path_less(const Catalog& catalog, FileId a, FileId b) {
  const std::string_view left = catalog.name(a);
  const std::string_view right = catalog.name(b);
  const size_t common = std::min(left.size(), right.size());
  if (const int order = left.substr(0, common).compare(right.substr(0, common)); order != 0) return order < 0;
  const auto next = [&](FileId id, std::string_view name) {
    if (name.size() > common) return static_cast<int>(static_cast<unsigned char>(name[common]));
    return catalog.kind(id) == Catalog::Kind::directory ? static_cast<int>('/') : -1;
  };
  return next(a, left) < next(b, right);
}

}  // namespace

SampleIndexResult index_files(const DatasetSource& source, const DatasetRoot& root) {
  const Catalog& catalog = *source.catalog;
  auto samples = std::make_shared<FileSamples>(source.catalog, "files");
  std::vector<FileId> pending{root.folder};  // a stack: the next path is on top
  while (!pending.empty()) {
    const FileId entry = pending.back();
    pending.pop_back();
    if (catalog.kind(entry) == Catalog::Kind::file) samples->add(entry, entry);
    if (catalog.kind(entry) != Catalog::Kind::directory) continue;
    const Catalog::Children children = catalog.children(entry);
    const auto first = static_cast<std::ptrdiff_t>(pending.size());
    bool folders = false;
    for (uint32_t i = children.count; i-- > 0;) {
      pending.push_back(FileId(children.first.value + i));
      folders = folders || catalog.kind(pending.back()) == Catalog::Kind::directory;
    }
    if (folders) {
      std::sort(pending.begin() + first, pending.end(),
                [&](FileId a, FileId b) { return path_less(catalog, b, a); });
    }
  }
  samples->finish();
  return SampleIndexResult(samples);
}

}  // namespace clairfs
