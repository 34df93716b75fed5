// Short forms for tests of samplers.
#pragma once

#include <string>
#include <vector>

#include "plan/samplers/sampler.h"
#include "plan/spec/keys.h"
#include "plan/spec/sampler_keys.h"
#include "tests/support/catch.h"

namespace clairfs {

/// What a plan of these keys says of its sampler. The test fails when the plan is refused.
inline SamplerSpec spec_of(const PlanPairs& keys) {
  const Result<PlanSpec> plan = make_plan(keys);
  INFO((plan ? "" : plan.error().message));
  REQUIRE(plan);
  const Result<PlanSpec> resolved = resolve_plan(*plan, 1);
  REQUIRE(resolved);
  return sampler_spec(*resolved, static_cast<uint32_t>(resolved->n));
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
