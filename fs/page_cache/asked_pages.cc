#include "fs/page_cache/asked_pages.h"

#include <algorithm>

namespace clairfs {

void AskedPages::add(const PageRange& read) {
  MutexLock lock(mutex_);
  reads_.emplace(read.file, read);
  count_ = reads_.size();
}

void AskedPages::remove(const PageRange& read) {
  MutexLock lock(mutex_);
  const auto [first, last] = reads_.equal_range(read.file);
  const auto found = std::find_if(first, last, [&read](const auto& entry) { return entry.second == read; });
  if (found != last) reads_.erase(found);
  count_ = reads_.size();
}

std::vector<PageRange> AskedPages::without(const PageRange& pages) const {
  std::vector<PageRange> asked;
  if (count_ > 0) {
    MutexLock lock(mutex_);
    const auto [first, last] = reads_.equal_range(pages.file);
    for (auto read = first; read != last; ++read) {
      if (read->second.begin < pages.end && read->second.end > pages.begin) asked.push_back(read->second);
    }
  }
  std::sort(asked.begin(), asked.end(),
            [](const PageRange& a, const PageRange& b) { return a.begin < b.begin; });
  std::vector<PageRange> rest;
  uint64_t from = pages.begin;
  for (const PageRange& read : asked) {
    if (read.begin > from) rest.push_back({pages.file, from, read.begin});
    from = std::max(from, read.end);
  }
  if (from < pages.end) rest.push_back({pages.file, from, pages.end});
  return rest;
}

}  // namespace clairfs
