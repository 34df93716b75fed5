#include "fs/control/residency.h"

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/fake_store.h"
#include "tests/support/made_up_job.h"

using namespace clairfs;

namespace {

constexpr uint32_t kResidencyChunk = 64 << 10;

/// a/one, a/two, which has two chunks, three, and a symlink.
std::shared_ptr<const Catalog> tree_of_three() {
  CatalogBuilder builder("/made-up", kResidencyChunk, 6);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  builder.add(FileId(0), "", attributes);
  const FileId a = builder.add(FileId(0), "a", attributes);
  attributes.mode = S_IFLNK | 0777;
  builder.add(FileId(0), "link", attributes);
  builder.set_target("a/one");
  attributes.mode = S_IFREG | 0644;
  attributes.size = 3000;
  builder.add(FileId(0), "three", attributes);
  attributes.size = 10000;
  builder.add(a, "one", attributes);
  attributes.size = kResidencyChunk + 5;
  builder.add(a, "two", attributes);
  return *builder.finish(0, 0);
}

/// A cache whose RAM has room for all of that but the larger chunk.
struct ResidencyFixture {
  explicit ResidencyFixture(std::shared_ptr<const Catalog> of = tree_of_three()) : catalog(std::move(of)) {
    const std::vector<NvmeStore*> stores{&store};
    cache = std::move(
        *ChunkCache::create({*catalog, source, stores, policy, metrics, log.logger()}, 4 * kPageSize));
  }
  ~ResidencyFixture() { CHECK(cache->stop(std::chrono::minutes(1))); }

  void bring(const std::string& path) {
    const Catalog::Chunks chunks = catalog->chunks(*catalog->find(path));
    for (uint32_t i = 0; i < chunks.count; ++i) {
      cache->acquire(ChunkId(chunks.first.value + i), {}, [](const auto&) {});
      CHECK(source.complete_all());
      store.settle();
    }
  }

  std::optional<Result<std::string>> run(std::string_view command) {
    return run_residency_command(
        *catalog, *cache, [this] { return placement; }, command);
  }
  nlohmann::json answer(std::string_view command) {
    INFO(command);
    const auto said = run(command);
    REQUIRE(said);
    REQUIRE(said->ok());
    return nlohmann::json::parse(said->value());
  }

  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  FakeStore store{1 << 20};
  std::shared_ptr<const PlacementMap> placement;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;  // last: uses the others
};

nlohmann::json kept(uint64_t files, uint64_t ram, uint64_t nvme, uint64_t none) {
  return {{"files", files}, {"bytes", ram + nvme + none}, {"ram", ram}, {"nvme", nvme}, {"none", none}};
}

}  // namespace

TEST_CASE("where tells of the files at or below a path how many bytes each tier has") {
  ResidencyFixture f;
  CHECK(f.answer("where") == kept(3, 0, 0, 13000 + kResidencyChunk + 5));
  f.bring("a/one");
  f.bring("a/two");
  CHECK(f.answer("where a") == kept(2, 10005, kResidencyChunk, 0));
  CHECK(f.answer("where a/two") == kept(1, 5, kResidencyChunk, 0));
  CHECK(f.answer("where three") == kept(1, 0, 0, 3000));
  CHECK(f.answer("where ") == kept(3, 10005, kResidencyChunk, 3000));
  CHECK(f.answer("where link") == kept(0, 0, 0, 0));
}

TEST_CASE("evict takes the files at or below a path out of all tiers, and no others") {
  ResidencyFixture f;
  for (const char* path : {"a/one", "a/two", "three"}) f.bring(path);
  CHECK(f.answer("evict a") == kept(2, 0, 0, 10005 + kResidencyChunk));
  CHECK(f.store.chunks() == 0);
  CHECK(f.answer("where") == kept(3, 3000, 0, 10005 + kResidencyChunk));
  CHECK(f.answer("evict") == kept(3, 0, 0, 13005 + kResidencyChunk));
}

TEST_CASE("in a job with a plan where tells how much is at home on which node") {
  const MadeUpJob job({10000, 20000, 30000}, kResidencyChunk, 2, 1, "seed=1");
  ResidencyFixture f(job.catalog);
  const auto place = [&](const std::vector<NodeCapacity>& capacities) {
    f.placement =
        std::make_shared<const PlacementMap>(PlacementMap::make(*job.catalog, job.uses(), capacities));
    return f.answer("where");
  };
  const nlohmann::json all_at_node_1 = place({{0, 0}, {1 << 20, 0}});
  CHECK(all_at_node_1["homes"] == nlohmann::json::object({{"1", 60000}}));
  CHECK(all_at_node_1["homeless"] == 0);
  CHECK(f.answer("where f000000001")["homes"] == nlohmann::json::object({{"1", 20000}}));
  const nlohmann::json without_room = place({{0, 0}, {0, 0}});
  CHECK(without_room["homes"].empty());
  CHECK(without_room["homeless"] == 60000);
  CHECK(without_room["none"] == 60000);
}

TEST_CASE("a path that the dataset has not is refused, and other commands are left to others") {
  ResidencyFixture f;
  for (const char* command : {"where b", "where a/", "where /a", "evict a/three"}) {
    INFO(command);
    const auto said = f.run(command);
    REQUIRE(said);
    REQUIRE_FALSE(said->ok());
    CHECK(said->error().code == ENOENT);
  }
  CHECK_THAT(f.run("where b\n")->error().message, Contains("the dataset has no b\\n"));
  for (const char* command : {"", "whereabouts a", " where a", "plan seed=1"}) CHECK_FALSE(f.run(command));
}
