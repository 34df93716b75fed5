// The rows of one array in NumPy's file format: a row is a byte range, found by arithmetic.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "plan/formats/formats.h"
#include "plan/formats/link_resolver.h"
#include "plan/formats/npy_header.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

/// Immutable.
class NpyRows : public SampleIndex {
 public:
  NpyRows(std::string path, FileId file, uint64_t offset, uint64_t row_bytes, uint32_t rows)
      : path_(std::move(path)),
        file_(file),
        offset_(offset),
        row_bytes_(row_bytes),
        rows_(rows),
        header_{file, 0, offset} {}

  std::string_view format() const override { return "npy"; }
  uint32_t size() const override { return rows_; }
  bool shares_files() const override { return true; }
  uint32_t range_count(uint32_t) const override { return row_bytes_ == 0 ? 0 : 1; }
  ByteRange range(uint32_t row, uint32_t) const override {
    return {file_, offset_ + row * row_bytes_, row_bytes_};
  }
  void samples_of(FileId file, uint64_t offset, uint64_t length,
                  const std::function<void(uint32_t row)>& visit) const override {
    const uint64_t end = offset + std::min(length, UINT64_MAX - offset);
    if (file != file_ || row_bytes_ == 0 || end <= offset_ || length == 0) return;
    const uint64_t first = offset <= offset_ ? 0 : (offset - offset_) / row_bytes_;
    const uint64_t past = std::min<uint64_t>((end - offset_ - 1) / row_bytes_ + 1, rows_);
    for (uint64_t row = first; row < past; ++row) visit(static_cast<uint32_t>(row));
  }
  bool shares_files() const override { return true; }
  std::span<const ByteRange> shared_ranges() const override { return {&header_, 1}; }
  std::string path(uint32_t row) const override { return fmt::format("{}#{}", path_, row); }
  uint64_t memory_bytes() const override { return sizeof(*this) + path_.capacity(); }

 private:
  const std::string path_;
  const FileId file_;
  const uint64_t offset_;
  const uint64_t row_bytes_;
  const uint32_t rows_;
  const ByteRange header_;
};

}  // namespace

SampleIndexResult index_npy(const DatasetSource& source, const DatasetRoot& root, std::string_view file) {
  const auto refuse = [&](const std::string& why) { return plan_error("file", file, why); };
  const Resolved target =
      LinkResolver(*source.catalog, source.prefixes).resolve(root.folder, file, root.links);
  if (target.kind != Resolved::Kind::file) return refuse("no such file below the plan's root");
  if (!source.read_bytes) return refuse("cannot be read here");

  Result<std::string> start = source.read_bytes(target.id, 0, kNpyPreamble);
  if (!start) return start.error();
  const Result<uint32_t> header_bytes = npy_header_end(*start);
  if (!header_bytes) return refuse(header_bytes.error().message);
  start = source.read_bytes(target.id, 0, *header_bytes);
  if (!start) return start.error();
  const Result<NpyHeader> header = parse_npy_header(*start);
  if (!header) return refuse(header.error().message);

  if (header->shape.empty()) return refuse("holds a single number; want an array whose rows are the samples");
  const uint64_t rows = header->shape[0];
  if (rows >= UINT32_MAX) return refuse(fmt::format("{} rows are more than 32 bits can number", rows));
  uint64_t row_bytes = header->item_bytes;
  bool overflow = false;
  for (size_t i = 1; i < header->shape.size(); ++i) {
    overflow = overflow || __builtin_mul_overflow(row_bytes, header->shape[i], &row_bytes);
  }
  uint64_t end = 0;
  overflow = overflow || __builtin_mul_overflow(row_bytes, rows, &end) ||
             __builtin_add_overflow(end, header->data_offset, &end);
  const uint64_t size = source.catalog->stamp(target.id).size;
  if (overflow || end > size)
    return refuse(fmt::format("is cut off: its header says more than its {} bytes", size));
  return SampleIndexResult(std::make_shared<NpyRows>(source.catalog->path(target.id), target.id,
                                                     header->data_offset, row_bytes,
                                                     static_cast<uint32_t>(rows)));
}

}  // namespace clairfs
