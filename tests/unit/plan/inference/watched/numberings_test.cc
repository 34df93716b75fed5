#include "plan/inference/watched/numberings.h"

#include "cache/catalog/builder.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// root: a/ (x/ (2 files), y, z/ (1 file)), b/ (3 files), c
std::shared_ptr<const Catalog> small_tree() {
  CatalogBuilder builder("/made-up", 4096, 20);
  SourceAttributes folder;
  folder.mode = S_IFDIR | 0755;
  SourceAttributes file;
  file.mode = S_IFREG | 0644;
  file.size = 10;
  builder.add(FileId(0), "", folder);
  const FileId a = builder.add(FileId(0), "a", folder);
  const FileId b = builder.add(FileId(0), "b", folder);
  builder.add(FileId(0), "c", file);
  const FileId x = builder.add(a, "x", folder);
  builder.add(a, "y", file);
  const FileId z = builder.add(a, "z", folder);
  for (const char* name : {"1", "2", "3"}) builder.add(b, name, file);
  for (const char* name : {"1", "2"}) builder.add(x, name, file);
  builder.add(z, "1", file);
  return *builder.finish(0, 0);
}

}  // namespace

TEST_CASE("what a folder holds is counted at any depth") {
  const auto catalog = small_tree();
  const auto count = [&](const char* path) {
    uint64_t most = 0;
    while (holds_more(*catalog, *catalog->find(path), most)) ++most;
    return most;
  };
  CHECK(count("") == 12);
  CHECK(count("a") == 6);
  CHECK(count("b") == 3);
  CHECK(count("a/x") == 2);
}

TEST_CASE("folders are numbered when they are asked for, until they are forgotten") {
  DatasetSource source;
  source.catalog = small_tree();
  Numberings numberings(source);
  const FileId a = *source.catalog->find("a");
  CHECK(numberings.known(a) == nullptr);
  const auto& made = numberings.of(a);
  REQUIRE(!made.empty());
  CHECK(made.back().root == "a");
  CHECK(made.back().index->size() == 4);
  REQUIRE(numberings.known(a) == &made);
  const std::weak_ptr<const SampleIndex> held = made.back().index;
  numberings.forget();
  CHECK(held.expired());
  CHECK(numberings.known(a) == nullptr);
}
