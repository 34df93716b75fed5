#include "plan/staging/page_ledger.h"

#include <algorithm>

namespace clairfs {

PageLedger::PageLedger(const SampleIndex& index, const Catalog& catalog, bool samples_stay)
    : index_(index),
      catalog_(catalog),
      samples_stay_(samples_stay),
      staying_(samples_stay ? index.size() : 0) {}

std::vector<PageRange> PageLedger::pages_of(uint32_t sample) const {
  std::vector<PageRange> pages;
  for (uint32_t piece = 0; piece < index_.range_count(sample); ++piece) {
    const ByteRange range = index_.range(sample, piece);
    if (range.length == 0) continue;
    const uint64_t size = catalog_.stamp(range.file).size;
    const uint64_t end = std::min(round_to_pages(range.offset + range.length), size);
    if (page_floor(range.offset) < end) pages.push_back({range.file, page_floor(range.offset), end});
  }
  return pages;
}

std::optional<PageRange> PageLedger::sentinel_page(uint32_t sample) const {
  const std::vector<PageRange> pages = pages_of(sample);
  if (pages.empty()) return std::nullopt;
  const PageRange& last = pages.back();
  return PageRange{last.file, page_floor(last.end - 1), last.end};
}

bool PageLedger::release(uint32_t sample) {
  const auto found = held_.find(sample);
  if (found == held_.end()) return true;
  if (--found->second > 0) return false;
  held_.erase(found);
  return true;
}

}  // namespace clairfs
