// The search for the order in which records of large files are read, from the READs that the kernel makes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cache/catalog/builder.h"
#include "plan/formats/samples/fixed_records.h"
#include "plan/inference/search/order_search.h"
#include "plan/tracking/read_runs.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"
#include "tests/unit/plan/inference/watched/kernel_reads.h"

namespace clairfs::record_orders {
namespace {

using Way = KernelReads::Way;

constexpr uint32_t kRecords = 3000;
constexpr uint64_t kBytes = 80'000;
constexpr uint64_t kFileBytes = 80 + kBytes * kRecords;
constexpr uint32_t kImages = 600;

/// root: images/ (of 1,000 bytes), rows0, rows1
const DatasetSource& packed_dataset() {
  static const DatasetSource made = [] {
    CatalogBuilder builder("/made-up", 4 << 20, kImages + 4);
    SourceAttributes attributes;
    attributes.mode = S_IFDIR | 0755;
    builder.add(FileId(0), "", attributes);
    const FileId images = builder.add(FileId(0), "images", attributes);
    attributes.mode = S_IFREG | 0644;
    attributes.size = kFileBytes;
    for (const char* name : {"rows0", "rows1"}) builder.add(FileId(0), name, attributes);
    attributes.size = 1000;
    for (uint32_t i = 0; i < kImages; ++i) builder.add(images, std::to_string(10000 + i), attributes);
    DatasetSource source;
    source.catalog = *builder.finish(0, 0);
    return source;
  }();
  return made;
}

FileId packed_file(uint32_t number) {
  return *packed_dataset().catalog->find("rows" + std::to_string(number));
}

std::vector<Numbering> numbered(uint32_t number, uint32_t records = kRecords) {
  const RecordLayout layout{80, kBytes, kBytes};
  auto index = std::make_shared<FixedRecords>(packed_dataset().catalog, "npy", layout);
  index->add(packed_file(number), records);
  index->finish();
  Numbering one{"", std::move(index), {}};
  one.records.format = "npy";
  one.records.file = packed_dataset().catalog->path(packed_file(number));
  return {one};
}

Samples order_in(const std::string& text, uint32_t n = kRecords, uint32_t epoch = 0) {
  auto plan = plan_over(n, text);
  return order_of(plan, epoch);
}

Samples order_of_nobody() {
  std::mt19937 random(41);
  Samples order(kRecords);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// What is recorded of readers of the files.
struct Watched {
  explicit Watched(Way way) : kernels{KernelReads(kFileBytes, way), KernelReads(kFileBytes, way)} {}

  void read(uint32_t thread, uint32_t number, uint32_t record) {
    const FileId file = packed_file(number);
    for (const auto& [offset, length] : kernels[number].touch(80 + kBytes * record, kBytes)) {
      if (runs.note(ThreadId(thread), file, offset, length) != Access::read) continue;
      opens.push_back({file, ThreadId(thread), Access::read, true, static_cast<uint16_t>(length / kPageSize),
                       static_cast<uint32_t>(offset / kPageSize)});
    }
  }
  void open_image(uint32_t thread, uint32_t image) {
    const FileId first = packed_dataset().catalog->children(*packed_dataset().catalog->find("images")).first;
    opens.push_back({FileId(first.value + image), ThreadId(thread), Access::open});
  }
  /// A DataLoader with two workers, and another thread that reads one record in twenty.
  void load(uint32_t number, const Samples& order, size_t most) {
    std::mt19937 random(5);
    constexpr uint32_t kBatch = 8;
    LoaderModel(static_cast<uint32_t>(order.size()), {1, kBatch, 2}, random).run([&](uint32_t position) {
      if (random() % 20 == 0) read(999, number, static_cast<uint32_t>(random() % kRecords));
      read(100 + position / kBatch % 2, number, order[position]);
      return opens.size() < most;
    });
  }

  std::vector<KernelReads> kernels;
  ReadRuns runs;
  std::vector<SeenOpen> opens;
};

struct RecordSearch {
  /// Of so many of the files it is known where their records are.
  explicit RecordSearch(uint32_t files = 2) {
    for (uint32_t number = 0; number < files; ++number)
      orders.number_records(packed_file(number), numbered(number));
  }
  /// Looks as Inference does.
  std::optional<FoundOrder> watch(const std::vector<SeenOpen>& opens) {
    for (size_t seen = AccessRecorder::kFirstLook; seen <= opens.size(); seen += seen / 2) {
      auto found = orders.find(std::span(opens).first(seen), {}, std::nullopt);
      if (found) return found;
    }
    return std::nullopt;
  }

  OrderSearch orders{packed_dataset(), [] { return false; }, OrderSearch::Shuffles::none};
};

}  // namespace

TEST_CASE("the order is found in which records are read, by whatever READs the kernel makes") {
  for (const Way way : {Way::pread, Way::page_by_page, Way::around}) {
    for (const char* text : {"sampler=torch.distributed seed=42", "sampler=torch.random seed=3407",
                             "sampler=numpy.default_rng seed=1", "sampler=python.random seed=0"}) {
      Watched reader(way);
      reader.load(0, order_in(text), 160);
      const auto found = RecordSearch().watch(reader.opens);
      INFO(text << " " << static_cast<int>(way));
      REQUIRE(found);
      const PlanSpec expected = *parse_plan(text);
      CHECK(found->plan.sampler == expected.sampler);
      CHECK(found->plan.seed == expected.seed);
      CHECK(found->plan.format == "npy");
      CHECK(found->plan.file == "rows0");
      CHECK(found->plan.epochs == 1);
      CHECK(found->log_chance < std::log(kMostWrong));
    }
  }
}

// After some hundred READs all of it is in the page cache.
TEST_CASE("the order is found in which rows of a small file are read that is mapped without advice") {
  constexpr uint32_t kFew = 1000;
  Watched reader(Way::around);
  reader.kernels[0] = KernelReads(80 + kBytes * kFew, Way::around, 1 << 20);
  for (const uint32_t record : order_in("seed=42", kFew)) reader.read(101, 0, record);
  CHECK(reader.opens.size() < 150);
  RecordSearch search(0);
  search.orders.number_records(packed_file(0), numbered(0, kFew));
  const auto found = search.watch(reader.opens);
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
}

TEST_CASE("the next epoch tells how the order of records goes on") {
  Watched reader(Way::page_by_page);
  reader.load(0, order_in("seed=42"), 160);
  RecordSearch search;
  const auto found = search.watch(reader.opens);
  REQUIRE(found);
  Watched next(Way::page_by_page);
  next.load(0, order_in("seed=42", kRecords, 1), 100);
  const auto on = search.orders.follow_on(next.opens, *found);
  REQUIRE(on);
  CHECK(on->plan.file == "rows0");
  CHECK(on->plan.epochs == 0);
  CHECK(on->plan.first_epoch == 1);
}

TEST_CASE("an order of records that nobody foretells is never taken for one") {
  for (const Way way : {Way::page_by_page, Way::around}) {
    Watched reader(way);
    reader.load(0, order_of_nobody(), 400);
    CHECK(!RecordSearch().watch(reader.opens));
  }
}

TEST_CASE("a file whose records nobody has numbered has no order") {
  Watched reader(Way::pread);
  reader.load(0, order_in("seed=42"), 160);
  CHECK(!RecordSearch(0).watch(reader.opens));
}

TEST_CASE("who reads the records of two files in one order is found by either") {
  Watched reader(Way::page_by_page);
  const Samples order = order_in("seed=42");
  for (uint32_t i = 0; i < 80; ++i) {
    for (const uint32_t number : {0, 1}) reader.read(101, number, order[i]);
  }
  const auto found = RecordSearch().watch(reader.opens);
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK((found->plan.file == "rows0" || found->plan.file == "rows1"));
}

TEST_CASE("the order is found in which records of several files are read one after the other") {
  auto index =
      std::make_shared<FixedRecords>(packed_dataset().catalog, "npy", RecordLayout{80, kBytes, kBytes});
  const std::vector<FileId> files{packed_file(0), packed_file(1)};
  for (const FileId file : files) index->add(file, kRecords);
  index->finish();
  Numbering both{"", std::move(index), {}};
  both.records.format = "npy";
  both.records.file = "rows*";
  both.files = std::make_shared<const std::vector<FileId>>(files);
  RecordSearch search(0);
  search.orders.number_records(packed_file(0), {both});
  const auto opens_of_epoch = [](uint32_t epoch) {
    Watched reader(Way::page_by_page);
    const Samples order = order_in("seed=42", 2 * kRecords, epoch);
    for (uint32_t i = 0; i < 80; ++i) reader.read(101, order[i] / kRecords, order[i] % kRecords);
    return reader.opens;
  };
  const auto found = search.watch(opens_of_epoch(0));
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK(found->plan.file == "rows*");
  const auto on = search.orders.follow_on(opens_of_epoch(1), *found);
  REQUIRE(on);
  CHECK(on->plan.epochs == 0);
}

TEST_CASE("of two readers of two files each has its own order") {
  Watched readers(Way::page_by_page);
  const Samples one = order_in("seed=42");
  const Samples other = order_in("sampler=numpy.default_rng seed=1");
  for (uint32_t i = 0; i < 80; ++i) {
    readers.read(101, 0, one[i]);
    readers.read(201, 1, other[i]);
  }
  for (const uint32_t thread : {101, 201}) {
    std::vector<SeenOpen> theirs = readers.opens;
    std::erase_if(theirs, [&](const SeenOpen& open) { return open.thread != ThreadId(thread); });
    const auto found = RecordSearch().watch(theirs);
    REQUIRE(found);
    CHECK(found->plan.file == (thread == 101 ? "rows0" : "rows1"));
    CHECK(found->plan.sampler == (thread == 101 ? "torch.distributed" : "numpy.default_rng"));
  }
}

TEST_CASE("records that are read beside files do not keep the order of the files from being found") {
  Watched reader(Way::page_by_page);
  const Samples images = order_in("seed=42", kImages);
  const Samples records = order_of_nobody();
  for (uint32_t i = 0; i < 80; ++i) {
    reader.open_image(101, images[i]);
    if (i % 2 == 0) reader.read(101, 0, records[i]);
  }
  const auto found = RecordSearch().watch(reader.opens);
  REQUIRE(found);
  CHECK(found->plan.root == "images");
  CHECK(found->plan.file.empty());
  CHECK(found->plan.seed == "42");
}

TEST_CASE("a suggested order of records is tried first") {
  Watched reader(Way::page_by_page);
  reader.load(0, order_in("seed=918273646"), 160);
  RecordSearch search;
  REQUIRE(!search.watch(reader.opens));
  search.orders.suggest({*parse_plan("format=npy file=rows0 seed=918273646")});
  const auto found = search.watch(reader.opens);
  REQUIRE(found);
  CHECK(found->plan.seed == "918273646");
  CHECK(found->plan.file == "rows0");
}

}  // namespace clairfs::record_orders
