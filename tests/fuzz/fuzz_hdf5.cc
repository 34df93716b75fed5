// What the program that reads HDF5 files says of one: whatever it is, samples lie in the file, and memory is
// bounded by the file's size. Input: the file's size (3 bytes), the number of datasets, then messages: kind,
// length (2 bytes), bytes.
//
// And the file itself, of which the nodes below one are read ahead: that never changes what is read. Input:
// bytes that are read at a time (2 bytes), the file.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/hdf5/layout.h"
#include "plan/formats/hdf5/tree_ahead.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

/// Takes numbers off the front of the input, 0 at its end.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  uint64_t number(size_t width) {
    uint64_t number = 0;
    for (const char byte : bytes(width)) number = number << 8 | static_cast<uint8_t>(byte);
    return number;
  }
  std::string_view bytes(size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view rest_;
};

std::shared_ptr<const Catalog> one_file(uint64_t size) {
  CatalogBuilder builder("/source", 4096, 2);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  attributes.size = size;
  builder.add(root, "x", attributes);
  return builder.finish(0, 0).value();
}

void check(const SampleIndex& index, uint64_t size) {
  const auto inside = [&](const ByteRange& range) {
    fuzz::require(range.offset <= size && range.length <= size - range.offset, "a range lies in its file");
  };
  for (const ByteRange& range : index.shared_ranges()) inside(range);
  // Of many samples some, so that an input takes no seconds.
  for (uint32_t sample = 0; sample < index.size(); sample += 1 + index.size() / 1000) {
    for (uint32_t piece = 0; piece < index.range_count(sample) && piece < 100; ++piece) {
      const ByteRange range = index.range(sample, piece);
      inside(range);
      fuzz::require(index.read_end(range) >= range.offset + range.length, "a piece is read whole");
    }
  }
}

void check_layout(Input input) {
  const uint64_t file_bytes = input.number(3);
  hdf5::Layout layout(input.number(1) % 4, file_bytes);
  while (!input.empty()) {
    const auto say = static_cast<hdf5::Say>(input.number(1));
    if (!layout.take(say, input.bytes(input.number(2)))) return;
  }
  if (!layout.finish()) return;
  const auto catalog = one_file(file_bytes);
  RecordTableBuilder table(catalog, "hdf5");
  if (layout.add_samples(FileId(1), table)) check(*table.finish(), file_bytes);
}

void check_tree_ahead(Input input) {
  const uint64_t step = std::max<uint64_t>(input.number(2), 1);
  const std::string_view file = input.bytes(SIZE_MAX);
  if (file.empty()) return;
  DatasetSource source;
  source.catalog = one_file(file.size());
  source.read_many = [file](std::span<const ByteRange> pieces) -> Result<std::vector<std::string>> {
    std::vector<std::string> all;
    for (const ByteRange& piece : pieces) {
      const bool inside = piece.offset <= file.size() && piece.length <= file.size() - piece.offset;
      fuzz::require(inside, "what is read ahead lies in the file");
      all.emplace_back(file.substr(piece.offset, piece.length));
    }
    return all;
  };
  hdf5::TreeAhead ahead(source, FileId(1));
  for (uint64_t at = 0; at < file.size(); at += step) {
    const std::string_view there = file.substr(at, step);
    const auto read = ahead.read(at, there.size());
    fuzz::require(read && *read == there, "what was read ahead is what lies there");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Input input(fuzz::text_of(data, size));
  check_layout(input);
  check_tree_ahead(input);
  return 0;
}
