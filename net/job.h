// One node's part in a job of several: owns everything between the transport and the cache.
//
// In the life of a node:
//   Job(transport)   says hello; from here on it is seen by the others
//   node 0:          tell_scan_progress() ..., publish_catalog()
//   others:          await_catalog(), then check_source() (net/group/source_check.h) on their own source
//   make_source()    the ChunkSource for this node's ChunkCache
//   make_server()    what answers the others' requests out of that cache
//   serve_indexes()  the others get this node's indexes of packed files
//   follow_nodes()   hears which nodes live
//   serve()          hands it those requests; says that the node is ready
//   follow_plans()   gets the plans in force, and those to come
//   leave()          says goodbye; nothing is served any more
//   (the cache is stopped: fetches from peers end)
//   stop()           the transport's thread ends; now the cache may be destroyed, then the Job
//
// A node that cannot be part of the job (another version, another chunk size, another catalog than node 0) is
// told so by node 0 or finds it out itself: `refused` says what differs, and what waits here fails with
// that.
//
// Threads: the transport's net thread, which never waits; "peer-batch" of the PeerClient; and "job"
// (net/group/events.h), on which events and plans are delivered. Thread-safe where not said otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "net/group/catalog_exchange.h"
#include "net/group/events.h"
#include "net/group/index_exchange.h"
#include "net/group/membership.h"
#include "net/group/plan_register.h"
#include "net/peers/client.h"
#include "net/peers/requests.h"
#include "net/peers/routed_source.h"
#include "net/peers/server.h"
#include "net/transport/transfer_numbers.h"
#include "net/transport/transport.h"

namespace clairfs {

struct JobOptions {
  std::string host;         ///< name of this node, for people
  uint32_t chunk_size = 0;  ///< bytes; the same on all nodes
  uint64_t ram_capacity = 0;
  uint64_t nvme_capacity = 0;
  uint64_t staging = 0;
  uint64_t page_cache = 0;
  MembershipTimes times;
  PeerClientOptions client;
  PeerServerOptions server;
  FallbackRule choice;
  CatalogExchangeOptions catalog;
  IndexExchangeOptions index;
};

/// Counters of all nodes together, as this node heard them about a second ago.
struct JobTotals {
  uint32_t nodes = 0;
  uint32_t alive = 0;
  wire::NodeCounters counters;
};

class Job {
 public:
  struct Deps {
    Transport& transport;
    const Clock& clock;
    Metrics& metrics;
    Logger& log;
  };
  /// This node cannot be part of the job: it should end with this message. Called on the job thread.
  using Refused = std::function<void(const std::string& why)>;

  /// Starts the transport and says hello. The dependencies outlive it.
  Job(const Deps& deps, const JobOptions& options, Refused refused);
  ~Job();

  NodeId self() const { return deps_.transport.self(); }

  // The catalog. Node 0:
  void tell_scan_progress(uint64_t entries) { catalog_exchange_.tell_progress(entries); }
  void publish_catalog(std::shared_ptr<const Catalog> catalog) {
    catalog_exchange_.publish(std::move(catalog));
  }
  /// The others. See CatalogExchange::await(). Also fails with EPERM when this node is refused, and with
  /// ECONNABORTED when node 0 goes.
  Result<std::shared_ptr<const Catalog>> await_catalog(const std::function<void(uint64_t entries)>& progress);

  // The data.
  /// The source of this node's cache. The job outlives it, and it uses the catalog and `pfs` until stop().
  RoutedSource make_source(const Catalog& catalog, ChunkSource& pfs);
  /// Serves the others out of the cache. It, the catalog and `source` are used until stop().
  PeerServer make_server(const Catalog& catalog, ChunkCache& cache, const RoutedSource& source);
  /// From now on the others' requests are the server's, until stop(). Once.
  void serve(const Catalog& catalog, PeerRequests& server);

  // The indexes of packed files.
  /// Asks the other nodes for indexes.
  IndexPeers& index_peers() { return index_exchange_; }
  /// From now on the others get those of the store, until stop().
  void serve_indexes(const IndexStore& store) { index_exchange_.serve(store); }

  // The plans.
  /// Also of those that are registered or cancelled on this node, so that all nodes end with the same one.
  void follow_plans(JobEvents::PlanChanged changed) { events_.follow_plans(std::move(changed)); }
  /// Tells all nodes of a plan that was registered here, or cancelled. Returns its stamp. Errors: as
  /// PlanRegister::enter().
  Result<uint64_t> announce_plan(const std::string& name, const std::string& text);
  Result<uint64_t> announce_cancelled(const std::string& name);
  /// Tells all nodes that a plan which was found is not the job's, unless another has taken its place.
  void announce_withdrawn(const std::string& name, const std::string& text);

  // The nodes.
  /// Of changes in nodes().
  void follow_nodes(JobEvents::NodesChanged changed) { events_.follow_nodes(std::move(changed)); }
  std::vector<PeerReport> nodes() const { return membership_.report(); }
  JobTotals totals() const;
  /// For people: a table of the nodes, and sums. `source` tells of the path to the PFS.
  std::string peers_text(const RoutedSource& source) const;
  /// {"self": .., "peers": [..], "total": {..}, "pfs": {..}}
  std::string peers_json(const RoutedSource& source) const;

  // The end.
  /// Says goodbye (`reason` empty: it was told to leave), serves nothing more, and delivers no more events:
  /// waits for the one that is being delivered. Fetches from peers go on.
  void leave(const std::string& reason);
  /// Waits at most `patience` for the last messages to leave.
  void stop(Duration patience);

 private:
  struct Dispatch;

  void on_message(NodeId from, std::span<const std::byte> bytes);
  void on_hello(NodeId from, const wire::Hello& hello);
  void on_plan(const wire::PlanEntry& entry);
  void on_change(NodeId node, PeerState before, PeerState now);
  void tick(TimePoint now);
  wire::Hello describe() const;
  std::optional<std::string> difference(const wire::Hello& theirs, const wire::Hello& ours) const;
  void refuse_self(const std::string& why);
  void tell_all(const wire::PlanEntry& entry);

  // Constant after construction.
  const Deps deps_;
  const JobOptions options_;
  const Refused on_refused_;

  // Self-synchronised.
  TransferNumbers numbers_;
  Membership membership_;
  PeerClient client_;
  CatalogExchange catalog_exchange_;
  IndexExchange index_exchange_;
  PlanRegister plans_;
  UnservedRequests unserved_;
  std::atomic<PeerRequests*> requests_{&unserved_};  // the net thread hears the others before serve()
  std::atomic<uint64_t> misread_{0};                 // messages that could not be understood
  std::atomic<bool> refused_{false};
  JobEvents events_;  // last: its thread uses the others
};

}  // namespace clairfs
