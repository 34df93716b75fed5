#include "plan/random/philox.h"

namespace clairfs {
namespace {

constexpr uint64_t kMultiplierA = 0xd2511f53;
constexpr uint64_t kMultiplierB = 0xcd9e8d57;
constexpr uint32_t kWeylA = 0x9e3779b9;  // golden ratio
constexpr uint32_t kWeylB = 0xbb67ae85;  // sqrt(3) - 1
constexpr int kPhiloxRounds = 10;

uint32_t low32(uint64_t value) {
  return static_cast<uint32_t>(value);
}
uint32_t high32(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

}  // namespace

Philox::Philox(uint64_t seed, uint64_t seed2) : key_{low32(seed), high32(seed)}, seed2_(seed2) {}

void Philox::seek(uint64_t draw) {
  counter_ = draw / group_.size();
  refill();
  used_ = draw % group_.size();
}

void Philox::refill() {
  std::array<uint32_t, 4> words = {low32(counter_), high32(counter_), low32(seed2_), high32(seed2_)};
  std::array<uint32_t, 2> key = key_;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = kMultiplierA * words[0];
    const uint64_t b = kMultiplierB * words[2];
    words = {high32(b) ^ words[1] ^ key[0], low32(b), high32(a) ^ words[3] ^ key[1], low32(a)};
    key = {key[0] + kWeylA, key[1] + kWeylB};
  }
  group_ = words;
  used_ = 0;
  ++counter_;
}

}  // namespace clairfs
