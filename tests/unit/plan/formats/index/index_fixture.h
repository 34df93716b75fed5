// Made-up packed files and tables of their records.
#pragma once

#include <memory>
#include <stdexcept>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/samples/record_table.h"
#include "tests/support/catch.h"

namespace clairfs {

/// A dataset of files f0, f1 ..., numbered from 1 on.
struct PackedFiles {
  std::string source = "/source";
  std::vector<SourceAttributes> files;

  explicit PackedFiles(const std::vector<uint64_t>& sizes) {
    for (const uint64_t size : sizes) {
      SourceAttributes file;
      file.mode = S_IFREG | 0644;
      file.size = size;
      file.mtime_ns = 1000;
      file.ctime_ns = 2000;
      file.inode = 10 + files.size();
      files.push_back(file);
    }
  }
  std::shared_ptr<const Catalog> catalog() const {
    CatalogBuilder builder(source, 1 << 20, static_cast<uint32_t>(files.size()) + 1);
    SourceAttributes root;
    root.mode = S_IFDIR | 0755;
    builder.add(FileId(0), "", root);
    for (size_t i = 0; i < files.size(); ++i) builder.add(FileId(0), "f" + std::to_string(i), files[i]);
    return builder.finish(0, 0).value();
  }
};

/// Samples of one range each, of `bytes` bytes, one after the other in f0.
inline std::shared_ptr<const RecordTable> records_in_f0(const std::shared_ptr<const Catalog>& catalog,
                                                        uint32_t count, uint64_t bytes) {
  RecordTableBuilder builder(catalog, "lmdb");
  for (uint32_t i = 0; i < count; ++i) {  // several threads make tables at once, for which Catch2 has no macros
    if (!builder.add_sample(ByteRange{FileId(1), i * bytes, bytes})) throw std::logic_error("file 1 is smaller");
  }
  return builder.finish();
}

inline void check_equal(const RecordTable& a, const RecordTable& b) {
  REQUIRE(a.size() == b.size());
  CHECK(a.identity() == b.identity());
  CHECK(a.format() == b.format());
  CHECK(a.read_block() == b.read_block());
  CHECK(a.shares_bytes() == b.shares_bytes());
  const auto same = [](const ByteRange& x, const ByteRange& y) {
    return x.file == y.file && x.offset == y.offset && x.length == y.length;
  };
  REQUIRE(a.shared_ranges().size() == b.shared_ranges().size());
  for (size_t i = 0; i < a.shared_ranges().size(); ++i)
    REQUIRE(same(a.shared_ranges()[i], b.shared_ranges()[i]));
  for (uint32_t sample = 0; sample < a.size(); ++sample) {
    REQUIRE(a.range_count(sample) == b.range_count(sample));
    for (uint32_t piece = 0; piece < a.range_count(sample); ++piece)
      REQUIRE(same(a.range(sample, piece), b.range(sample, piece)));
    for (uint32_t piece = 0; piece < a.range_count(sample); ++piece)
      REQUIRE(a.read_end(a.range(sample, piece)) == b.read_end(b.range(sample, piece)));
  }
}

}  // namespace clairfs
