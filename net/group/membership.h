// Membership knows which nodes of the job are there.
//
//   joining --hello--> alive <--anything heard-- late <--silence-- alive
//                      alive, late --longer silence--> dead --hello--> alive
//                      any --goodbye--> left
//
// Every node says hello to every other about once a second; whatever arrives from a node proves that it
// lives. A late node is not asked for anything; a dead one also loses its part in the placement (the listener
// of on_change drops it). It is never certain that a silent node is dead, so every node that is heard again
// is taken back: its caches hold what they held, since a dataset does not change. Nodes that see its hello
// tell it what it missed (plans, see PlanRegister). A node that was stopped for more than a second (SIGSTOP,
// a debugger, a frozen virtual machine) sees the gap in its own ticks, gives all nodes time to be heard
// before it judges them, and says hello at once.
//
// Threads: the net thread calls what says so; everything else is thread-safe. No lock is held while a message
// is sent or on_change runs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

enum class PeerState : uint8_t { joining, alive, late, dead, left };
const char* to_string(PeerState state);

/// Counters of the traffic between this node and another. Thread-safe.
struct PeerTraffic {
  Counter requested, received, bytes_in, late, not_here, failed, corrupt, served, bytes_out;
  Gauge outstanding_bytes;
};

struct MembershipTimes {
  /// Often enough to notice a death within seconds, rarely enough to cost nothing (an idle node must not be
  /// seen in top).
  Duration heartbeat = std::chrono::seconds(1);
  /// Three heartbeats missed. A client that waits for an answer asks, and knows earlier (see PeerClient).
  Duration late_after = std::chrono::seconds(3);
  /// Longer than a node stands still that swaps or writes a core file, since its chunks are then read from
  /// the PFS again by others; shorter than an epoch.
  Duration dead_after = std::chrono::seconds(15);
};

/// As of now, for reports.
struct PeerReport {
  NodeId node;
  PeerState state = PeerState::joining;
  bool serves = false;
  Duration silent{};    ///< since it was last heard
  wire::Hello info;     ///< as it last said
  std::string parting;  ///< why it left
};

class Membership {
 public:
  struct Deps {
    Transport& transport;
    const Clock& clock;
    Metrics& metrics;
    Logger& log;
    /// Makes this node's hello; Membership fills in incarnation, ready and identity.
    std::function<wire::Hello()> describe;
    /// On the net thread.
    std::function<void(NodeId, PeerState before, PeerState now)> on_change;
  };

  Membership(Deps deps, const MembershipTimes& times);

  // Of the net thread.
  void heard(NodeId from, TimePoint now);  ///< any message; before what it says is acted upon
  /// Ignores a hello that is_outdated().
  void on_hello(NodeId from, const wire::Hello& hello);
  /// Whether an earlier incarnation than the known one said it: such a hello says nothing of the node as it
  /// is. Once the known one has said no hello for as long as a dead node, every hello counts: the node may
  /// have begun anew with a clock that was set back, though other messages of it were heard meanwhile.
  bool is_outdated(NodeId from, const wire::Hello& hello) const;
  void on_goodbye(NodeId from, const std::string& reason);
  /// A node that waited for an answer in vain finds that this one does not even answer probes.
  void suspect(NodeId node, Duration silence);
  void tick(TimePoint now);

  /// From now on this node serves chunks of the catalog with this identity; says so to all.
  void set_ready(uint64_t catalog_identity);
  uint64_t catalog_identity() const { return identity_; }  ///< 0 before set_ready()
  /// The last word to all: no hello follows it.
  void say_goodbye(const std::string& reason);

  PeerState state(NodeId node) const { return peer(node).state.load(std::memory_order_acquire); }
  /// It is alive and serves chunks of the same catalog.
  bool serves(NodeId node) const { return peer(node).serves.load(std::memory_order_acquire); }
  /// When something was last heard of it (or, if that is later, when this node woke).
  TimePoint last_heard(NodeId node) const;
  PeerTraffic& traffic(NodeId node) const { return peer(node).traffic; }
  /// For people: its number, and its host if that is known.
  std::string name(NodeId node) const;
  /// All nodes by number; this one has told itself everything.
  std::vector<PeerReport> report() const;

 private:
  struct Peer {
    std::atomic<PeerState> state{PeerState::joining};
    std::atomic<bool> serves{false};
    std::atomic<TimePoint::rep> last_heard{0};
    PeerTraffic traffic;
    // Guarded by mutex_.
    wire::Hello info;
    TimePoint said{};  // when it said that
    std::string parting;
  };

  Peer& peer(NodeId node) const { return *peers_[node.index()]; }
  wire::Hello own_hello(bool wants_answer) const;
  void change(NodeId node, PeerState to, const std::string& why);
  void update_serves(NodeId node);
  void say_hello(bool wants_answer, bool also_dead);
  void wake_up(TimePoint now, Duration gap);

  // Constant after construction.
  const Deps deps_;
  const NodeId self_;
  const MembershipTimes times_;
  const std::vector<std::unique_ptr<Peer>> peers_;  // by node; self-synchronised but for info

  // Of the net thread.
  TimePoint last_tick_{};
  TimePoint next_heartbeat_{};
  uint64_t beats_ = 0;

  std::atomic<uint64_t> incarnation_;
  std::atomic<uint64_t> identity_{0};  // of the catalog; 0: not ready
  std::atomic<bool> left_{false};      // said goodbye
  mutable Mutex mutex_;                // leaf
};

}  // namespace clairfs
