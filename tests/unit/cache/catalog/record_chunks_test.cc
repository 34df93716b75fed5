#include "cache/catalog/record_chunks.h"

#include "cache/catalog/builder.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint32_t kOtherChunk = 4 << 20;
constexpr uint64_t kMany = 64 << 20;  // bytes from which on a name is believed

struct FileOf {
  const char* name;
  uint64_t size;
};

/// Files of one folder, `top` in the source.
std::shared_ptr<const Catalog> catalog_of(const std::vector<FileOf>& files,
                                          std::vector<RecordChunk> wishes = {},
                                          uint32_t chunk_size = kOtherChunk) {
  CatalogBuilder builder("/data", chunk_size, 0, RecordChunks(std::move(wishes)));
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  const FileId top = builder.add(root, "top", attributes);
  attributes.mode = S_IFREG | 0644;
  for (const FileOf& file : files) {
    attributes.size = file.size;
    builder.add(top, file.name, attributes);
  }
  auto catalog = builder.finish(0, 0);
  REQUIRE(catalog.ok());
  REQUIRE(Catalog::deserialize((*catalog)->image()).ok());  // well-formed, as the next mount sees it
  return *catalog;
}

uint32_t chunk_of(const Catalog& catalog, const std::string& name) {
  return catalog.chunk_size(*catalog.find("top/" + name));
}

}  // namespace

TEST_CASE("large files whose names tell of records have small chunks, and no others") {
  const auto catalog = catalog_of({{"a.h5", kMany},
                                   {"a.npy", kMany},
                                   {"b.npy", kMany - 1},
                                   {"c.tar", kMany},
                                   {"data.mdb", 3 * kMany},
                                   {"lmdb", kMany},
                                   {"train.bin", kMany},
                                   {"train.lmdb", kMany}});
  for (const char* name : {"a.h5", "a.npy", "data.mdb", "train.bin", "train.lmdb"}) {
    INFO(name);
    CHECK(chunk_of(*catalog, name) == 128 << 10);
  }
  for (const char* name : {"b.npy", "c.tar", "lmdb"}) {
    INFO(name);
    CHECK(chunk_of(*catalog, name) == kOtherChunk);
  }
  CHECK(catalog->largest_chunk() == kOtherChunk);
}

TEST_CASE("of very many records the chunks are larger, so that they can be kept account of") {
  const uint64_t tera = uint64_t{1} << 40;
  CHECK(chunk_of(*catalog_of({{"a.h5", tera}}), "a.h5") == 128 << 10);
  const auto catalog = catalog_of({{"a.h5", tera}, {"b.h5", 4 * tera}, {"c.tar", 9 * tera}});
  CHECK(chunk_of(*catalog, "a.h5") == 1 << 20);
  CHECK(chunk_of(*catalog, "b.h5") == 1 << 20);
  CHECK(RecordChunks::usual(~uint64_t{0}) >= 1U << 30);  // and it ends
}

TEST_CASE("who mounts has the last word, and the first pattern that fits holds") {
  const std::vector<RecordChunk> wishes = {{"b*.npy", 256 << 10}, {"*.npy", 64 << 10}, {"top/*.tar", 8192}};
  const auto catalog =
      catalog_of({{"a.npy", kMany}, {"b.npy", 100}, {"c.tar", 20000}, {"d.h5", kMany}}, wishes);
  CHECK(chunk_of(*catalog, "a.npy") == 64 << 10);
  CHECK(chunk_of(*catalog, "b.npy") == 256 << 10);
  CHECK(chunk_of(*catalog, "c.tar") == 8192);
  CHECK(chunk_of(*catalog, "d.h5") == 128 << 10);
  CHECK(chunk_of(*catalog_of({{"c.tar", 20000}}, {{"*/c.tar", 4096}}), "c.tar") == 4096);
  CHECK(chunk_of(*catalog_of({{"c.tar", 20000}}, {{"x/*.tar", 4096}}), "c.tar") == kOtherChunk);
}

TEST_CASE("no chunk is larger than those of all files") {
  const auto catalog = catalog_of({{"a.npy", kMany}, {"b.h5", kMany}}, {{"*.npy", 1 << 20}}, 64 << 10);
  CHECK(chunk_of(*catalog, "a.npy") == 64 << 10);
  CHECK(chunk_of(*catalog, "b.h5") == 64 << 10);
}

TEST_CASE("chunks of all sizes are numbered along the files and tile them") {
  const auto catalog = catalog_of({{"a", 40000}, {"b.npy", 40001}, {"c", 8192}, {"d.npy", 4096}, {"e", 1}},
                                  {{"*.npy", 4096}}, 8192);
  uint32_t next = 0;
  for (const char* name : {"a", "b.npy", "c", "d.npy", "e"}) {
    INFO(name);
    const FileId file = *catalog->find(std::string("top/") + name);
    CHECK(catalog->chunks(file).first.value == next);
    uint64_t end = 0;
    for (uint32_t i = 0; i < catalog->chunks(file).count; ++i, ++next) {
      const ChunkRange range = catalog->range(ChunkId(next));
      CHECK(range.file == file);
      CHECK(range.offset == end);
      CHECK(catalog->chunk_at(file, end) == ChunkId(next));
      end += range.length;
      CHECK(catalog->chunk_at(file, end - 1) == ChunkId(next));
      if (end < catalog->stamp(file).size) CHECK(range.length == catalog->chunk_size(file));
    }
    CHECK(end == catalog->stamp(file).size);
  }
  CHECK(catalog->chunk_count() == next);
}

TEST_CASE("two nodes with other chunks have another catalog") {
  const std::vector<FileOf> files = {{"a.npy", 40000}};
  const uint64_t identity = catalog_of(files)->identity();
  CHECK(catalog_of(files)->identity() == identity);
  CHECK(catalog_of(files, {{"a*", 8192}})->identity() != identity);
  CHECK(catalog_of(files, {{"x*", 8192}})->identity() == identity);
}
