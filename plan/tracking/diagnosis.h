// Why a reader left its plan: the orders that people get by mistake, tried one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "cache/base/result.h"
#include "plan/sequence/access_sequence.h"
#include "plan/spec/plan_spec.h"
#include "plan/tracking/tracker.h"

namespace clairfs {

/// Makes a node's sequence of a resolved spec over the same dataset, for any epoch.
using SequenceMaker = std::function<Result<EpochSequence>(const PlanSpec& spec, Epoch epoch, NodeId node)>;

struct Diagnosis {
  std::string hint = "matches no known order";  ///< what was found, and what to do about it
  /// Set when it is the plan's own order, in an epoch that the tracker may not know: add it and the tracker
  /// goes on from there.
  std::optional<Epoch> epoch;
  /// Set when it is the plan's order, but opens stray from it by more positions than the plan says: the
  /// number of positions.
  std::optional<uint64_t> reorder_window;
  bool known = false;  ///< the order was found
  /// Set when it is another order than the plan's: a plan of it. Its `first_epoch` is where readers were.
  std::optional<PlanSpec> order;
};

/// Compares what was seen out of order with, in this order: the plan's order dealt to more workers than it
/// says; its other epochs; the order of the numbers; decimal keys of an LMDB where the plan has a cursor's
/// order, and the other way round; other world sizes and places of this node in them; other samplers with
/// that seed; neighbouring and common seeds; and other settings that change the order. `at` is where the
/// reader left the plan; `spec` is resolved, and its n the number of samples. Makes up to a few tens of
/// sequences, each of the size of an epoch, and frees them one by one: for a background thread. `stop` is
/// asked before each. Thread-safe if `make` is.
Diagnosis diagnose(std::span<const Sighting> evidence, const PlanSpec& spec, PlanPosition at, NodeId node,
                   uint64_t reorder_window, const SequenceMaker& make,
                   const std::function<bool()>& stop = {});

}  // namespace clairfs
