// PageLedger: what ought to be in the kernel's page cache for one plan, in whole pages.
//
// A use of a sample is held from when staging takes it into its window, or finds that the reader has it,
// until the reader is done with it. Its pages ought to be there as long as any use holds the sample: two uses
// in one window, or those of two readers, are pushed once and dropped once.
//
// Records of a file that follow one another share the page where one ends and the next begins. Such pages are
// counted one by one: they ought to be there as long as a use holds any of the samples in them. So are the
// pages behind a record that its readers read on to. Bytes that every reader needs
// (SampleIndex::shared_ranges()) ought to be there for good.
//
// A sentinel lacks one page (staging/sentinel_pages.h). Where the whole dataset fits the budget, samples stay
// once they were pushed whole; else those that staging keeps, by a hold of their own.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/memory/ram_arena.h"
#include "plan/formats/samples/sample_index.h"

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

/// Not thread-safe. Index and catalog outlive it. Memory: in the order of the uses that are held, some tens
/// of bytes for each page that every reader needs, and one bit a sample. `samples_stay`: all of them.
class PageLedger {
 public:
  PageLedger(const SampleIndex& index, const Catalog& catalog, bool samples_stay);

  /// The pages of a sample, range by range. Ranges may share a page, as may samples.
  std::vector<PageRange> pages_of(uint32_t sample) const;
  /// The pages of what every reader needs, without those of a piece that is cut off at `most` bytes in all.
  std::vector<PageRange> common_pages(uint64_t most) const;
  /// The pages that a sentinel may lack, the best first. Of a part of a stream the middle one: a program that
  /// only looks at the head of a file is not taken for its reader, nor is one that was stopped before its
  /// end. Of a sample that is a whole file only its last page: there the kernel reads nothing beyond it. Of a
  /// record any but its last: the kernel takes the pages before a missing one for a sequential read, and asks
  /// for as many again behind it (page_cache_sync_ra(), Linux 6.18). A record of one or two pages may lack
  /// any.
  std::vector<PageRange> sentinel_pages(uint32_t sample) const;

  /// One more use of the sample.
  void hold(uint32_t sample);
  /// One use is over. Returns those of the sample's pages that no use holds any more: they may be dropped.
  std::vector<PageRange> release(uint32_t sample);

  /// Whether the sample is there, for good: it is whole, and samples stay, or it is kept.
  bool stays(uint32_t sample) const { return staying_[sample]; }
  /// It stays until let_go(). REQUIRES: samples do not stay, nor does this one.
  void keep(uint32_t sample) {
    hold(sample);
    staying_[sample] = true;
  }
  /// It stays no more, once it is released as a use is. REQUIRES: it is kept.
  void let_go(uint32_t sample) { staying_[sample] = false; }
  /// It was pushed whole, or found so, which counts if samples stay.
  void note_whole(uint32_t sample) {
    if (samples_stay_) staying_[sample] = true;
  }

 private:
  struct PageId {
    FileId file;
    uint64_t offset = 0;
    bool operator==(const PageId&) const = default;
  };
  struct HashPage {
    size_t operator()(const PageId& page) const {
      constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // Fibonacci hashing
      return (page.offset / kPageSize + (uint64_t{page.file.value} << 32)) * kGolden;
    }
  };
  /// The pages that a reader of a range takes, and those among them that no reader of another one does.
  struct Cover {
    PageRange pages;
    uint64_t inner_begin = 0;
    uint64_t inner_end = 0;  // equal to inner_begin: none
  };
  Cover cover(const ByteRange& range) const;
  template <class Visit>
  void for_each_cover(uint32_t sample, Visit&& visit) const;
  template <class Visit>
  void for_each_shared_page(const Cover& range, Visit&& visit) const;

  const SampleIndex& index_;
  const Catalog& catalog_;
  const bool samples_stay_;
  std::unordered_map<uint32_t, uint32_t> held_;             // uses, by sample
  std::unordered_map<PageId, uint32_t, HashPage> sharing_;  // samples that are held, by page they do not fill
  std::unordered_set<PageId, HashPage> common_;             // what every reader needs
  std::vector<bool> staying_;                               // by sample
};

}  // namespace clairfs
