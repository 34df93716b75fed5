// Holdings knows which workers keep which sample, in which storage class, and from when on.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace clairfs {

/// Not fetched yet.
inline constexpr float kNotYet = std::numeric_limits<float>::infinity();

/// One worker's copy of a sample.
struct Holding {
  float available_at = kNotYet;  ///< seconds since the start
  uint16_t worker = 0;
  uint8_t storage = 0;  ///< number in Scenario::classes
  bool on_use = false;  ///< kept when the worker first fetches the sample for itself, not filled ahead
};

/// For Holding::available_at: a copy that is there at `time` never seems to come later.
float not_after(double time);

/// By sample, fastest class first. Eight bytes a copy and four a sample. One thread at a time.
class Holdings {
 public:
  /// No worker keeps anything.
  Holdings() = default;
  std::span<Holding> of(uint32_t sample) {
    if (starts_.empty()) return {};
    return std::span(copies_).subspan(starts_[sample], starts_[sample + 1] - starts_[sample]);
  }
  /// The worker's copy, or null.
  Holding* find(uint32_t sample, uint32_t worker) {
    for (Holding& copy : of(sample)) {
      if (copy.worker == worker) return &copy;
    }
    return nullptr;
  }

 private:
  friend class HoldingsBuilder;
  std::vector<uint32_t> starts_;  // samples + 1, into copies_
  std::vector<Holding> copies_;
};

/// Collects copies in any order. Twelve bytes a copy on top until it is done.
class HoldingsBuilder {
 public:
  explicit HoldingsBuilder(uint64_t samples) : samples_(samples) {}
  void add(uint32_t sample, const Holding& copy) { added_.push_back({sample, copy}); }
  /// Leaves the builder empty. Copies of one sample in the same class keep the order in which they were
  /// added.
  Holdings build();

 private:
  struct Added {
    uint32_t sample;
    Holding copy;
  };
  uint64_t samples_;
  std::vector<Added> added_;
};

}  // namespace clairfs
