// The numbers under which this node wants transfers from the others.
#pragma once

#include <atomic>
#include <vector>

#include "net/transport/transport.h"

namespace clairfs {

/// One count for each sender, shared by all receivers on this node. Thread-safe.
class TransferNumbers {
 public:
  explicit TransferNumbers(uint32_t nodes) : next_(nodes) {}
  TransferNumber next(NodeId from) {
    return next_[from.index()].fetch_add(1, std::memory_order_relaxed) % kTransferNumbers;
  }

 private:
  std::vector<std::atomic<TransferNumber>> next_;
};

}  // namespace clairfs
