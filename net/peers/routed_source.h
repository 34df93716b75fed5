// RoutedSource gets a chunk that a node of a job does not have: from the PFS if the node is the chunk's home
// (or the chunk has none), else from the holder that is predicted to bring it soonest.
//
// A fetch that a peer fails is made once more, from the chunk's home if that was not the one, then from the
// PFS; so every fetch ends, with the PFS's word on it at the latest. Where homes have moved since the chunk
// was kept, who was its holder is asked first, also by the home, and only for what it has. The PFS is also
// taken where no holder is alive, or all are far slower than the PFS (FallbackRule). Holders whose PFS hangs
// (PeerClient::left_alone()) are asked last, and only for what they have.
//
// Thread-safe. mutex_ is a leaf: not held while a source or a call-back is called.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/source/source.h"
#include "net/group/membership.h"
#include "net/peers/client.h"
#include "net/peers/source_choice.h"

namespace clairfs {

/// The nodes that keep a chunk, its home first, then those with copies; empty if no node keeps it.
/// Thread-safe; called for every fetch, so it answers within a microsecond or so.
using HoldersOf = std::function<std::vector<NodeId>(ChunkId)>;

/// The dependencies outlive it; it outlives its fetches.
class RoutedSource final : public ChunkSource {
 public:
  struct Deps {
    const Catalog& catalog;
    ChunkSource& pfs;
    PeerClient& peers;
    const Membership& membership;
    const Clock& clock;
    Logger& log;
    NodeId self;
  };

  RoutedSource(const Deps& deps, const FallbackRule& rule);
  ~RoutedSource() override;

  /// Replaces the homes, of which there are none at first. With nullptr no chunk has one, and everything
  /// comes from the PFS. The homes before these are kept, too: they may still have what was theirs.
  void set_homes(HoldersOf homes);
  /// Whether this node is the chunk's home.
  bool is_home(ChunkId chunk) const;
  /// The measured latency and bandwidth of the path from this node to the PFS.
  Duration pfs_latency() const;
  double pfs_bandwidth() const;  ///< bytes a second

  void start(FetchRequest request) override;
  void gather() override { deps_.pfs.gather(); }
  void gathered() override { deps_.pfs.gathered(); }
  bool may_wait_for_others(FileId file, uint64_t offset) const override;
  void demand_changed(const Demand& demand) override;
  /// Ends the fetches from peers too (PeerClient::stop()).
  void stop() override;

 private:
  struct Route;
  using RoutePtr = std::shared_ptr<Route>;
  struct Choice {
    NodeId peer;
    bool home = false;
    bool only_here = false;
    bool former = false;
  };

  std::vector<NodeId> holders(ChunkId chunk) const;
  /// Those before the last set_homes() that serve, if the chunk had another home then; empty without homes.
  std::vector<NodeId> former_holders(ChunkId chunk) const;
  std::optional<size_t> best_of(const std::vector<NodeId>& nodes, uint64_t length) const;
  std::optional<Choice> choose(ChunkId chunk, uint64_t length, const std::vector<NodeId>& tried) const;
  void fetch_from_pfs(FetchRequest request);
  void ask_peer(const RoutePtr& route, const Choice& choice);
  void ask_pfs(const RoutePtr& route);
  void answered(const RoutePtr& route, NodeId peer, PeerOutcome outcome);
  void former_answered(bool had_it);

  // Constant after construction.
  const Deps deps_;
  const FallbackRule rule_;

  mutable Mutex mutex_;
  std::shared_ptr<const HoldersOf> homes_ GUARDED_BY(mutex_);   // null: none is known
  std::shared_ptr<const HoldersOf> former_ GUARDED_BY(mutex_);  // before homes_; null: none has anything
  unsigned former_misses_ GUARDED_BY(mutex_) = 0;
  LatencyModel pfs_path_ GUARDED_BY(mutex_);
  uint64_t pfs_bytes_ GUARDED_BY(mutex_) = 0;  // on their way
  uint64_t corrupt_ GUARDED_BY(mutex_) = 0;
};

}  // namespace clairfs
