// Records in one file, and files beside it, as a plan sees them; nothing is on disk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Records of equal size in a row after a header, in the catalog's first file; then so many of the files that
/// follow, each a sample.
class RecordIndex final : public SampleIndex {
 public:
  static constexpr FileId kFile{1};

  RecordIndex(std::shared_ptr<const Catalog> catalog, uint64_t header, uint64_t bytes, uint32_t records,
              uint32_t files = 0)
      : catalog_(std::move(catalog)), header_(header), bytes_(bytes), records_(records), files_(files) {}

  std::string_view format() const override { return "records"; }
  uint32_t size() const override { return records_ + files_; }
  uint32_t range_count(uint32_t) const override { return 1; }
  ByteRange range(uint32_t sample, uint32_t) const override {
    if (sample < records_) return {kFile, header_ + sample * bytes_, bytes_};
    const FileId file(kFile.value + 1 + sample - records_);
    return {file, 0, catalog_->stamp(file).size};
  }
  void samples_of(FileId, uint64_t, uint64_t, const std::function<void(uint32_t)>&) const override {}
  std::string path(uint32_t sample) const override { return std::to_string(sample); }
  uint64_t memory_bytes() const override { return 0; }

 private:
  const std::shared_ptr<const Catalog> catalog_;
  const uint64_t header_;
  const uint64_t bytes_;
  const uint32_t records_;
  const uint32_t files_;
};

}  // namespace clairfs
