// The pages that READs have asked for and that their answers will bring.
//
// The kernel holds the locks of these pages until the READ is answered, and a push or an invalidation of one
// sleeps on it, uninterruptibly. A READ of several chunks may wait for one of them as long as its source
// hangs, so the other ones are not to be pushed meanwhile: staging would stand still, for all plans.
//
// A READ that reaches us only after the pusher has looked is waited for: it may have waited in the kernel for
// others to be answered (kMaxBackground). It finds what is being pushed in memory, if a tier keeps that,
// so it is answered at once unless it asks for more.
#pragma once

#include <atomic>
#include <set>
#include <tuple>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "plan/staging/page_ledger.h"

namespace clairfs {

/// Thread-safe.
class AskedPages {
 public:
  /// A READ waits for its answer. REQUIRES: whole pages, maybe beyond the end of the file.
  void add(const PageRange& read);
  /// One that was added has its answer.
  void remove(const PageRange& read);
  /// The parts of `pages` that no READ has asked for, in order.
  std::vector<PageRange> without(const PageRange& pages) const;

 private:
  struct ByPlace {
    bool operator()(const PageRange& a, const PageRange& b) const {
      return std::tie(a.file, a.begin, a.end) < std::tie(b.file, b.begin, b.end);
    }
  };

  std::atomic<size_t> count_{0};  // of reads_, for without()
  mutable Mutex mutex_;           // leaf
  std::multiset<PageRange, ByPlace> reads_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
