// READs as the kernel makes them: in whole pages, of records that begin and end anywhere.
#include <filesystem>
#include <fstream>
#include <memory>

#include "plan/formats/dataset.h"
#include "plan/tracking/read_runs.h"
#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kRows = 4000;

// The mount of a plan of the records of one file, of which nothing was pushed.
class PagedFile {
 public:
  PagedFile(uint64_t record, const std::string& plan_text)
      : plan(plan_over(kRows, "seed=42 epochs=2 batch=1 workers=0 " + plan_text)),
        tracker(plan.reader_slack(), plan.last_epoch()) {
    std::ofstream(tree_.at("rows.bin")).close();
    std::filesystem::resize_file(tree_.at("rows.bin"), 77 + record * kRows);
    const DatasetSource source = scanned(tree_, 1 << 20);
    auto made = make_sample_index(
        *parse_plan("seed=1 format=raw file=rows.bin header=77 record=" + std::to_string(record)), source);
    if (!made) throw std::runtime_error(made.error().message);
    index_ = *made;
    for (const uint32_t epoch : {0, 1}) {
      tracker.add_epoch(std::make_shared<const SequencePositions>(
                            std::make_shared<EpochSequence>(Epoch(epoch), order_of(plan, epoch), 0)),
                        uint64_t{epoch} * kRows);
    }
  }

  // Mapped files are read page by page. `begun`: the page where the record begins is in the page cache, as
  // that of another one.
  void read(uint32_t sample, bool mapped, bool begun = false) {
    const ByteRange record = index_->range(sample, 0);
    const uint64_t begin = record.offset / kPageSize * kPageSize + (begun ? kPageSize : 0);
    const uint64_t end = round_to_pages(record.offset + record.length);
    const uint64_t step = mapped ? kPageSize : end - begin;
    for (uint64_t at = begin; at < end; at += step) ask(record.file, at, step);
  }

  AccessSequence plan;
  Tracker tracker;

 private:
  void ask(FileId file, uint64_t offset, uint64_t length) {
    now_ += std::chrono::milliseconds(1);
    const Access kind = runs_.note(ThreadId(1), file, offset, length);
    Samples samples;
    index_->samples_of(file, offset, length, [&](uint32_t sample) { samples.push_back(sample); });
    tracker.observe(samples, kind, now_);
  }

  const TempTree tree_;
  std::shared_ptr<const SampleIndex> index_;
  ReadRuns runs_;
  TimePoint now_{std::chrono::seconds(1)};
};

}  // namespace

TEST_CASE("a reader of records of any size that begins again is found by its READs") {
  const uint64_t record = GENERATE(1300U, 3000U, 5001U);
  const bool mapped = GENERATE(false, true);
  const bool begun = GENERATE(false, true);  // every third record
  CAPTURE(record, mapped, begun);
  PagedFile file(record, "");
  const Samples order = order_of(file.plan, 0);
  for (uint32_t position = 0; position < 1000; ++position) file.read(order[position], mapped);
  REQUIRE(file.tracker.high_water() >= 990);
  REQUIRE(file.tracker.high_water() <= 1010);
  uint32_t position = 0;
  while (file.tracker.status().realignments == 0 && position < 64) {
    file.read(order[position], mapped, begun && position % 3 == 0);
    ++position;
  }
  REQUIRE(file.tracker.status().realignments == 1);
  CHECK(file.tracker.high_water() + 8 >= position);
  CHECK(file.tracker.high_water() <= position + 8);
  for (; position < 500; ++position) file.read(order[position], mapped);
  CHECK(file.tracker.state() == TrackerState::following);
  CHECK(file.tracker.high_water() >= 490);
  CHECK(file.tracker.high_water() <= 510);
}

TEST_CASE("the record that is read is named, not the one whose end lies in its first page") {
  const bool mapped = GENERATE(false, true);
  PagedFile file(5001, "shuffle=false");
  file.read(2000, mapped);
  const TrackerStatus status = file.tracker.status();
  REQUIRE(status.first_difference);
  CHECK(status.first_difference->expected == 0U);
  CHECK(status.first_difference->seen == 2000U);
}
