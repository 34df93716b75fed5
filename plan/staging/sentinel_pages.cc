#include "plan/staging/sentinel_pages.h"

#include <utility>

namespace clairfs {

void SentinelPages::open(const PageRange& page, const SentinelOf& of) {
  const MutexLock lock(mutex_);
  Page& open = pages_[{page.file, page.begin}];
  if (!(open.of == of) && !open.bytes.empty()) {
    open.bytes.clear();
    --kept_;
  }
  open.end = page.end;
  open.of = of;
  count_ = pages_.size();
}

void SentinelPages::keep(const PageRange& page, const SentinelOf& of, std::string bytes) {
  const MutexLock lock(mutex_);
  const auto found = pages_.find({page.file, page.begin});
  if (found == pages_.end() || !(found->second.of == of)) return;
  if (found->second.bytes.empty() && kept_ >= kMostKept) return;  // the READ goes to the cache
  if (found->second.bytes.empty()) ++kept_;
  found->second.bytes = std::move(bytes);
}

SentinelPages::Pages::iterator SentinelPages::erase(Pages::iterator page) {
  if (!page->second.bytes.empty()) --kept_;
  const auto next = pages_.erase(page);
  count_ = pages_.size();
  return next;
}

void SentinelPages::close(const PageRange& pages) {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(mutex_);
  for (auto at = pages_.lower_bound({pages.file, pages.begin});
       at != pages_.end() && at->first < Key{pages.file, pages.end};) {
    at = erase(at);
  }
}

void SentinelPages::close(const PageRange& page, const PlanReader* reader, uint64_t position) {
  const MutexLock lock(mutex_);
  const auto found = pages_.find({page.file, page.begin});
  if (found == pages_.end()) return;
  const SentinelOf& of = found->second.of;
  if (of.reader == reader && of.position == position) erase(found);
}

std::optional<SentinelPages::Hit> SentinelPages::take(FileId file, uint64_t offset, uint64_t length) {
  if (count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const MutexLock lock(mutex_);
  std::optional<Hit> hit;
  for (auto at = pages_.lower_bound({file, page_floor(offset)});
       at != pages_.end() && at->first < Key{file, offset + length};) {
    const Page& page = at->second;
    if (!hit || page.of.position < hit->of.position) hit = Hit{page.of, std::nullopt};
    const bool all = offset >= at->first.offset && offset + length <= page.end;
    if (all && !page.bytes.empty()) hit->bytes = page.bytes.substr(offset - at->first.offset, length);
    at = erase(at);
  }
  return hit;
}

std::vector<PageRange> SentinelPages::without_open(const PageRange& pages) const {
  std::vector<PageRange> rest;
  uint64_t begin = pages.begin;
  const MutexLock lock(mutex_);
  for (auto at = pages_.lower_bound({pages.file, pages.begin});
       at != pages_.end() && at->first < Key{pages.file, pages.end}; ++at) {
    if (begin < at->first.offset) rest.push_back({pages.file, begin, at->first.offset});
    begin = at->second.end;
  }
  if (begin < pages.end) rest.push_back({pages.file, begin, pages.end});
  return rest;
}

}  // namespace clairfs
