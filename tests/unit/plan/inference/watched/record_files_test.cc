#include "plan/inference/watched/record_files.h"

#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/formats/index/index_store.h"
#include "plan/formats/samples/record_table.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

namespace clairfs::record_files {
namespace {

constexpr uint32_t kRows = 30;
constexpr uint64_t kRowBytes = 8192;

/// Chunks have 4 KiB. data/: rows.npy and labels.npy, the latter of one chunk; bad.npy, which is none;
/// train.mdb, whose records are numbered by two saved indexes; part-0.mdb and part-1.mdb; rows.bin.
struct PackedFolder {
  PackedFolder() {
    write_array("data/rows.npy", kRows, kRowBytes);
    write_array("data/labels.npy", kRows, 8);
    tree.write("data/bad.npy", 50'000);
    tree.write("data/train.mdb", 200'000);
    for (const char* part : {"data/part-0.mdb", "data/part-1.mdb"}) tree.write(part, 100'000);
    tree.write("data/rows.bin", 100'000);
    source = scanned(tree);
    source.indexes = &store;
    files.emplace(source);
  }
  void write_array(const std::string& path, uint32_t rows, uint64_t row_bytes) const {
    std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                         std::to_string(row_bytes) + "), }";
    header.resize(117, ' ');
    header += '\n';
    tree.write(path, 1);
    std::ofstream out(tree.at(path), std::ios::binary | std::ios::trunc);
    out << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << std::string(rows * row_bytes, 'x');
  }
  FileId file(const std::string& path) const { return *source.catalog->find(path); }
  /// As `clairfs index` does.
  void save_index(const std::string& keys, uint32_t records_each,
                  const std::vector<std::string>& paths = {"data/train.mdb"}) {
    IndexKey key{"lmdb", "keys=" + keys + "\nskip=\ndb=", {}};
    for (const std::string& path : paths) key.files.push_back(file(path));
    const auto made = store.get(key, source.catalog, nullptr, [&]() -> Result<IndexStore::Table> {
      RecordTableBuilder table(source.catalog, "lmdb");
      for (const FileId one : key.files) {
        for (uint32_t i = 0; i < records_each; ++i) {
          if (!table.add_sample(ByteRange{one, i * kPageSize, 3000})) return Error{EINVAL, "lies outside"};
        }
      }
      return table.finish();
    });
    REQUIRE(made);
  }
  std::vector<SeenOpen> reads_of(const std::string& path, size_t count) const {
    return std::vector<SeenOpen>(count, {file(path), ThreadId(1), Access::read, true, 1, 7});
  }

  TempTree tree;
  TempTree saved;
  CapturedLog log;
  IndexStore store{saved.path(), log.logger()};
  DatasetSource source;
  std::optional<RecordFiles> files;
};

}  // namespace

TEST_CASE("an npy file of several chunks is watched once somebody has opened it") {
  PackedFolder f;
  for (const char* path : {"data/rows.npy", "data/labels.npy", "data/rows.bin", "data"}) {
    CHECK(!f.files->watches(f.file(path)));
    f.files->meet(f.file(path));
  }
  CHECK(f.files->watches(f.file("data/rows.npy")));
  for (const char* path : {"data/labels.npy", "data/rows.bin", "data", "data/bad.npy"})
    CHECK(!f.files->watches(f.file(path)));
  const auto numbered = f.files->numbered(f.reads_of("data/rows.npy", 8), 8);
  REQUIRE(numbered.size() == 1);
  const Numbering& rows = numbered.begin()->second.front();
  CHECK(rows.index->size() == kRows);
  PlanSpec plan;
  rows.name_in(plan);
  CHECK(format_plan(plan).find("root=data format=npy file=rows.npy") != std::string::npos);
  CHECK(place_of(*f.source.catalog, plan) == f.file("data/rows.npy"));
  CHECK(rows.is_of(plan));
  plan.file = "labels.npy";
  CHECK(!rows.is_of(plan));
}

TEST_CASE("a file that cannot be numbered is watched no longer") {
  PackedFolder f;
  f.files->meet(f.file("data/bad.npy"));
  REQUIRE(f.files->watches(f.file("data/bad.npy")));
  CHECK(f.files->numbered(f.reads_of("data/bad.npy", 7), 8).empty());
  CHECK(f.files->watches(f.file("data/bad.npy")));  // nobody has tried
  CHECK(f.files->numbered(f.reads_of("data/bad.npy", 8), 8).empty());
  CHECK(!f.files->watches(f.file("data/bad.npy")));
  f.files->meet(f.file("data/bad.npy"));  // its next reader
  CHECK(!f.files->watches(f.file("data/bad.npy")));
}

TEST_CASE("a file whose header could not be read is watched on, and numbered when it can be") {
  PackedFolder f;
  bool fails = true;
  f.source.read_bytes = [&fails, read = f.source.read_bytes](FileId file, uint64_t offset,
                                                             uint32_t length) -> Result<std::string> {
    if (fails) return Error{EIO, "read"};
    return read(file, offset, length);
  };
  f.files.emplace(f.source);
  const FileId rows = f.file("data/rows.npy");
  f.files->meet(rows);
  for (int look = 0; look < 2; ++look) {
    CHECK(f.files->numbered(f.reads_of("data/rows.npy", 8), 8).empty());
    CHECK(f.files->watches(rows));
  }
  fails = false;
  CHECK(f.files->numbered(f.reads_of("data/rows.npy", 8), 8).contains(rows));
  // What is no array stays none.
  f.files->meet(f.file("data/bad.npy"));
  CHECK(f.files->numbered(f.reads_of("data/bad.npy", 8), 8).empty());
  CHECK(!f.files->watches(f.file("data/bad.npy")));
}

TEST_CASE("a file is numbered by each of its saved indexes, of which none is made") {
  PackedFolder f;
  f.files->look_for_indexes();
  CHECK(!f.files->watches(f.file("data/train.mdb")));
  f.save_index("decimal", 20);
  f.save_index("cursor", 21);
  f.save_index("/0123456789abcdef", 22);  // of keys in a file, whose name is not known
  f.source.read_bytes = [](FileId, uint64_t, uint32_t) -> Result<std::string> { return Error{EIO, "read"}; };
  f.files.emplace(f.source);
  f.files->look_for_indexes();
  CHECK(f.files->watches(f.file("data/train.mdb")));
  const auto numbered = f.files->numbered(f.reads_of("data/train.mdb", 8), 8);
  REQUIRE(numbered.size() == 1);
  const auto& ways = numbered.begin()->second;
  REQUIRE(ways.size() == 2);
  for (const Numbering& way : ways) {
    PlanSpec plan;
    way.name_in(plan);
    CHECK(plan.root == "data");
    CHECK(plan.file == "train.mdb");
    CHECK(plan.format == "lmdb");
    CHECK(way.index->size() == (plan.lmdb_keys == "decimal" ? 20U : 21U));
  }
  CHECK(ways[0].records.lmdb_keys != ways[1].records.lmdb_keys);
  // Both are not held where one fills the room.
  RecordFiles few(f.source, ways[0].index->memory_bytes() + ways[1].index->memory_bytes() - 1);
  few.look_for_indexes();
  CHECK(few.numbered(f.reads_of("data/train.mdb", 8), 8).begin()->second.size() == 1);
}

TEST_CASE("several files that one index numbers are watched, and looked at together") {
  PackedFolder f;
  f.save_index("cursor", 20, {"data/part-0.mdb", "data/part-1.mdb"});
  f.files->look_for_indexes();
  const FileId first = f.file("data/part-0.mdb");
  CHECK(f.files->watches(first));
  CHECK(f.files->watches(f.file("data/part-1.mdb")));
  CHECK(!f.files->watches(f.file("data/train.mdb")));
  std::vector<SeenOpen> reads = f.reads_of("data/part-0.mdb", 3);
  CHECK(f.files->numbered(reads, 8).empty());
  const std::vector<SeenOpen> more = f.reads_of("data/part-1.mdb", 5);
  reads.insert(reads.end(), more.begin(), more.end());
  const auto numbered = f.files->numbered(reads, 8);
  REQUIRE(numbered.size() == 1);
  REQUIRE(numbered.contains(first));
  const Numbering& both = numbered.at(first).front();
  CHECK(both.index->size() == 40);
  PlanSpec plan;
  both.name_in(plan);
  CHECK(plan.root == "data");
  CHECK(plan.file == "part-*.mdb");
  CHECK(both.is_of(plan));
  CHECK(place_of(*f.source.catalog, plan) == first);
}

TEST_CASE("several files that no pattern names without others are not watched") {
  PackedFolder f;
  f.save_index("cursor", 20, {"data/part-0.mdb", "data/train.mdb"});
  f.files->look_for_indexes();
  CHECK(!f.files->watches(f.file("data/part-0.mdb")));
}

TEST_CASE("a numbering is held as long as its file is read, and until it is let go") {
  PackedFolder f;
  f.save_index("cursor", 20);
  f.files->look_for_indexes();
  const auto reads = f.reads_of("data/train.mdb", 8);
  const std::weak_ptr<const SampleIndex> held = f.files->numbered(reads, 8).begin()->second.front().index;
  CHECK(!held.expired());
  CHECK(f.files->numbered(reads, 8).begin()->second.front().index == held.lock());
  SECTION("no longer read") {
    CHECK(f.files->numbered(f.reads_of("data/rows.bin", 8), 8).empty());
    CHECK(held.expired());
  }
  SECTION("let go") {
    f.files->let_go();
    CHECK(held.expired());
  }
  SECTION("another index is saved") {
    f.save_index("decimal", 20);
    f.files->look_for_indexes();
    CHECK(f.files->numbered(reads, 8).begin()->second.size() == 2);
  }
}

TEST_CASE("of a raw file a plan says what the records are") {
  PackedFolder f;
  f.files->know(*parse_plan("seed=1 root=data format=raw file=*.bin record=1000"));
  f.files->know(*parse_plan("seed=1 root=data format=npy file=rows.npy"));
  CHECK(!f.files->watches(f.file("data/rows.bin")));
  f.files->know(*parse_plan("seed=1 format=raw file=data/rows.bin record=9000 header=1000"));
  REQUIRE(f.files->watches(f.file("data/rows.bin")));
  const auto numbered = f.files->numbered(f.reads_of("data/rows.bin", 8), 8);
  REQUIRE(numbered.size() == 1);
  CHECK(numbered.begin()->second.front().index->size() == 11);
  CHECK(numbered.begin()->second.front().records.header == 1000);
}

TEST_CASE("a file whose records are so small that no READ shows one is watched no longer") {
  PackedFolder f;
  f.files->know(*parse_plan("seed=1 format=raw file=data/rows.bin record=900 header=1000"));
  REQUIRE(f.files->watches(f.file("data/rows.bin")));
  CHECK(f.files->numbered(f.reads_of("data/rows.bin", 8), 8).empty());
  CHECK(!f.files->watches(f.file("data/rows.bin")));
}

TEST_CASE("pages are told of a READ that does not only go on") {
  PackedFolder f;
  const FileId file = f.file("data/rows.bin");
  const auto first = f.files->read(ThreadId(5), file, 40'960, 8192);
  REQUIRE(first);
  CHECK(first->first == 10);
  CHECK(first->count == 2);
  CHECK(!f.files->read(ThreadId(5), file, 49'152, 4096));
  CHECK(f.files->read(ThreadId(6), file, 49'152, 4096)->first == 12);
  CHECK(f.files->read(ThreadId(0), file, 8192, 4096));  // who cannot be told
  CHECK(!f.files->read(ThreadId(0), file, 12'288, 4096));
  CHECK(!f.files->read(ThreadId(6), file, uint64_t{1} << 45, 4096));  // no number has it
}

TEST_CASE("what a saved index is of can be said in a plan, or nobody looks at its file") {
  const DatasetSource source = scanned(PackedFolder().tree);
  const FileId one(2);
  const FileId two(3);
  const auto names = [&](const IndexKey& key) { return records_of_key(key, source).has_value(); };
  CHECK(names({"lmdb", "keys=cursor\nskip=a*\ndb=x", {one}}));
  CHECK(records_of_key({"lmdb", "keys=cursor\nskip=a*\ndb=x", {one}}, source)->skip == "a*");
  CHECK(records_of_key({"hdf5", "dataset=/a,/b", {one}}, source)->dataset == "/a,/b");
  CHECK(names({"megatron", "", {one, two}}));
  CHECK(!names({"megatron", "", {one, two, one, two}}));
  CHECK(!names({"lmdb", "keys=cursor\nskip=\ndb=", {one, two}}));
  CHECK(!names({"lmdb", "keys=/00\nskip=\ndb=", {one}}));
  CHECK(!names({"lmdb", "something else", {one}}));
  CHECK(!names({"tfrecord", "random_access shards=1", {one}}));
}

}  // namespace clairfs::record_files
