// The rows of one array in NumPy's file format: a row is a byte range, found by arithmetic.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/npy_header.h"
#include "plan/spec/keys.h"

namespace clairfs {

SampleIndexResult index_npy(const DatasetSource& source, const DatasetRoot& root, std::string_view file) {
  const auto refuse = [&](const std::string& why) { return plan_error("file", file, why); };
  const Result<FileId> target = find_data_file(source, root, file);
  if (!target) return refuse(target.error().message);
  if (!source.read_bytes) return refuse("cannot be read here");

  Result<std::string> start = source.read_bytes(*target, 0, kNpyPreamble);
  if (!start) return start.error();
  const Result<uint32_t> header_bytes = npy_header_end(*start);
  if (!header_bytes) return refuse(header_bytes.error().message);
  start = source.read_bytes(*target, 0, *header_bytes);
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
  const uint64_t size = source.catalog->stamp(*target).size;
  if (overflow || end > size)
    return refuse(fmt::format("is cut off: its header says more than its {} bytes", size));
  auto samples = std::make_shared<FixedRecords>(source.catalog, "npy",
                                                RecordLayout{header->data_offset, row_bytes, row_bytes});
  samples->add(*target, static_cast<uint32_t>(rows));
  samples->finish();
  return SampleIndexResult(samples);
}

}  // namespace clairfs
