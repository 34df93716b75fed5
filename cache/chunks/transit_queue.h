// Fetches that wait for transit memory.
//
// They are served by priority, and in the order of their arrival within one; but a fetch of one class never
// waits behind a fetch of another: a class that has used up its share, or waits for a source that hangs,
// holds up no other. A fetch may become more urgent while it waits (demand_changed()).
//
// Thread-safe. mutex_ is a leaf; it is not held while an attempt is called.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "cache/base/mutex.h"
#include "cache/source/demand.h"

namespace clairfs {

/// A fetch by what it may have to wait for; each class has a share of the transit memory.
enum class TransitClass : uint8_t {
  nvme,    ///< NVMe of this node
  source,  ///< the PFS
  others,  ///< another node
};

class TransitQueue {
 public:
  /// Tries to begin. The class that still has no memory; nothing: it has begun, or ended.
  using Attempt = std::function<std::optional<TransitClass>()>;

  void add(TransitClass transit_class, std::shared_ptr<const Demand> demand, Attempt attempt);
  /// Moves the fetch with this demand, if it waits, to the queue of its new kind.
  void demand_changed(const Demand& demand);
  /// Begins the first fetch for which there is memory; false: there is none. One thread at a time.
  bool begin_one();
  bool empty() const { return count_.load() == 0; }

 private:
  static constexpr size_t kKinds = 3;
  static constexpr size_t kClasses = 3;
  struct Waiter {
    std::shared_ptr<const Demand> demand;
    Attempt attempt;
  };
  using Queue = std::deque<Waiter>;

  Queue& queue(const Demand& demand, TransitClass transit_class) REQUIRES(mutex_);

  std::atomic<size_t> count_{0};  // one that is being tried included
  Mutex mutex_;
  std::array<std::array<Queue, kClasses>, kKinds> queues_
      GUARDED_BY(mutex_);  // by kind of priority, by class
};

}  // namespace clairfs
