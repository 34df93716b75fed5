#include "plan/inference/watched/numberings.h"

#include "cache/catalog/builder.h"
#include "plan/formats/samples/record_table.h"
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

TEST_CASE("a plan of GPT samples is none of the sequences that they are made of") {
  Numbering sequences;
  sequences.root = "data";
  sequences.index = RecordTableBuilder(small_tree(), "megatron").finish();
  sequences.records.file = "tokens.bin";
  const PlanSpec plain = *parse_plan("root=data format=megatron file=tokens.bin seed=42");
  CHECK(sequences.is_of(plain));
  PlanSpec gpt = plain;
  gpt.sequence_length = 1024;
  CHECK(!sequences.is_of(gpt));
  sequences.records.sequence_length = 1024;
  CHECK(sequences.is_of(gpt));
  const auto is_of_other = [&](const auto& change) {
    PlanSpec other = gpt;
    change(other);
    return sequences.is_of(other);
  };
  CHECK(!is_of_other([](PlanSpec& plan) { plan.train_samples = 5000; }));
  CHECK(!is_of_other([](PlanSpec& plan) { plan.split = "969,30,1"; }));
  CHECK(!is_of_other([](PlanSpec& plan) { plan.cache = "saved"; }));
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
