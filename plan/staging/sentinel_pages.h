// The pages that sentinels lack: they are not pushed, so the first READ of one tells where the reader is.
//
// The bytes of such a page are kept here for that READ. By then its chunk may have been dropped from memory.
// Going back to the source for a few KiB would cost an operation there and make the reader wait; keeping
// whole chunks would cost memory.
//
// Several samples may lie in one page. It is the sentinel of one of them, and the pushes of the others leave
// it out, too (without_open()).
//
// One of another plan may be among them. A reader of that plan then takes the sentinel from the one that it
// is for, whose tracker hears of a sample that its own reader may not have come to. So it does of any READ of
// a page that both have: which job a thread belongs to is not known. Two things bound the harm. A tracker
// only believes in samples as far ahead as a sentinel may be, and drops nothing for the furthest alone. And a
// record that fills a page lacks that one, which is no other's unless both plans have the record.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "plan/staging/page_ledger.h"

namespace clairfs {

class PlanReader;

/// The sample that a page is the sentinel of, and its reader.
struct SentinelOf {
  const PlanReader* reader = nullptr;  ///< never looked into: it may have gone
  uint32_t sample = 0;
  uint64_t position = 0;

  bool operator==(const SentinelOf&) const = default;
};

/// Thread-safe. At most kMostKept pages have their bytes here: 4 MiB.
class SentinelPages {
 public:
  /// The page lacks from now on, until a READ takes it or close() is called. A page that another sentinel
  /// lacks becomes this one's.
  void open(const PageRange& page, const SentinelOf& of);
  /// The bytes of an open page of this sentinel, for the READ. Without effect if it is no longer open.
  void keep(const PageRange& page, const SentinelOf& of, std::string bytes);
  /// The pages belong to no sentinel any more.
  void close(const PageRange& pages);
  /// Closes the page if it is still the sentinel of this position.
  void close(const PageRange& page, const PlanReader* reader, uint64_t position);

  /// The news of a READ.
  struct Hit {
    SentinelOf of;
    std::optional<std::string> bytes;  ///< all that the READ asks for, if it lies in one page that is kept
  };
  /// The kernel asks for [offset, offset + length) of `file`, and will have all pages of it: they are closed.
  /// Of several sentinels the one that comes first in its plan. Costs nothing while no page is open.
  std::optional<Hit> take(FileId file, uint64_t offset, uint64_t length);

  /// The parts of `pages` that are not open, in order.
  std::vector<PageRange> without_open(const PageRange& pages) const;

  static constexpr size_t kMostKept = 1024;

 private:
  struct Key {
    FileId file;
    uint64_t offset = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Page {
    uint64_t end = 0;
    SentinelOf of;
    std::string bytes;  // empty: not kept
  };
  using Pages = std::map<Key, Page>;

  Pages::iterator erase(Pages::iterator page) REQUIRES(mutex_);

  std::atomic<size_t> count_{0};  // of pages_, for take()
  mutable Mutex mutex_;           // leaf
  Pages pages_ GUARDED_BY(mutex_);
  size_t kept_ GUARDED_BY(mutex_) = 0;  // pages with bytes
};

}  // namespace clairfs
