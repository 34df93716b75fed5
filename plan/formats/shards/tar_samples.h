// TarSamples puts the members of a tar together to samples, as WebDataset does.
// Source: webdataset/webdataset, src/webdataset/tariterators.py (tar_file_iterator, base_plus_ext,
// group_by_keys).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/formats/shards/record_walk.h"

namespace clairfs {

/// A member's name up to the first dot after its last '/'. None for members that WebDataset leaves out: names
/// without a dot, or in __such__ a form.
std::optional<std::string_view> tar_sample_key(std::string_view name);

/// Takes the regular files of an archive in their order. Those that follow each other with the same key are a
/// sample, which is one range from the first one's bytes to the last one's: between them are headers only.
class TarSamples {
 public:
  explicit TarSamples(std::vector<RecordPlace>& samples) : samples_(samples) {}

  /// REQUIRES: it comes after the members before.
  void add(std::string_view name, const RecordPlace& data);

 private:
  std::vector<RecordPlace>& samples_;
  std::string key_;  ///< of the latest sample, if there is one
};

}  // namespace clairfs
