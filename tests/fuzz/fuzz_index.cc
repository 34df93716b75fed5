// The saved index of a packed file: whatever is accepted leads to bytes of its files, finds its samples
// again, and reads back as it was.
//
// All but the table is made right before the index is looked at: nobody guesses a checksum, and a file of a
// faulty program would have a right one.
#include <algorithm>
#include <vector>

#include <sys/stat.h>
#include <xxhash.h>

#include "cache/catalog/builder.h"
#include "plan/formats/index/saved_index.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

std::shared_ptr<const Catalog> two_files() {
  CatalogBuilder builder("/source", 4096, 3);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  attributes.size = 1000;
  builder.add(root, "a", attributes);
  attributes.size = uint64_t{6} << 32;
  builder.add(root, "b", attributes);
  return builder.finish(0, 0).value();
}

void check_inside(const Catalog& catalog, const ByteRange& range) {
  const uint64_t size = catalog.stamp(range.file).size;
  fuzz::require(range.offset <= size && range.length <= size - range.offset, "a range lies in its file");
}

void check_table(const Catalog& catalog, const RecordTable& table) {
  for (const ByteRange& range : table.shared_ranges()) check_inside(catalog, range);
  for (uint32_t sample = 0; sample < std::min(table.size(), 1000U); ++sample) {
    for (uint32_t piece = 0; piece < table.range_count(sample); ++piece) {
      const ByteRange range = table.range(sample, piece);
      check_inside(catalog, range);
      table.samples_of(range.file, range.offset, 1, [&](uint32_t other) {
        fuzz::require(other < table.size(), "what is found is a sample");
      });
    }
  }
}

// Of which nothing is verified but the first bytes.
void check_key(const Catalog& catalog, std::span<const std::byte> beginning) {
  const auto key = key_of_saved(beginning, catalog);
  if (!key) return;
  for (const FileId file : key->files)
    fuzz::require(file.value < catalog.size(), "a key is of files that are there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto catalog = two_files();
  static const IndexKey key{"lmdb", "keys=cursor", {FileId(1), FileId(2)}};
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::require(!decode_index(bytes, key, catalog).ok(), "nobody guesses a checksum");

  static const auto empty = RecordTableBuilder(catalog, "lmdb").finish();
  static const auto start = [] {
    auto image = encode_index(*empty, key, *catalog);
    constexpr size_t kEmptyTable = 11 * sizeof(uint64_t) + 3 * sizeof(uint32_t);
    image.resize(image.size() - kEmptyTable);
    return image;
  }();
  std::vector<std::byte> beginning(start.begin(), start.begin() + kIndexStartBytes);
  beginning.insert(beginning.end(), bytes.begin(), bytes.end());
  check_key(*catalog, bytes);
  check_key(*catalog, beginning);

  std::vector<std::byte> image = start;
  image.insert(image.end(), bytes.begin(), bytes.end());
  const uint64_t checksum = XXH3_64bits(image.data() + kIndexStartBytes, image.size() - kIndexStartBytes);
  std::memcpy(image.data() + kIndexStartBytes - sizeof checksum, &checksum, sizeof checksum);
  const auto table = decode_index(image, key, catalog);
  if (!table) return 0;
  check_table(*catalog, **table);
  fuzz::require(encode_index(**table, key, *catalog) == image, "the index reads back as it was");
  return 0;
}
