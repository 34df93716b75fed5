// Finds the seed of a reader that left its plan from the beginning of an epoch on.
//
// diagnose() (plan/tracking/diagnosis.h) compares a few neighbouring and common seeds. This tries a million
// for DistributedSampler, and where that is none of them what torch's default generator gives after
// torch.manual_seed() of the plan's seed or another one that people like. Last it looks whether the reader
// goes through a part of the dataset only, as random_split() makes it with such a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plan/spec/plan_spec.h"
#include "plan/tracking/diagnosis.h"

namespace clairfs {

/// `n`: samples of the plan, `spec` resolved, `node`: whose ranks were seen; other parameters as of
/// diagnose(). Takes some seconds of CPU time at most, on threads `seed-search` that it waits for. A Subset
/// is told without an order to follow. Thread-safe.
Diagnosis diagnose_seed(std::span<const Sighting> evidence, const PlanSpec& spec, uint64_t n, PlanPosition at,
                        NodeId node, const std::function<bool()>& stop = {});

}  // namespace clairfs
