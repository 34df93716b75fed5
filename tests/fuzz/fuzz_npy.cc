// Headers of NumPy files: every row of an array that is taken lies in its file.
#include <algorithm>
#include <cstring>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/formats.h"
#include "plan/formats/npy_header.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

/// A dataset of one file, of which `bytes` is the start.
DatasetSource dataset_of(std::string_view bytes, uint64_t size) {
  CatalogBuilder builder("/source", 4096, 2);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  attributes.size = size;
  builder.add(root, "x.npy", attributes);
  DatasetSource source;
  source.catalog = builder.finish(0, 0).value();
  source.prefixes.is_directory = [](const std::string&) { return false; };
  source.read_bytes = [bytes](FileId, uint64_t offset, uint32_t length) -> Result<std::string> {
    return std::string(bytes.substr(std::min<size_t>(offset, bytes.size()), length));
  };
  return source;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto header = parse_npy_header(text)) {
    fuzz::require(header->data_offset <= size, "the data comes after the header");
    fuzz::require(header->shape.size() <= 64, "not more dimensions than NumPy has");
  }
  for (const uint64_t file_size : {uint64_t{size}, uint64_t{size} + 10000, uint64_t{1} << 40}) {
    const DatasetSource source = dataset_of(text, file_size);
    const auto index = index_npy(source, DatasetRoot{FileId(0), 0}, "x.npy");
    if (!index || (*index)->size() == 0) continue;
    for (const uint32_t row : {0U, (*index)->size() / 2, (*index)->size() - 1}) {
      if ((*index)->range_count(row) == 0) continue;
      const ByteRange range = (*index)->range(row, 0);
      fuzz::require(range.offset <= file_size && range.length <= file_size - range.offset,
                    "a row lies in its file");
    }
  }
  return 0;
}
