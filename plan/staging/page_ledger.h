// PageLedger: what ought to be in the kernel's page cache for one plan, in whole pages.
//
// A use of a sample is held from when staging has handed it on (pushed it, or found that the reader has it)
// until the reader is done with it. Its pages ought to be there as long as somebody holds the sample: two
// uses in one window, or those of two readers, are pushed once and dropped once.
//
// A sentinel lacks the page with the sample's last byte. Where the whole dataset fits the budget, samples
// stay once they were pushed whole.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/memory/ram_arena.h"
#include "plan/formats/sample_index.h"

namespace clairfs {

inline uint64_t page_floor(uint64_t offset) {
  return offset / kPageSize * kPageSize;
}

/// Bytes [begin, end) of a file: whole pages, or up to its end.
struct PageRange {
  FileId file;
  uint64_t begin = 0;
  uint64_t end = 0;

  bool operator==(const PageRange&) const = default;
};

/// Not thread-safe. Index and catalog outlive it. Memory: in the order of the uses that are held, and one bit
/// a sample if `samples_stay`.
class PageLedger {
 public:
  PageLedger(const SampleIndex& index, const Catalog& catalog, bool samples_stay);

  /// The pages of a sample, range by range. Ranges may share a page, as may samples.
  std::vector<PageRange> pages_of(uint32_t sample) const;
  /// The page that a sentinel lacks; nothing for a sample without bytes.
  std::optional<PageRange> sentinel_page(uint32_t sample) const;

  void hold(uint32_t sample) { ++held_[sample]; }
  /// One use is over. True if nobody holds the sample any more: its pages may be dropped.
  bool release(uint32_t sample);

  /// Whether the sample was pushed whole, for good.
  bool stays(uint32_t sample) const { return samples_stay_ && staying_[sample]; }
  /// It was pushed whole, which counts if samples stay.
  void note_whole(uint32_t sample) {
    if (samples_stay_) staying_[sample] = true;
  }

 private:
  const SampleIndex& index_;
  const Catalog& catalog_;
  const bool samples_stay_;
  std::unordered_map<uint32_t, uint32_t> held_;  // uses, by sample
  std::vector<bool> staying_;                    // by sample; empty unless samples_stay_
};

}  // namespace clairfs
