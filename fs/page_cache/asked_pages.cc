#include "fs/page_cache/asked_pages.h"

#include <algorithm>

namespace clairfs {

void AskedPages::add(const PageRange& read) {
  MutexLock lock(mutex_);
  reads_.insert(read);
  count_ = reads_.size();
}

void AskedPages::remove(const PageRange& read) {
  MutexLock lock(mutex_);
  const auto found = reads_.find(read);
  if (found != reads_.end()) reads_.erase(found);
  count_ = reads_.size();
}

std::vector<PageRange> AskedPages::without(const PageRange& pages) const {
  std::vector<PageRange> rest;
  uint64_t from = pages.begin;
  if (count_ > 0) {
    MutexLock lock(mutex_);
    for (auto read = reads_.lower_bound({pages.file, 0, 0});
         read != reads_.end() && read->file == pages.file && read->begin < pages.end; ++read) {
      if (read->begin > from) rest.push_back({pages.file, from, read->begin});
      from = std::max(from, read->end);
    }
  }
  if (from < pages.end) rest.push_back({pages.file, from, pages.end});
  return rest;
}

}  // namespace clairfs
