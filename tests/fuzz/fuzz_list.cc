// List files and arrays in a plan: samples are the dataset's, orders stay below their number, and no path
// leaves the source.
#include <cstring>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/formats.h"
#include "plan/formats/list_text.h"
#include "plan/samplers/index_lists.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

SourceAttributes entry(uint32_t mode, uint64_t size = 0) {
  SourceAttributes made;
  made.mode = mode;
  made.size = size;
  return made;
}

/// Files, folders, and links that lead around, up, out and in circles.
DatasetSource make_dataset() {
  CatalogBuilder builder("/source", 4096, 16);
  const FileId root = builder.add(FileId(0), "", entry(S_IFDIR | 0755));
  const FileId a = builder.add(root, "a", entry(S_IFDIR | 0755));
  builder.add(root, "f", entry(S_IFREG | 0644, 10000));
  const auto link = [&](FileId in, std::string_view name, std::string_view target) {
    builder.add(in, name, entry(S_IFLNK | 0777, target.size()));
    builder.set_target(target);
  };
  link(root, "in", "/source/a/g");
  link(root, "loop", "loop");
  link(root, "out", "../../etc/passwd");
  link(root, "to", "a");
  builder.add(a, "g", entry(S_IFREG | 0644, 1));
  link(a, "up", "../f");
  DatasetSource source;
  source.catalog = builder.finish(0, 0).value();
  source.prefixes.source = "/source";
  source.prefixes.mount = "/mount";
  source.prefixes.is_directory = [](const std::string&) { return false; };
  return source;
}

void check_samples(const DatasetSource& source, const std::string& list) {
  const auto index = index_list(source, DatasetRoot{FileId(0), 0}, list);
  if (!index) return;
  fuzz::require((*index)->size() > 0, "a list that is taken has samples");
  for (uint32_t sample = 0; sample < (*index)->size(); ++sample) {
    fuzz::require((*index)->path(sample).find("..") == std::string::npos, "no path leads up");
    for (uint32_t piece = 0; piece < (*index)->range_count(sample); ++piece) {
      const ByteRange range = (*index)->range(sample, piece);
      fuzz::require(source.catalog->kind(range.file) == Catalog::Kind::file, "a sample is a file");
      fuzz::require(range.offset + range.length <= source.catalog->stamp(range.file).size,
                    "a sample lies in its file");
    }
  }
}

void check_orders(const std::string& path) {
  constexpr uint64_t kSamples = 100;
  if (const auto lists = read_index_list(path, kSamples)) {
    for (size_t list = 0; list < (*lists)->count(); ++list) {
      const auto order = (*lists)->read(list);
      fuzz::require(order.ok() && order->size() == (*lists)->size(list), "an order reads as it was counted");
      for (const uint32_t sample : *order) fuzz::require(sample < kSamples, "an order names samples");
    }
  }
  if (const auto weights = read_weights(path, kSamples)) {
    fuzz::require(weights->size() <= kSamples, "not more weights than samples");
    for (const double weight : *weights) fuzz::require(weight >= 0, "weights are not negative");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const DatasetSource source = make_dataset();
  const std::string_view text = fuzz::text_of(data, size);
  lists_indices(text);
  const fuzz::MemoryFile file(text);
  check_orders(file.path());
  check_samples(source, file.path());
  if (text.starts_with('[') && text.find('\'') == std::string_view::npos) {
    const auto spec = parse_plan("format=list list='" + std::string(text) + "'");
    if (spec && spec->list.starts_with('[')) check_samples(source, spec->list);
  }
  return 0;
}
