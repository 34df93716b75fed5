// The plans of a job: which are in force, the same on every node without a leader.
//
// A last-writer-wins map from name to entry: of two entries with one name the later stamp holds, then the
// larger number. So the order in which nodes hear of entries does not matter, nor how often, and a
// cancellation is an entry like any other (and stays, or a node that had missed it would bring the plan
// back). A plan that was found is withdrawn by a mark on its own entry, that stays under its stamp: so a late
// withdrawal withdraws no later entry, in whatever order the nodes hear of both. Every hello carries a digest
// of the map; a node that sees another digest than its own sends what it has. This is how late nodes and
// those that stood still get the plans in force.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "net/transport/wire.h"

namespace clairfs {

/// Thread-safe.
class PlanRegister {
 public:
  explicit PlanRegister(NodeId self) : self_(self) {}

  /// A plan registered here, or cancelled (no text): the entry to be told to all. The same text again is a
  /// new entry: it may be meant to begin again. Errors: E2BIG when it is too long to be sent; EOVERFLOW when
  /// no stamp is left that the others would believe.
  Result<wire::PlanEntry> enter(const std::string& name, const std::optional<std::string>& text);
  /// Marks the plan as withdrawn: the entry to be told to all. None if another text is in force now.
  std::optional<wire::PlanEntry> withdraw(const std::string& name, const std::string& text);
  /// An entry of another node. True if it is news here.
  bool merge(const wire::PlanEntry& entry);
  /// The entry that holds for this name now.
  std::optional<wire::PlanEntry> entry(const std::string& name) const;
  /// All entries, cancellations too.
  std::vector<wire::PlanEntry> entries() const;
  /// Equal on two nodes if their entries are.
  uint64_t digest() const;

 private:
  const NodeId self_;
  mutable Mutex mutex_;  // leaf
  std::map<std::string, wire::PlanEntry> entries_ GUARDED_BY(mutex_);
  uint64_t last_stamp_ GUARDED_BY(mutex_) = 0;  // the largest seen
};

}  // namespace clairfs
