// One chunk's uses by node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/placement/job_uses.h"

namespace clairfs {

/// Not thread-safe.
class UseTally {
 public:
  explicit UseTally(const JobUses& uses) : uses_(uses), counts_(uses.nodes()) {}

  /// From now on about `chunk`.
  void take(ChunkId chunk) {
    for (const NodeId user : users_) counts_[user.index()] = 0;
    users_.clear();
    uses_.for_each_use(chunk, [this](NodeId user, uint32_t count) {
      if (counts_[user.index()] == 0) users_.push_back(user);
      counts_[user.index()] += count;
    });
  }
  uint32_t count(NodeId node) const { return counts_[node.index()]; }
  /// Nodes that use it, each once, in no particular order.
  const std::vector<NodeId>& users() const { return users_; }
  /// Uses by the node that uses it most.
  uint32_t most() const {
    uint32_t most = 0;
    for (const NodeId user : users_) most = std::max(most, count(user));
    return most;
  }

 private:
  const JobUses& uses_;
  std::vector<uint32_t> counts_;  // by rank
  std::vector<NodeId> users_;
};

}  // namespace clairfs
