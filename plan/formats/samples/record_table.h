// The numbering of all formats that pack records into files: any number of ranges a sample, anywhere.
//
// The files are laid end to end, each with one byte more than it has, so that a range is an address in that
// line and a length, and an empty range at a file's end is still that file's. A range takes 8 to 12 bytes: 10
// up to 256 TiB of files and 4 GiB a range. Beside that there is, only where it is needed,
//
//   - where each sample's ranges start (4 bytes a sample), if some sample has not exactly one range;
//   - the ranges by address (4 bytes a range), if the samples do not come in the order of their bytes;
//   - how far the ranges before reach (4 or 6 bytes a range), if ranges overlap.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/compact_numbers.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Made by a RecordTableBuilder.
class RecordTable final : public SampleIndex {
 public:
  std::string_view format() const override { return format_; }
  uint32_t size() const override { return samples_; }
  uint32_t range_count(uint32_t sample) const override {
    return first_range(sample + 1) - first_range(sample);
  }
  ByteRange range(uint32_t sample, uint32_t piece) const override;
  void samples_of(FileId file, uint64_t offset, uint64_t length,
                  const std::function<void(uint32_t sample)>& visit) const override;
  bool shares_files() const override { return true; }
  bool shares_bytes() const override { return shares_bytes_; }
  uint32_t read_block() const override { return read_block_; }
  uint64_t read_end(const ByteRange& piece) const override;
  std::span<const ByteRange> shared_ranges() const override { return shared_; }
  std::string path(uint32_t sample) const override;
  uint64_t memory_bytes() const override;
  uint64_t identity() const override { return identity_; }

 private:
  friend class RecordTableBuilder;
  friend class TableImage;
  struct File {
    FileId id;
    uint64_t start;  ///< its address
  };
  struct Found;

  RecordTable(std::shared_ptr<const Catalog> catalog, std::string_view format)
      : catalog_(std::move(catalog)), format_(format) {}

  uint32_t ranges() const { return static_cast<uint32_t>(addresses_.size()); }
  uint32_t first_range(uint32_t sample) const { return starts_.empty() ? sample : starts_[sample]; }
  uint32_t sample_of(uint32_t range) const;
  uint32_t by_address(uint32_t rank) const { return by_address_.empty() ? rank : by_address_[rank]; }
  uint64_t end_of(uint32_t range) const { return addresses_[range] + lengths_[range]; }
  const File* find_file(FileId file) const;
  void find(uint32_t first, uint32_t past, Found& found) const;
  void sort_files();
  void sort_ranges();
  uint64_t note_reach(uint32_t first, uint32_t past);
  void note_identity();

  const std::shared_ptr<const Catalog> catalog_;
  const std::string format_;
  uint64_t identity_ = 0;
  uint32_t samples_ = 0;
  uint32_t read_block_ = 1;
  bool shares_bytes_ = false;
  std::vector<File> files_;            ///< by address
  std::vector<uint32_t> files_by_id_;  ///< places in files_
  CompactNumbers addresses_;           ///< by range; a sample's follow each other
  CompactNumbers lengths_;
  std::vector<uint32_t> starts_;      ///< sample -> its first range, and one more; empty: the same number
  std::vector<uint32_t> by_address_;  ///< ranges by (address, end); empty: they are so already
  /// Of the middle one of each part into which a binary search cuts the ranges by address: the largest end in
  /// that part. Empty: ends ascend with addresses.
  CompactNumbers reach_;
  std::vector<ByteRange> shared_;
  std::vector<ByteRange>
      read_on_;  ///< where read_block_ is what is read at least; elsewhere nothing is added
};

/// Takes the samples one by one; for one thread.
class RecordTableBuilder {
 public:
  RecordTableBuilder(std::shared_ptr<const Catalog> catalog, std::string_view format);

  uint32_t samples() const { return table_->samples_; }

  /// The next sample, which has no range yet. Errors: EINVAL when there are too many to number.
  Status add_sample();
  /// The next range of the latest sample, in the order of reading. Errors: EINVAL when it is not within its
  /// file, as the catalog knows it, or there are too many.
  Status add_range(const ByteRange& range);
  /// A sample of one range.
  Status add_sample(const ByteRange& range);
  /// Not of a sample, but of every reader; may overlap what was shared before. Errors: as add_range().
  Status share(const ByteRange& range);
  void set_read_block(uint32_t bytes) { table_->read_block_ = bytes; }
  /// Of pieces in `place` readers take at least `bytes`, up to its end; all other pieces they take as they
  /// are. Errors: as add_range(). REQUIRES: the same number each time.
  Status set_read_on(const ByteRange& place, uint32_t bytes);

  /// After the last one; the builder is used up.
  std::shared_ptr<const RecordTable> finish();

 private:
  Status check(const ByteRange& range) const;
  Result<uint64_t> start_of(FileId file);
  static void merge(std::vector<ByteRange>& places);

  std::shared_ptr<RecordTable> table_;
  std::unordered_map<FileId, uint64_t> starts_;  ///< of the files so far
  FileId latest_;                                ///< of them, if there is one
  uint64_t latest_start_ = 0;
  uint64_t next_start_ = 0;
};

}  // namespace clairfs
