#include "plan/retention/spread_order.h"

#include <numeric>
#include <utility>

namespace clairfs {
namespace {

constexpr double kGoldenRatio = 1.6180339887498949;

// Euclid's extended algorithm. REQUIRES: coprime, and both below 2^32.
uint64_t inverse_of(uint64_t number, uint64_t modulus) {
  int64_t inverse = 0, next_inverse = 1;
  auto rest = static_cast<int64_t>(modulus), next_rest = static_cast<int64_t>(number);
  while (next_rest != 0) {
    const int64_t quotient = rest / next_rest;
    inverse = std::exchange(next_inverse, inverse - quotient * next_inverse);
    rest = std::exchange(next_rest, rest - quotient * next_rest);
  }
  return static_cast<uint64_t>(inverse < 0 ? inverse + static_cast<int64_t>(modulus) : inverse);
}

}  // namespace

SpreadOrder::SpreadOrder(uint32_t count) : count_(count) {
  if (count < 2) return;
  step_ = static_cast<uint64_t>(count / kGoldenRatio);
  while (std::gcd(step_, uint64_t{count}) != 1) ++step_;
  inverse_ = inverse_of(step_, count);
}

uint32_t SpreadOrder::rank(ChunkId chunk) const {
  return static_cast<uint32_t>(chunk.index() * step_ % count_);
}

ChunkId SpreadOrder::at(uint32_t rank) const {
  return ChunkId(static_cast<uint32_t>(rank * inverse_ % count_));
}

}  // namespace clairfs
