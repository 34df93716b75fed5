// The READs that the kernel makes of accesses to one file, with a page cache that loses nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/formats/samples/sample_index.h"

namespace clairfs {

class KernelReads {
 public:
  /// pread(2); a mapping that is advised to be read at random; one without advice.
  enum class Way : uint8_t { pread, page_by_page, around };
  struct Read {
    uint64_t offset = 0;
    uint64_t length = 0;
  };

  /// `around`: the bytes around a fault, in a mapping without advice.
  KernelReads(uint64_t size, Way way, uint64_t around = 128 << 10)
      : pages_((size + kPageSize - 1) / kPageSize), way_(way), around_(around / kPageSize) {}

  /// What is asked for when these bytes are touched from first to last; they are in the page cache then.
  std::vector<Read> touch(uint64_t offset, uint64_t length) {
    std::vector<Read> reads;
    const uint64_t end = (offset + length + kPageSize - 1) / kPageSize;
    for (uint64_t page = offset / kPageSize; page < end; ++page) {
      if (pages_[page]) continue;
      if (way_ == Way::pread) {
        ask(page, end, reads);
      } else if (way_ == Way::page_by_page) {
        ask(page, page + 1, reads);
      } else {
        const uint64_t first = page - std::min(page, around_ / 2);
        ask(first, std::min<uint64_t>(first + around_, pages_.size()), reads);
      }
    }
    return reads;
  }

 private:
  static constexpr uint64_t kMost = (1 << 20) / kPageSize;  // pages a READ

  // The pages that are missing: those that lie together in one READ.
  void ask(uint64_t first, uint64_t end, std::vector<Read>& reads) {
    for (uint64_t page = first; page < end;) {
      uint64_t past = page;
      while (past < end && past - page < kMost && !pages_[past]) pages_[past++] = true;
      if (past > page) reads.push_back({page * kPageSize, (past - page) * kPageSize});
      page = std::max(past, page + 1);
    }
  }

  std::vector<bool> pages_;  // that are in the page cache
  Way way_;
  uint64_t around_;  // pages
};

}  // namespace clairfs
