// Made-up LMDB files: what no real one says. Real ones: tests/plan/records/test_lmdb_real.py.
#include <cerrno>
#include <cstring>
#include <fstream>

#include "plan/formats/dataset.h"
#include "plan/formats/formats.h"
#include "plan/formats/lmdb/key_order.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

constexpr size_t kPage = 4096;

/// A file page by page; numbers are little-endian as on the machines that run this.
class MadeUpLmdb {
 public:
  explicit MadeUpLmdb(uint64_t pages) : bytes_(pages * kPage, '\0') {}

  template <class Number>
  void put(uint64_t page, size_t at, Number number) {
    std::memcpy(&bytes_[page * kPage + at], &number, sizeof(number));
  }

  void meta(uint64_t page, uint64_t transaction, uint16_t depth, uint64_t entries, uint64_t root) {
    put<uint16_t>(page, 10, 0x08);
    put<uint32_t>(page, 16, 0xBEEFC0DE);
    put<uint32_t>(page, 20, 1);
    put<uint32_t>(page, 40, kPage);
    put<uint16_t>(page, 94, depth);
    put<uint64_t>(page, 120, entries);
    put<uint64_t>(page, 128, root);
    put<uint64_t>(page, 136, bytes_.size() / kPage - 1);
    put<uint64_t>(page, 144, transaction);
  }

  void metas(uint16_t depth, uint64_t entries, uint64_t root) {
    meta(0, 0, 0, 0, UINT64_MAX);
    meta(1, 1, depth, entries, root);
  }

  void branch(uint64_t page, const std::vector<uint64_t>& children) {
    size_t end = begin(page, 0x01, children.size());
    for (size_t i = 0; i < children.size(); ++i) {
      end -= 8;
      place(page, i, end);
      put<uint64_t>(page, end, children[i]);  // of which the upper 16 bits are the size of the key: none
    }
  }

  struct Record {
    std::string key;
    uint32_t bytes;
    uint64_t overflow = 0;
  };
  void leaf(uint64_t page, const std::vector<Record>& records) {
    size_t end = begin(page, 0x02, records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& r = records[i];
      end -= (8 + r.key.size() + (r.overflow != 0 ? 8 : r.bytes) + 1) / 2 * 2;
      place(page, i, end);
      put<uint32_t>(page, end, r.bytes);
      put<uint16_t>(page, end + 4, r.overflow != 0 ? 1 : 0);
      put<uint16_t>(page, end + 6, static_cast<uint16_t>(r.key.size()));
      std::memcpy(&bytes_[page * kPage + end + 8], r.key.data(), r.key.size());
      if (r.overflow != 0) put<uint64_t>(page, end + 8 + r.key.size(), r.overflow);
    }
  }

  SampleIndexResult indexed(const std::string& keys = "cursor", size_t cut = 0) const {
    const TempTree tree;
    std::ofstream(tree.at("x"), std::ios::binary) << bytes_.substr(0, bytes_.size() - cut);
    const DatasetSource source = scanned(tree);
    return index_lmdb(source, DatasetRoot{FileId(0), 0}, {"x", keys, "", ""});
  }

  /// Somebody turns the file into `after` when its page 2 was read.
  SampleIndexResult indexed_meanwhile(const MadeUpLmdb& after) const {
    const TempTree tree;
    std::ofstream(tree.at("x"), std::ios::binary) << bytes_;
    DatasetSource source = scanned(tree);
    const MadeUpLmdb* now = this;
    source.read_bytes = [&](FileId, uint64_t offset, uint32_t length) -> Result<std::string> {
      std::string bytes = now->bytes_.substr(offset, length);
      if (offset == 2 * kPage) now = &after;
      return bytes;
    };
    return index_lmdb(source, DatasetRoot{FileId(0), 0}, {"x", "cursor", "", ""});
  }

  std::string refusal(const std::string& keys = "cursor", size_t cut = 0) const {
    const auto index = indexed(keys, cut);
    REQUIRE(!index);
    CHECK(index.error().code == EINVAL);
    return index.error().message;
  }

 private:
  size_t begin(uint64_t page, uint16_t flags, size_t nodes) {
    put<uint64_t>(page, 0, page);
    put<uint16_t>(page, 10, flags);
    put<uint16_t>(page, 12, static_cast<uint16_t>(16 + 2 * nodes));
    put<uint16_t>(page, 14, static_cast<uint16_t>(16 + 2 * nodes));
    return kPage;
  }
  void place(uint64_t page, size_t node, size_t at) {
    put<uint16_t>(page, 16 + 2 * node, static_cast<uint16_t>(at));
  }

  std::string bytes_;
};

}  // namespace

TEST_CASE("lmdb: values in leaves and beside them, and what is shared") {
  MadeUpLmdb file(12);
  file.metas(2, 5, 2);
  file.branch(2, {3, 4});
  file.leaf(3, {{"0", 100}, {"1", 7}});
  file.leaf(4, {{"2", 5000, 6}, {"3", 20}, {"__len__", 9000, 8}});
  const auto index = file.indexed();
  if (!index) FAIL(index.error().message);
  REQUIRE((*index)->size() == 4);
  CHECK((*index)->format() == "lmdb");
  CHECK((*index)->read_block() == 1);
  CHECK((*index)->range(0, 0).offset == 3 * kPage + kPage - 110 + 9);
  CHECK((*index)->range(0, 0).length == 100);
  CHECK((*index)->range(2, 0).offset == 6 * kPage + 16);
  CHECK((*index)->range(2, 0).length == 5000);
  CHECK((*index)->path(3) == "x[3]");
  // Metas and the branch, the leaf that leads elsewhere; the value that is no sample. Not the leaf of
  // samples.
  const auto shared = (*index)->shared_ranges();
  REQUIRE(shared.size() == 3);
  CHECK((shared[0].offset == 0 && shared[0].length == 3 * kPage));
  CHECK((shared[1].offset == 4 * kPage && shared[1].length == kPage));
  CHECK((shared[2].offset == 8 * kPage + 16 && shared[2].length == 9000));
}

TEST_CASE("lmdb: trees that no writer makes are refused") {
  MadeUpLmdb file(12);
  file.metas(2, 2, 2);
  file.leaf(3, {{"0", 100}});
  file.leaf(4, {{"1", 100}});
  file.branch(2, {3, 4});
  CHECK(file.indexed());
  CHECK_THAT(file.refusal("cursor", 8 * kPage), Contains("ends before its page 4"));
  file.branch(2, {3, 3});
  CHECK_THAT(file.refusal(), Contains("lead to each other"));
  file.branch(2, {3, 2});
  CHECK_THAT(file.refusal(), Contains("something else where page 2 should be"));
  file.branch(2, {3, 400});
  CHECK_THAT(file.refusal(), Contains("ends before its page 400"));
  file.branch(2, {3, 1});
  CHECK_THAT(file.refusal(), Contains("ends before its page 1"));
  file.branch(2, {3});
  CHECK_THAT(file.refusal(), Contains("1 records where it should have 2"));
  file.branch(2, {3, 4});
  file.put<uint16_t>(4, 16, 4090);
  CHECK_THAT(file.refusal(), Contains("outside its page 4"));
  file.leaf(4, {{"1", 5000, 11}});
  CHECK_THAT(file.refusal(), Contains("beyond its end"));
  file.leaf(4, {{"1", 4080, 11}});
  CHECK(file.indexed());
  file.metas(2000, 2, 2);
  CHECK_THAT(file.refusal(), Contains("2000 levels"));
}

TEST_CASE("lmdb: a branch that leads to itself ends") {
  MadeUpLmdb file(12);
  file.metas(30, 2, 2);
  file.branch(2, {2});
  CHECK_THAT(file.refusal(), Contains("lead to each other"));
}

TEST_CASE("lmdb: a branch that names more pages than there are is not read to its end") {
  MadeUpLmdb file(12);
  file.metas(2, 2, 2);
  file.branch(2, std::vector<uint64_t>(11, 3));
  CHECK_THAT(file.refusal(), Contains("lead to each other"));
  file.branch(2, std::vector<uint64_t>(248, 3));
  CHECK_THAT(file.refusal(), Contains("names more pages than it has"));
  file.put<uint16_t>(2, 16 + 2 * 100, 4095);  // the hundredth would be refused for itself
  CHECK_THAT(file.refusal(), Contains("names more pages than it has"));
  CHECK_THAT(file.refusal("cursor", 8 * kPage), Contains("names more pages than it has"));
}

TEST_CASE("lmdb: other formats and versions are refused with their names") {
  MadeUpLmdb file(4);
  file.metas(1, 1, 2);
  file.leaf(2, {{"a", 1}});
  CHECK(file.indexed());
  CHECK((*file.indexed("decimal"))->size() == 0);
  CHECK_THAT(file.refusal("x%dy%d"), Contains("keys=x%dy%d") && Contains("once in each pattern"));
  file.put<uint32_t>(1, 20, 999);
  CHECK_THAT(file.refusal(), Contains("development version"));
  file.put<uint32_t>(0, 20, 7);
  CHECK_THAT(file.refusal(), Contains("version 7"));
  file.put<uint32_t>(0, 20, 1);
  file.put<uint32_t>(1, 20, 1);
  file.put<uint16_t>(1, 92, 0x04);
  CHECK_THAT(file.refusal(), Contains("MDB_DUPSORT"));
  file.put<uint16_t>(1, 92, 0);
  file.put<uint32_t>(0, 40, 4097);
  CHECK_THAT(file.refusal(), Contains("pages of 4097 bytes"));
  file.put<uint32_t>(0, 12, 0xBEEFC0DE);
  file.put<uint32_t>(0, 16, 1);
  CHECK_THAT(file.refusal(), Contains("32-bit"));
}

TEST_CASE("lmdb: a transaction that is committed while the file is read") {
  MadeUpLmdb file(4);
  file.metas(1, 1, 2);
  file.leaf(2, {{"a", 1}});
  MadeUpLmdb after = file;
  CHECK(file.indexed_meanwhile(after));
  after.meta(0, 2, 1, 1, 2);  // the older meta page becomes the newer
  const auto index = file.indexed_meanwhile(after);
  REQUIRE(!index);
  CHECK(index.error().code == EINVAL);
  CHECK_THAT(index.error().message, Contains("was written to while it was read"));
}

TEST_CASE("lmdb: escapes in lists of keys") {
  CHECK(lmdb::unescaped("a%20b%2Cc") == "a b,c");
  CHECK(lmdb::unescaped("100%") == "100%");
  CHECK(lmdb::unescaped("%4") == "%4");
  CHECK(lmdb::unescaped("%zz%41") == "%zzA");
}
