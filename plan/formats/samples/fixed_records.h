// Records of one size, one after the other in each of some files: found by arithmetic, so they cost no
// memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Sizes in bytes.
struct RecordLayout {
  uint64_t header = 0;  ///< before the first record
  uint64_t record = 0;
  uint64_t stride = 0;  ///< from the start of one record to that of the next; at least `record`
};

/// Built with add() by one thread, from then on immutable and thread-safe.
class FixedRecords final : public SampleIndex {
 public:
  /// `format` is a literal.
  FixedRecords(std::shared_ptr<const Catalog> catalog, std::string_view format, const RecordLayout& layout)
      : catalog_(std::move(catalog)), format_(format), layout_(layout) {}

  /// The next `records` samples are those of `file`. REQUIRES: it has as many; fewer than 2^32 - 1 in all.
  void add(FileId file, uint32_t records);
  /// After the last add().
  void finish();

  std::string_view format() const override { return format_; }
  uint32_t size() const override { return samples_; }
  uint32_t range_count(uint32_t) const override { return layout_.record == 0 ? 0 : 1; }
  ByteRange range(uint32_t sample, uint32_t piece) const override;
  void samples_of(FileId file, uint64_t offset, uint64_t length,
                  const std::function<void(uint32_t sample)>& visit) const override;
  bool shares_files() const override { return true; }
  uint32_t read_block() const override { return kBufferedBlock; }  // of readers that do not map the array
  std::span<const ByteRange> shared_ranges() const override { return headers_; }
  std::string path(uint32_t sample) const override;
  uint64_t memory_bytes() const override;

 private:
  struct Part {
    FileId file;
    uint32_t first = 0;  ///< sample
    uint32_t records = 0;
  };
  const Part& part_of(uint32_t sample) const;

  const std::shared_ptr<const Catalog> catalog_;
  const std::string_view format_;
  const RecordLayout layout_;
  uint32_t samples_ = 0;
  std::vector<Part> parts_;    ///< by sample
  std::vector<Part> by_file_;  ///< the same; a file that is named twice has two
  std::vector<ByteRange> headers_;
};

}  // namespace clairfs
