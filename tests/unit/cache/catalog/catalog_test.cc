#include "cache/catalog/catalog.h"

#include <filesystem>
#include <set>

#include "cache/catalog/builder.h"
#include "cache/catalog/chunk_key.h"
#include "cache/catalog/scan.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

constexpr uint32_t kChunk = 8192;

std::shared_ptr<const Catalog> scan(const std::string& source, uint32_t chunk_size = kChunk) {
  CapturedLog log;
  const auto catalog = scan_catalog(source, {.chunk_size = chunk_size, .threads = {3, 3}}, log.logger());
  REQUIRE(catalog.ok());
  return catalog.value();
}

SourceAttributes file_of(uint64_t size) {
  SourceAttributes attributes;
  attributes.mode = S_IFREG | 0644;
  attributes.size = size;
  return attributes;
}

SourceAttributes directory() {
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  return attributes;
}

}  // namespace

TEST_CASE("files of all sizes around a chunk are cut into chunks that tile them") {
  TempTree tree;
  const std::vector<uint64_t> sizes = {0,          1,      4095,       4096,       4097,
                                       kChunk - 1, kChunk, kChunk + 1, 5 * kChunk, 40000};
  uint64_t total = 0;
  for (const uint64_t size : sizes) {
    tree.write("d/" + std::to_string(size), size);
    total += size;
  }
  const auto catalog = scan(tree.path());
  CHECK(catalog->size() == sizes.size() + 2);
  CHECK(catalog->count(Catalog::Kind::file) == sizes.size());
  CHECK(catalog->count(Catalog::Kind::directory) == 2);
  CHECK(catalog->total_bytes() == total);
  CHECK(catalog->largest_chunk() == kChunk);
  uint32_t chunks = 0;
  for (const uint64_t size : sizes) {
    INFO(size);
    const FileId file = catalog->find("d/" + std::to_string(size)).value();
    CHECK(catalog->stamp(file).size == size);
    const Catalog::Chunks range = catalog->chunks(file);
    CHECK(range.count == (size + kChunk - 1) / kChunk);
    uint64_t end = 0;
    for (uint32_t i = 0; i < range.count; ++i) {
      const ChunkRange chunk = catalog->range(ChunkId(range.first.value + i));
      CHECK(chunk.file == file);
      CHECK(chunk.offset == end);
      CHECK(chunk.length == std::min<uint64_t>(kChunk, size - end));
      end += chunk.length;
    }
    CHECK(end == size);
    chunks += range.count;
  }
  CHECK(catalog->chunk_count() == chunks);
}

TEST_CASE("entries are found by name and path, and only those") {
  TempTree tree;
  for (const char* file : {"b", "a", "a.b/x", "a-b", "c/d/e", "c/d/f", "z/y"}) tree.write(file, 3);
  const auto catalog = scan(tree.path());
  CHECK(catalog->find("") == FileId(0));
  for (const char* path : {"b", "a", "a.b", "a.b/x", "a-b", "c", "c/d", "c/d/e", "c/d/f", "z/y"}) {
    INFO(path);
    const auto id = catalog->find(path);
    REQUIRE(id);
    CHECK(catalog->path(*id) == path);
    CHECK(catalog->lookup(catalog->parent(*id), catalog->name(*id)) == id);
  }
  for (const char* path : {"/", "x", "a/b", "c/", "c//d", "/b", "c/d/e/", ".", "..", "c/..", "c/d/g", "aa"}) {
    INFO(path);
    CHECK(!catalog->find(path));
  }
  const Catalog::Children top = catalog->children(FileId(0));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < top.count; ++i) names.emplace_back(catalog->name(FileId(top.first.value + i)));
  CHECK(names == std::vector<std::string>{"a", "a-b", "a.b", "b", "c", "z"});
  CHECK(catalog->parent(FileId(0)) == FileId(0));
  CHECK(catalog->name(FileId(0)).empty());
}

TEST_CASE("attributes are those of the source") {
  TempTree tree;
  tree.write("d/file", 5000);
  tree.make_directory("d/sub");
  REQUIRE(::chmod(tree.at("d/file").c_str(), 0640) == 0);
  const timespec times[2] = {{1, 0}, {1'600'000'000, 123'456'789}};
  REQUIRE(::utimensat(AT_FDCWD, tree.at("d/file").c_str(), times, 0) == 0);
  const timespec before_1970[2] = {{1, 0}, {-5, 250'000'000}};
  REQUIRE(::utimensat(AT_FDCWD, tree.at("d/sub").c_str(), before_1970, 0) == 0);

  const auto catalog = scan(tree.path());
  const FileId file = catalog->find("d/file").value();
  struct stat expected = {};
  REQUIRE(::lstat(tree.at("d/file").c_str(), &expected) == 0);
  const struct stat got = catalog->attributes(file);
  CHECK(got.st_mode == (S_IFREG | 0640));
  CHECK(got.st_uid == expected.st_uid);
  CHECK(got.st_gid == expected.st_gid);
  CHECK(got.st_size == 5000);
  CHECK(got.st_blocks == 10);
  CHECK(got.st_ino == file.value + 1);
  CHECK(got.st_nlink == 1);
  CHECK(got.st_mtim.tv_sec == 1'600'000'000);
  CHECK(got.st_mtim.tv_nsec == 123'456'789);
  CHECK(got.st_atim.tv_nsec == 123'456'789);
  CHECK(got.st_ctim.tv_sec == expected.st_ctim.tv_sec);
  CHECK(got.st_ctim.tv_nsec == expected.st_ctim.tv_nsec);
  CHECK(catalog->stamp(file).mtime_ns == 1'600'000'000'123'456'789);
  CHECK(catalog->source_state(file).inode == expected.st_ino);

  const struct stat sub = catalog->attributes(catalog->find("d/sub").value());
  CHECK(sub.st_mtim.tv_sec == -5);
  CHECK(sub.st_mtim.tv_nsec == 250'000'000);
  CHECK(sub.st_nlink == 2);
  CHECK(catalog->attributes(catalog->find("d").value()).st_nlink == 3);
}

TEST_CASE("identity is that of the dataset, not of where it is mounted") {
  TempTree one;
  TempTree other;
  const auto fill = [](const TempTree& tree) {
    tree.write("a/x", 100);
    tree.write("a/y", 20000, 1);
    tree.write("b/x", 100);
    tree.symlink("a/x", "link");
    for (const char* file : {"a/x", "a/y", "b/x"}) {
      const timespec times[2] = {{0, UTIME_OMIT}, {1'500'000'000, 42}};
      REQUIRE(::utimensat(AT_FDCWD, tree.at(file).c_str(), times, 0) == 0);
    }
  };
  fill(one);
  fill(other);
  const uint64_t identity = scan(one.path())->identity();
  CHECK(scan(other.path())->identity() == identity);
  CHECK(scan(other.path(), kChunk * 2)->identity() != identity);

  SECTION("a name") {
    other.rename("b/x", "b/z");
  }
  SECTION("a place") {
    other.rename("b/x", "x");
  }
  SECTION("a size") {
    REQUIRE(::truncate(other.at("a/y").c_str(), 20001) == 0);
    const timespec times[2] = {{0, UTIME_OMIT}, {1'500'000'000, 42}};
    REQUIRE(::utimensat(AT_FDCWD, other.at("a/y").c_str(), times, 0) == 0);
  }
  SECTION("an mtime") {
    const timespec times[2] = {{0, UTIME_OMIT}, {1'500'000'000, 43}};
    REQUIRE(::utimensat(AT_FDCWD, other.at("a/y").c_str(), times, 0) == 0);
  }
  SECTION("a mode") {
    REQUIRE(::chmod(other.at("a/y").c_str(), 0600) == 0);
  }
  SECTION("a target") {
    other.remove("link");
    other.symlink("a/y", "link");
  }
  SECTION("an empty directory") {
    other.make_directory("a/empty");
  }
  CHECK(scan(other.path())->identity() != identity);
}

TEST_CASE("names that repeat are stored once, and an entry takes at most 100 bytes") {
  CatalogBuilder builder("/data", kChunk, 0);
  builder.add(FileId(0), "", directory());
  for (int i = 0; i < 1000; ++i) builder.add(FileId(0), "d" + std::to_string(10000 + i), directory());
  for (uint32_t d = 1; d <= 1000; ++d) {
    for (int i = 0; i < 10; ++i) builder.add(FileId(d), "f" + std::to_string(i), file_of(1));
  }
  const auto catalog = builder.finish(0, 0);
  REQUIRE(catalog.ok());
  CHECK((*catalog)->size() == 11001);
  CHECK((*catalog)->name_bytes() == 1000 * 6 + 10 * 2 + 5);  // the last: "/data"
  CHECK((*catalog)->memory_bytes() - (*catalog)->name_bytes() <= 100 * (*catalog)->size());
  CHECK((*catalog)->path((*catalog)->find("d10999/f9").value()) == "d10999/f9");
}

TEST_CASE("more chunks than can be numbered are refused with the way out") {
  CatalogBuilder builder("/data", 1, 0);
  builder.add(FileId(0), "", directory());
  builder.add(FileId(0), "huge", file_of(1ULL << 33));
  const auto catalog = builder.finish(0, 0);
  REQUIRE(!catalog);
  CHECK(catalog.error().code == EOVERFLOW);
  CHECK(catalog.error().message.find("choose larger chunks") != std::string::npos);
}

TEST_CASE("times beyond 64 bits of nanoseconds go to the end of the range") {
  struct stat attributes = {};
  attributes.st_mtim.tv_sec = 1LL << 40;
  attributes.st_ctim.tv_sec = -(1LL << 40);
  CHECK(source_attributes(attributes).mtime_ns == std::numeric_limits<int64_t>::max());
  CHECK(source_attributes(attributes).ctime_ns == std::numeric_limits<int64_t>::min());
}

TEST_CASE("chunk keys tell files of one name in two sources apart") {
  const auto key_of = [](const std::string& source, const std::string& name) {
    CatalogBuilder builder(source, kChunk, 2);
    SourceAttributes attributes;
    attributes.mode = S_IFDIR | 0755;
    builder.add(FileId(0), "", attributes);
    attributes.mode = S_IFREG | 0644;
    attributes.size = 100;
    builder.add(FileId(0), name, attributes);
    return chunk_key(**builder.finish(0, 0), ChunkId(0));
  };
  CHECK(key_of("/images", "1") == key_of("/images", "1"));
  CHECK_FALSE(key_of("/images", "1") == key_of("/masks", "1"));
  CHECK_FALSE(key_of("/images", "1") == key_of("/image", "s1"));
}

TEST_CASE("chunk keys tell chunks apart and stay the same over mount points and rescans") {
  TempTree tree;
  tree.write("a/b", 3 * kChunk);
  tree.write("ab", 3 * kChunk);
  tree.write("c", 10);
  const auto catalog = scan(tree.path());
  std::set<std::pair<uint64_t, uint64_t>> keys;
  for (uint32_t i = 0; i < catalog->chunk_count(); ++i) {
    const ChunkKey key = chunk_key(*catalog, ChunkId(i));
    keys.emplace(key.high, key.low);
  }
  CHECK(keys.size() == 7);

  TempTree elsewhere;
  elsewhere.symlink(tree.path(), "mount");
  tree.write("0-first", 10);                                                   // moves all numbers
  const auto again = scan(std::filesystem::canonical(elsewhere.at("mount")));  // as mounting does
  const auto key_of = [](const Catalog& in, const char* path) {
    return chunk_key(in, ChunkId(in.chunks(in.find(path).value()).first.value));
  };
  CHECK(key_of(*again, "c") == key_of(*catalog, "c"));
  CHECK(key_of(*again, "a/b") == key_of(*catalog, "a/b"));
  const timespec times[2] = {{0, UTIME_OMIT}, {1'500'000'000, 43}};
  REQUIRE(::utimensat(AT_FDCWD, tree.at("c").c_str(), times, 0) == 0);
  CHECK(!(key_of(*scan(tree.path()), "c") == key_of(*catalog, "c")));
}
