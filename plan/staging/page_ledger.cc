#include "plan/staging/page_ledger.h"

#include <algorithm>

namespace clairfs {

PageLedger::PageLedger(const SampleIndex& index, const Catalog& catalog, bool samples_stay)
    : index_(index), catalog_(catalog), samples_stay_(samples_stay), staying_(index.size()) {
  for (const PageRange& pages : common_pages(UINT64_MAX)) {
    for (uint64_t at = pages.begin; at < pages.end; at += kPageSize) common_.insert({pages.file, at});
  }
}

PageLedger::Cover PageLedger::cover(const ByteRange& range) const {
  const uint64_t size = catalog_.stamp(range.file).size;
  const uint64_t past = range.offset + range.length;
  const uint64_t before = index_.read_block() - 1;  // so far may readers of what lies before it go on
  Cover cover;
  cover.pages = {range.file, page_floor(range.offset),
                 std::min(round_to_pages(index_.read_end(range)), size)};
  cover.inner_begin = round_to_pages(range.offset + before);
  cover.inner_end = std::max(past >= size ? size : page_floor(past), cover.inner_begin);
  if (index_.shares_bytes()) cover.inner_end = cover.inner_begin;
  return cover;
}

std::vector<PageRange> PageLedger::pages_of(uint32_t sample) const {
  std::vector<PageRange> pages;
  for (uint32_t piece = 0; piece < index_.range_count(sample); ++piece) {
    const ByteRange range = index_.range(sample, piece);
    if (range.length == 0) continue;
    const Cover covered = cover(range);
    if (covered.pages.begin < covered.pages.end) pages.push_back(covered.pages);
  }
  return pages;
}

std::vector<PageRange> PageLedger::common_pages(uint64_t most) const {
  std::vector<PageRange> pages;
  for (const ByteRange& range : index_.shared_ranges()) {
    const PageRange next = cover(range).pages;
    if (next.begin >= next.end) continue;
    if (next.end - next.begin > most) break;
    most -= next.end - next.begin;
    pages.push_back(next);
  }
  return pages;
}

std::vector<PageRange> PageLedger::sentinel_pages(uint32_t sample) const {
  constexpr size_t kMost = 4;  // candidates are looked at one by one
  constexpr uint64_t kSmall = 2 * kPageSize;
  std::vector<PageRange> pages;
  const auto add = [&](const PageRange& of, uint64_t begin) {
    if (pages.size() < kMost && !common_.contains({of.file, begin}))
      pages.push_back({of.file, begin, std::min(begin + kPageSize, of.end)});
  };
  for (uint32_t piece = 0; piece < index_.range_count(sample); ++piece) {
    const ByteRange range = index_.range(sample, piece);
    if (range.length == 0) continue;
    const Cover covered = cover(range);
    const PageRange all{range.file, covered.pages.begin,  // not everybody reads on
                        std::min(round_to_pages(range.offset + range.length), covered.pages.end)};
    if (all.begin >= all.end) continue;
    if (index_.is_stream()) {
      add(all, page_floor(all.begin + (all.end - all.begin) / 2));
      continue;
    }
    const uint64_t last = page_floor(all.end - 1);
    if (range.offset == 0 && all.end == catalog_.stamp(range.file).size) {
      add(all, last);
      continue;
    }
    const bool small = all.end - all.begin <= kSmall;
    if (covered.inner_begin < std::min(covered.inner_end, last)) {
      add(all, covered.inner_begin);
    } else {
      for (uint64_t begin = all.begin; begin < (small ? all.end : last); begin += kPageSize) add(all, begin);
    }
  }
  return pages;
}

// Visits the beginnings of those pages that the range does not fill alone.
template <class Visit>
void PageLedger::for_each_shared_page(const Cover& range, Visit&& visit) const {
  for (uint64_t at = range.pages.begin; at < range.pages.end; at += kPageSize) {
    if (at == range.inner_begin && at < range.inner_end) {
      at = page_floor(range.inner_end - 1);
    } else {
      visit(at);
    }
  }
}

template <class Visit>
void PageLedger::for_each_cover(uint32_t sample, Visit&& visit) const {
  for (uint32_t piece = 0; piece < index_.range_count(sample); ++piece) {
    const ByteRange range = index_.range(sample, piece);
    if (range.length > 0) visit(cover(range));
  }
}

void PageLedger::hold(uint32_t sample) {
  if (held_[sample]++ > 0) return;
  for_each_cover(sample, [this](const Cover& range) {
    for_each_shared_page(range, [&](uint64_t at) { ++sharing_[{range.pages.file, at}]; });
  });
}

std::vector<PageRange> PageLedger::release(uint32_t sample) {
  if (const auto found = held_.find(sample); found != held_.end()) {
    if (--found->second > 0) return {};
    held_.erase(found);
    for_each_cover(sample, [this](const Cover& range) {
      for_each_shared_page(range, [&](uint64_t at) {
        const auto counted = sharing_.find({range.pages.file, at});
        if (--counted->second == 0) sharing_.erase(counted);
      });
    });
  }
  std::vector<PageRange> free;
  for_each_cover(sample, [&](const Cover& range) {
    const FileId file = range.pages.file;
    const uint64_t first = range.pages.begin;
    const uint64_t end = range.pages.end;
    uint64_t begin = first;
    for_each_shared_page(range, [&](uint64_t at) {
      if (!sharing_.contains({file, at}) && !common_.contains({file, at})) return;
      if (begin < at) free.push_back({file, begin, at});
      begin = at + kPageSize;
    });
    if (begin < end) free.push_back({file, begin, end});
  });
  return free;
}

}  // namespace clairfs
