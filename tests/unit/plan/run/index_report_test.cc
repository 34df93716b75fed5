#include "plan/run/index_report.h"

#include <chrono>

#include "plan/formats/hdf5/layout.h"
#include "plan/formats/samples/record_table.h"
#include "tests/support/catch.h"
#include "tests/support/made_up_catalog.h"

using namespace clairfs;

namespace {

constexpr uint64_t kHeader = 2048;

/// What is said of rows of so many bytes in one piece, if readers go on past them to `read_on` bytes.
std::string report_on_rows(std::string_view format, uint64_t bytes, uint64_t read_on) {
  constexpr uint32_t kRows = 100;
  const auto catalog = made_up_catalog({kHeader + kRows * bytes});
  RecordTableBuilder table(catalog, format);
  for (uint32_t row = 0; row < kRows; ++row)
    REQUIRE(table.add_sample(ByteRange{FileId(1), kHeader + row * bytes, bytes}));
  if (read_on != 0)
    REQUIRE(table.set_read_on({FileId(1), kHeader, kRows * bytes}, static_cast<uint32_t>(read_on)));
  return index_report(*table.finish(), *catalog, IndexWork(), Duration(0));
}

/// What is said of where the index is from.
std::string report_after(const IndexWork& work, Duration took) {
  const auto catalog = made_up_catalog({100});
  RecordTableBuilder table(catalog, "lmdb");
  REQUIRE(table.add_sample(ByteRange{FileId(1), 0, 100}));
  return index_report(*table.finish(), *catalog, work, took);
}

}  // namespace

TEST_CASE("index report: the time is that of the index, without that of the plan") {
  IndexWork work;
  CHECK_THAT(report_after(work, std::chrono::seconds(3)), Contains("made in 3.00 s"));
  work.note_took(std::chrono::milliseconds(20));
  CHECK_THAT(report_after(work, std::chrono::seconds(3)), Contains("made in 0.02 s"));
  work.note_origin(IndexWork::Origin::file, "/saved");
  CHECK_THAT(report_after(work, std::chrono::seconds(3)), Contains("reloaded in 0.020 s from /saved"));
}

TEST_CASE("index report: short rows of which libhdf5 reads much more") {
  const std::string report = report_on_rows("hdf5", 3000, hdf5::kSieveBytes);
  CHECK_THAT(report, Contains("rows     of 2.9 KiB lie in one piece: libhdf5 reads 64.0 KiB for each"));
  CHECK_THAT(report, Contains("better: chunks of one row\n"));
  CHECK_THAT(report, Contains("samples  100 in 1 file (format=hdf5)"));
}

TEST_CASE("index report: nothing is said of rows that are read alone, or nearly") {
  CHECK_THAT(report_on_rows("hdf5", 40'000, hdf5::kSieveBytes), !Contains("rows "));
  CHECK_THAT(report_on_rows("hdf5", 3000, 0), !Contains("rows "));
  CHECK_THAT(report_on_rows("raw", 3000, 4096), !Contains("rows "));
}
