// Numbers of at most 48 bits, four or six bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace clairfs {

/// Not thread-safe while it grows.
class CompactNumbers {
 public:
  static constexpr uint64_t kMost = (uint64_t{1} << 48) - 1;

  CompactNumbers() = default;
  /// As low() and high() have it. REQUIRES: `high` is empty or as long as `low`.
  CompactNumbers(std::vector<uint32_t> low, std::vector<uint16_t> high)
      : low_(std::move(low)), high_(std::move(high)) {}
  std::span<const uint32_t> low() const { return low_; }
  std::span<const uint16_t> high() const { return high_; }

  size_t size() const { return low_.size(); }
  uint64_t operator[](size_t i) const { return low_[i] | (high_.empty() ? 0 : uint64_t{high_[i]} << 32); }

  /// REQUIRES: number <= kMost, here and below.
  void push_back(uint64_t number) {
    low_.push_back(0);
    if (!high_.empty()) high_.push_back(0);
    set(low_.size() - 1, number);
  }
  void set(size_t i, uint64_t number) {
    if (number > UINT32_MAX && high_.empty()) high_.resize(low_.size());
    low_[i] = static_cast<uint32_t>(number);
    if (!high_.empty()) high_[i] = static_cast<uint16_t>(number >> 32);
  }
  void resize(size_t size) {
    low_.resize(size);
    if (!high_.empty()) high_.resize(size);
  }
  void shrink_to_fit() {
    low_.shrink_to_fit();
    high_.shrink_to_fit();
  }
  uint64_t memory_bytes() const {
    return low_.capacity() * sizeof(uint32_t) + high_.capacity() * sizeof(uint16_t);
  }

 private:
  std::vector<uint32_t> low_;
  std::vector<uint16_t> high_;  ///< empty as long as all numbers have at most 32 bits
};

}  // namespace clairfs
