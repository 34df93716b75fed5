// Plans that find themselves, of records in one large file: from the READs that the kernel makes to the plan.
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "plan/formats/index/index_store.h"
#include "plan/formats/samples/record_table.h"
#include "plan/plan_manager.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/reader_model.h"
#include "tests/support/staging_fixture.h"
#include "tests/unit/plan/inference/watched/kernel_reads.h"
#include "tests/unit/plan/plans_by_hand.h"

namespace clairfs::found_records {
namespace {

constexpr uint32_t kRecords = 3000;
constexpr uint64_t kBytes = 8192;
constexpr uint64_t kHeader = 128;    // of rows.npy
constexpr uint64_t kStride = 12288;  // of the values in train.mdb: whole pages each
constexpr FileId kArray{1};          // rows.npy
constexpr FileId kDatabase{2};       // train.mdb

/// The two files, of zeros but for the header. No test looks at the records' bytes.
void write_files(const TempTree& tree) {
  std::string start("\x93NUMPY\x01\x00\x76\x00", 10);
  start += "{'descr': '|u1', 'fortran_order': False, 'shape': (3000, 8192), }";
  start.resize(kHeader - 1, ' ');
  start += '\n';
  std::ofstream(tree.at("rows.npy"), std::ios::binary) << start;
  std::filesystem::resize_file(tree.at("rows.npy"), kHeader + kRecords * kBytes);
  std::ofstream(tree.at("train.mdb")).close();
  std::filesystem::resize_file(tree.at("train.mdb"), kRecords * kStride);
}

/// A mount of the two, on which nothing is registered.
struct RecordsFixture {
  RecordsFixture() : staged(over(), "name=unknown format=files shuffle=false") {}
  ~RecordsFixture() { plans.reset(); }

  StagingOver over() const {
    StagingOver made;
    made.catalog = dataset.catalog;
    made.budget = made.ram = 16 << 20;
    return made;
  }
  /// `clairfs index` has been there.
  void save_index() {
    const IndexKey key{"lmdb", "keys=cursor\nskip=\ndb=", {kDatabase}};
    const auto made = indexes.get(key, dataset.catalog, nullptr, [&]() -> Result<IndexStore::Table> {
      RecordTableBuilder table(dataset.catalog, "lmdb");
      for (uint32_t i = 0; i < kRecords; ++i) {
        if (!table.add_sample(ByteRange{kDatabase, i * kStride + 16, kBytes}))
          return Error{EINVAL, "outside"};
      }
      return table.finish();
    });
    REQUIRE(made);
  }
  /// `readable`: else each read of the dataset fails, as one that nobody has asked for.
  void begin(bool readable) {
    PlanManager::Deps deps{dataset, {NodeId(0), 1}, *staged.staging,
                           clock,   staged.metrics, staged.log.logger()};
    deps.dataset.indexes = &indexes;
    if (!readable) {
      deps.dataset.read_bytes = [](FileId, uint64_t, uint32_t) -> Result<std::string> {
        return Error{EIO, "nobody has asked for it"};
      };
    }
    deps.infer = InferMode::cheap;
    deps.by_hand = true;
    deps.when_idle = false;
    deps.processes = [](uint32_t) { return std::optional<ProcessFacts>(); };
    plans.emplace(std::move(deps));
  }
  void read(FileId file, uint32_t record) {
    const uint64_t offset = file == kArray ? kHeader + record * kBytes : record * kStride + 16;
    for (const auto& [at, length] : kernel.touch(offset, kBytes))
      plans->observe(ThreadId(7), file, at, length, Access::read);
  }
  void read(FileId file, const Samples& order, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) read(file, order[i]);
  }
  bool settle() { return settle_plans(*plans, clock.time); }
  bool settle_until(const std::function<bool()>& condition) {
    return settle_plans_until(*plans, clock, condition);
  }
  uint64_t seen() const { return nlohmann::json::parse(plans->detect(true)).at("opens").get<uint64_t>(); }
  bool follows(const std::string& words) const {
    return plans->next("auto", 1).ok() && plans->texts().find(words) != std::string::npos;
  }

  TempTree tree;
  TempTree saved;
  DatasetSource dataset = (write_files(tree), scanned(tree, 1 << 20));
  MovedClock clock;
  StagingFixture staged;
  IndexStore indexes{saved.path(), staged.log.logger()};
  KernelReads kernel{kRecords * kStride, KernelReads::Way::page_by_page};  // of the file that is read
  std::optional<PlanManager> plans;
};

Samples order_of_records(uint32_t epoch) {
  auto plan = plan_over(kRecords, "seed=42");
  return order_of(plan, epoch);
}

}  // namespace

TEST_CASE("rows of an array that are read in a known order are planned without a word, for all epochs") {
  RecordsFixture mount;
  mount.begin(true);
  mount.plans->observe(ThreadId(7), kArray, 0, kPageSize,
                       Access::read);  // the header: it is watched from here
  const Samples first = order_of_records(0);
  mount.read(kArray, first, 0, 70);
  REQUIRE(mount.settle_until([&] { return mount.follows("seed=42"); }));
  CHECK(mount.follows("format=npy file=rows.npy"));
  const auto told = nlohmann::json::parse(mount.plans->detect(true));
  CHECK(told.at("state") == "found");
  CHECK(told.at("plan").get<std::string>().find("format=npy file=rows.npy") != std::string::npos);
  CHECK(told.at("log10_chance").get<double>() < -9);
  CHECK(mount.plans->detect(false).find("reads of records") != std::string::npos);
  mount.read(kArray, first, 70, kRecords);
  CHECK(mount.staged.metrics.plan_observations_in_order.value() > kRecords / 2);
  CHECK(mount.staged.metrics.plan_observations_out_of_order.value() <= kRecords / 100);
  // What was consumed is no longer in the page cache.
  mount.kernel = KernelReads(kRecords * kStride, KernelReads::Way::page_by_page);
  mount.read(kArray, order_of_records(1), 0, 100);
  CHECK(mount.settle_until([&] { return mount.follows("first_epoch=1"); }));
}

TEST_CASE("records of a database are planned from its saved index, and nothing is read for that") {
  RecordsFixture mount;
  mount.save_index();
  mount.begin(false);
  const Samples order = order_of_records(0);
  mount.read(kDatabase, order, 0, 5);
  CHECK(mount.seen() == 1);  // one like any other, until the saved indexes were looked for
  REQUIRE(mount.settle());
  mount.read(kDatabase, order, 5, 80);
  CHECK(mount.seen() > 1);
  REQUIRE(mount.settle_until([&] { return mount.follows("seed=42"); }));
  CHECK(mount.follows("format=lmdb file=train.mdb"));
  CHECK(mount.follows("keys=cursor"));
}

TEST_CASE("an array that is read from its beginning to its end is a file that was opened once") {
  RecordsFixture mount;
  mount.begin(false);
  constexpr uint64_t kRead = 128 << 10;
  for (uint64_t at = 0; at < kRecords * kBytes; at += kRead)
    mount.plans->observe(ThreadId(7), kArray, at, kRead, Access::read);
  CHECK(mount.seen() == 1);
}

TEST_CASE("a database without an index is a file that was opened once, and nothing is read of it") {
  RecordsFixture mount;
  mount.begin(false);
  mount.read(kDatabase, order_of_records(0), 0, 200);
  CHECK(mount.seen() == 1);
  CHECK(!mount.settle_until([&] { return mount.seen() > 1 || mount.follows(""); }));
}

TEST_CASE("an index that is made while the mount is there is known to those who watch") {
  RecordsFixture mount;
  mount.begin(false);
  const Samples order = order_of_records(0);
  mount.read(kDatabase, order, 0, 5);
  REQUIRE(mount.seen() == 1);
  mount.save_index();
  const std::string plan = "name=index format=lmdb file=train.mdb keys=cursor shuffle=false epochs=1";
  REQUIRE(eventually([&] {
    const auto said = mount.plans->index(plan);
    return said && !said->starts_with("indexing ");
  }));
  REQUIRE(mount.settle());
  mount.read(kDatabase, order, 5, 10);
  CHECK(mount.seen() > 1);
}

}  // namespace clairfs::found_records
