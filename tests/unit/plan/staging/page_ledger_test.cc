#include "plan/staging/page_ledger.h"

#include <map>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

/// Samples of any ranges.
class MadeUpIndex final : public SampleIndex {
 public:
  explicit MadeUpIndex(std::vector<std::vector<ByteRange>> samples) : samples_(std::move(samples)) {}

  std::string_view format() const override { return "made-up"; }
  uint32_t size() const override { return static_cast<uint32_t>(samples_.size()); }
  uint32_t range_count(uint32_t sample) const override {
    return static_cast<uint32_t>(samples_[sample].size());
  }
  ByteRange range(uint32_t sample, uint32_t piece) const override { return samples_[sample][piece]; }
  void samples_of(FileId, uint64_t, uint64_t, const std::function<void(uint32_t)>&) const override {}
  std::string path(uint32_t sample) const override { return std::to_string(sample); }
  uint64_t memory_bytes() const override { return 0; }

 private:
  const std::vector<std::vector<ByteRange>> samples_;
};

}  // namespace

TEST_CASE("a sample takes whole pages, or all up to the end of its file") {
  const auto catalog = made_up_catalog({10000, 100000});
  const FileId small(1);
  const FileId large(2);
  const MadeUpIndex index({{{small, 0, 10000}}, {{large, 5000, 3000}, {large, 20000, 1}}, {{large, 0, 0}}});
  const PageLedger ledger(index, *catalog, false);
  CHECK(ledger.pages_of(0) == std::vector<PageRange>{{small, 0, 10000}});
  CHECK(ledger.sentinel_page(0) == PageRange{small, 8192, 10000});
  CHECK(ledger.pages_of(1) == std::vector<PageRange>{{large, 4096, 8192}, {large, 16384, 20480}});
  CHECK(ledger.sentinel_page(1) == PageRange{large, 16384, 20480});
  CHECK(ledger.pages_of(2).empty());
  CHECK_FALSE(ledger.sentinel_page(2));
}

TEST_CASE("pages may be dropped with the last use that holds them") {
  const auto catalog = made_up_catalog({10000});
  const MadeUpIndex index({{{FileId(1), 0, 10000}}, {{FileId(1), 0, 10000}}});
  PageLedger ledger(index, *catalog, false);
  ledger.hold(0);
  ledger.hold(0);
  ledger.hold(1);
  CHECK_FALSE(ledger.release(0));
  CHECK(ledger.release(0));
  CHECK(ledger.release(1));
  ledger.hold(0);
  CHECK(ledger.release(0));
}

TEST_CASE("samples stay only in a plan that keeps them all") {
  const auto catalog = made_up_catalog({10000});
  const MadeUpIndex index({{{FileId(1), 0, 10000}}});
  PageLedger window(index, *catalog, false);
  window.note_whole(0);
  CHECK_FALSE(window.stays(0));
  PageLedger all(index, *catalog, true);
  CHECK_FALSE(all.stays(0));
  all.note_whole(0);
  CHECK(all.stays(0));
}
