// Chooses the files that are the shards of format=shards, tar and tfrecord.
#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/samples/file_samples.h"
#include "plan/formats/streams/stripes.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

struct ShardNames {
  std::string_view format;
  std::vector<std::string_view> patterns;  // of names; empty: all
};

// As WebDataset's and TensorFlow's own documentation name them.
const ShardNames& names_of(std::string_view format) {
  static const std::array<ShardNames, 3> kNames{
      {{"shards", {}},
       {"tar", {"*.tar", "*.tar.gz", "*.tgz", "*.tar.bz2", "*.tar.xz", "*.tar.zst"}},
       {"tfrecord",
        {"*.tfrecord", "*.tfrecord-*", "*.tfrecords", "*.tfrecords-*", "*.tfrecord.gz", "*.tfrecords.gz",
         "*.tfrec"}}}};
  return *std::find_if(kNames.begin(), kNames.end(), [&](const auto& of) { return of.format == format; });
}

bool is_shard(const ShardNames& names, std::string_view name) {
  if (name.starts_with('.')) return false;  // as for glob()
  // What DALI's tools put beside a shard: "*.tfrecord-*" is its name as well.
  if (!names.patterns.empty() && (name.ends_with(".idx") || name.ends_with(".index"))) return false;
  return names.patterns.empty() ||
         std::any_of(names.patterns.begin(), names.patterns.end(),
                     [&](std::string_view pattern) { return matches_wildcards(pattern, name); });
}

SampleIndexResult named_shards(const DatasetSource& source, const DatasetRoot& root,
                               const std::string& file) {
  const auto files = find_data_files(source, root, file);
  if (!files) {
    const Error& error = files.error();
    return error.code == EINVAL ? plan_error("file", file, error.message) : error;
  }
  auto shards = std::make_shared<FileSamples>(source.catalog, "files");
  for (const FileId id : *files) shards->add(id, id);
  shards->finish();
  return SampleIndexResult(shards);
}

SampleIndexResult all_shards(const DatasetSource& source, const DatasetRoot& root, const ShardNames& names) {
  const SampleIndexResult all = index_files(source, root);
  if (!all) return all;
  auto shards = std::make_shared<FileSamples>(source.catalog, "files");
  for (uint32_t i = 0; i < (*all)->size(); ++i) {
    const FileId file = (*all)->range(i, 0).file;
    if (is_shard(names, source.catalog->name(file))) shards->add(file, file);
  }
  shards->finish();
  if (shards->size() == 0 && !names.patterns.empty()) {
    return plan_error("format", std::string(names.format),
                      fmt::format("no file below root is called {}; want file=PATTERN, or format=shards for "
                                  "all files",
                                  fmt::join(names.patterns, ", ")));
  }
  return SampleIndexResult(shards);
}

}  // namespace

SampleIndexResult choose_shards(const DatasetSource& source, const DatasetRoot& root, std::string_view format,
                                const std::string& file, const std::string& list) {
  if (!list.empty()) return index_list(source, root, list);
  if (!file.empty()) return named_shards(source, root, file);
  return all_shards(source, root, names_of(format));
}

SampleIndexResult index_shards(const DatasetSource& source, const DatasetRoot& root, std::string_view format,
                               const std::string& file, const std::string& list) {
  SampleIndexResult shards = choose_shards(source, root, format, file, list);
  if (!shards) return shards;
  const auto stripes = Stripes::make(source.catalog, names_of(format).format, std::move(*shards));
  if (!stripes) return stripes.error();
  return SampleIndexResult(*stripes);
}

}  // namespace clairfs
