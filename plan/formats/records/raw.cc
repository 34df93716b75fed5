// Records of one size without a header that says so: arrays, tokens.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// Whole records in a file of `size` bytes, if it holds nothing else: behind the last one there may be what
// fills its stride, or not.
std::optional<uint64_t> records_in(uint64_t size, const RecordLayout& layout) {
  const uint64_t bytes = size - std::min(size, layout.header);
  const uint64_t rest = bytes % layout.stride;
  if (rest != 0 && rest != layout.record) return std::nullopt;
  return bytes / layout.stride + (rest == 0 ? 0 : 1);
}

}  // namespace

SampleIndexResult index_raw(const DatasetSource& source, const DatasetRoot& root, std::string_view file,
                            const RecordLayout& layout) {
  const auto files = find_data_files(source, root, file);
  if (!files) return plan_error("file", file, files.error().message);
  auto samples = std::make_shared<FixedRecords>(source.catalog, "raw", layout);
  for (const FileId id : *files) {
    const uint64_t size = source.catalog->stamp(id).size;
    const auto records = records_in(size, layout);
    if (!records) {
      return plan_error(
          "record", std::to_string(layout.record),
          fmt::format("{} has {} bytes, which are no whole number of records every {} bytes "
                      "after a header of {}",
                      shortened(source.catalog->path(id), 200), size, layout.stride, layout.header));
    }
    if (*records >= UINT32_MAX - samples->size())
      return plan_error("record", std::to_string(layout.record), "more records than 32 bits can number");
    samples->add(id, static_cast<uint32_t>(*records));
  }
  samples->finish();
  return SampleIndexResult(samples);
}

}  // namespace clairfs
