// A Demand says how soon the bytes of a fetch are needed, to all parts that work on the fetch.
#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>

#include "cache/base/clock.h"

namespace clairfs {

/// How soon bytes are needed. Smaller is served first.
struct Priority {
  enum class Kind : uint8_t {
    demand,      ///< a reader waits for it
    prefetch,    ///< will be read at `deadline`
    background,  ///< fills a tier when nothing else is to do
  };
  Kind kind = Kind::demand;
  uint64_t deadline =
      0;  ///< orders the requests of one kind: of a prefetch deadline_at(), of a fill any order
  auto operator<=>(const Priority&) const = default;
  bool is_demand() const { return kind == Kind::demand; }
  bool is_background() const { return kind == Kind::background; }
};

/// Of the bytes that may be under way at once, fills take one part in this many: enough to use what is idle,
/// little enough not to stand in the way of bytes that are needed.
inline constexpr uint64_t kFillDivisor = 8;

/// When a prefetch is needed, in microseconds of this node's Clock.
inline uint64_t deadline_at(TimePoint when) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
  return static_cast<uint64_t>(std::max<int64_t>(since, 0));
}

/// The priority of a fetch's most urgent waiter: it only ever rises. It is the fetch's one copy of it, and
/// queues read it to sort fetches; the caller that raises it tells them (ChunkSource::demand_changed()). Its
/// address stands for the fetch. Thread-safe, without locks.
class Demand {
 public:
  /// Deadlines are cut at 2^62 - 1 us, 146,000 years.
  explicit Demand(Priority priority) : packed_(pack(priority)) {}
  Demand(const Demand&) = delete;
  Demand& operator=(const Demand&) = delete;

  Priority now() const {
    const uint64_t packed = packed_.load();
    return {static_cast<Priority::Kind>(packed >> kDeadlineBits), packed & kMostDeadline};
  }

  /// False if it was as urgent as this before.
  bool raise(Priority priority) {
    const uint64_t wanted = pack(priority);
    uint64_t packed = packed_.load();
    while (wanted < packed) {
      if (packed_.compare_exchange_weak(packed, wanted)) return true;
    }
    return false;
  }

 private:
  static constexpr int kDeadlineBits = 62;  // two bits hold the three kinds
  static constexpr uint64_t kMostDeadline = (uint64_t{1} << kDeadlineBits) - 1;

  // In the order of Priority.
  static uint64_t pack(Priority priority) {
    return static_cast<uint64_t>(priority.kind) << kDeadlineBits | std::min(priority.deadline, kMostDeadline);
  }

  std::atomic<uint64_t> packed_;
};

}  // namespace clairfs
