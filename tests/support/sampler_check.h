// Short forms for tests of samplers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/samplers/sampler.h"
#include "tests/support/catch.h"

namespace clairfs {

using SamplerKeys = std::vector<std::pair<std::string, std::string>>;

/// A spec from keys as a plan has them. The test fails on a key that is refused.
inline SamplerSpec spec_of(const SamplerKeys& keys) {
  SamplerSpec spec;
  for (const auto& [key, value] : keys) {
    const Result<bool> set = set_sampler_key(spec, key, value);
    INFO(key << "=" << value << (set ? "" : ": " + set.error().message));
    REQUIRE((set && *set));
  }
  return spec;
}

/// The test fails when `spec` is refused.
inline std::unique_ptr<Sampler> sampler_of(const SamplerSpec& spec) {
  Result<std::unique_ptr<Sampler>> made = make_sampler(spec);
  INFO((made ? "" : made.error().message));
  REQUIRE(made);
  return std::move(*made);
}

inline std::vector<uint32_t> indices_of(Sampler& sampler, uint32_t epoch, uint32_t rank = 0) {
  const Result<RankOrder> order = sampler.rank_order(Epoch(epoch), TrainingRank(rank));
  INFO((order ? "" : order.error().message));
  REQUIRE(order);
  return order->to_vector();
}

/// The message of the refusal; the test fails when `spec` is accepted or the errno is another one.
inline std::string refusal_of(const SamplerSpec& spec, int code = EINVAL) {
  const Result<std::unique_ptr<Sampler>> made = make_sampler(spec);
  REQUIRE(!made);
  CHECK(made.error().code == code);
  return made.error().message;
}

}  // namespace clairfs
