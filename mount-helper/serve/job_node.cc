#include "mount-helper/serve/job_node.h"

#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "cache/nvme/store.h"
#include "mount-helper/options/defaults.h"
#include "net/group/source_check.h"
#include "net/meeting/meeting.h"
#include "net/mpi/transport.h"
#include "net/transport/descriptors.h"
#include "net/transport/wire.h"

namespace clairfs {
namespace {

// Time for goodbyes to leave; they are a few hundred bytes.
constexpr auto kLastWords = std::chrono::seconds(1);

// Every node says hello at once; a node that has not been heard by then is taken to keep nothing.
constexpr auto kHelloPatience = std::chrono::seconds(30);

std::string host_name() {
  char name[256] = "?";  // longer than any (HOST_NAME_MAX is 64)
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

JobOptions job_options(const MountOptions& options) {
  JobOptions job;
  job.host = host_name();
  job.chunk_size = static_cast<uint32_t>(options.chunk);
  job.ram_capacity = options.ram;
  job.staging = options.staging;
  job.page_cache = options.page_cache;
  job.catalog.most_memory = available_memory(this_machine());
  for (const NvmeDir& nvme : options.nvme) job.nvme_capacity += nvme.capacity;
  return job;
}

// Waits for all nodes. Where there is no launcher they meet, and MPI is told so. `mpi` says the rest.
Result<std::unique_ptr<Transport>> meet_nodes(const MountOptions& options, const JobPlace& place,
                                              MpiOptions mpi, Logger& log) {
  mpi.connect_patience = options.job_timeout;
  mpi.network = options.network;
  std::unique_ptr<Meeting> meeting;
  if (options.job) {
    MeetingOptions at;
    at.at = *options.job;
    at.secret = options.job_secret;
    at.patience = options.job_timeout;
    at.waiting = mpi.waiting;
    auto gathered = Meeting::gather(place, std::move(at), log);
    if (!gathered) return gathered.error();
    meeting = std::move(*gathered);
    if (Status served = meeting->serve_mpi(); !served) return served.error();
    mpi.hindrance = [&] { return meeting->failure(); };
  }
  auto transport = MpiTransport::connect(place, std::move(mpi), log);
  if (!transport) return transport.error();
  if (meeting) meeting->done();
  return std::unique_ptr<Transport>(std::move(*transport));
}

}  // namespace

void decline_job(const MountOptions& options, const JobPlace& place, const std::string& why, Logger& log) {
  log.info("the other nodes of the job are told that this one does not come");
  MpiOptions mpi;
  mpi.before_abort = [&log] { log.flush(); };
  const auto transport = meet_nodes(options, place, std::move(mpi), log);
  if (!transport) return log.warn("they are not: {}", transport.error().message);
  (*transport)->start({[](NodeId, std::span<const std::byte>) {}, [](TimePoint) {}});
  const auto goodbye = wire::encode(wire::Goodbye{("it cannot mount: " + why).substr(0, wire::kMaxText)});
  for (uint32_t i = 0; i < place.size; ++i) {
    if (NodeId(i) != place.self) static_cast<void>((*transport)->send(NodeId(i), goodbye));
  }
  (*transport)->stop(kLastWords);
}

Result<std::unique_ptr<JobNode>> JobNode::connect(MountBase& base) {
  MpiOptions mpi;
  mpi.before_abort = [&base] { base.mount_point.abandon(); };
  mpi.waiting = [&base] { base.end_on_signal(); };
  base.log.info("waiting for {}", pluralize(base.place.size - 1, "other node", "other nodes"));
  const uint64_t descriptors = allow_descriptors(base.place.size);
  if (const std::string few = too_few_descriptors(descriptors, base.place.size); !few.empty())
    base.log.warn("{}", few);
  auto transport = meet_nodes(base.options, base.place, std::move(mpi), base.log);
  if (!transport) return transport.error();
  return std::unique_ptr<JobNode>(new JobNode(base, std::move(*transport)));
}

JobNode::JobNode(MountBase& base, std::unique_ptr<Transport> transport)
    : base_(base),
      transport_(std::move(transport)),
      job_({*transport_, base.clock, base.metrics, base.log}, job_options(base.options),
           [&base](const std::string& why) { base.refuse(why); }) {}

Result<LoadedCatalog> JobNode::catalog(const Load& load) {
  const auto began = std::chrono::steady_clock::now();
  if (job_.self() == CatalogExchange::kScanner) {
    auto loaded = load([this](uint64_t entries) { job_.tell_scan_progress(entries); });
    if (loaded) job_.publish_catalog(loaded->catalog);
    return loaded;
  }
  auto received = job_.await_catalog([&](uint64_t entries) {
    base_.end_on_signal();
    if (entries > 0)
      base_.events.progress(fmt::format("node 0 is scanning: {}", pluralize(entries, "entry", "entries")));
  });
  if (!received) return received.error();
  const Fd source(::open(base_.options.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!source) return system_error(errno, "open " + base_.options.source);
  if (Status same = check_source(**received, source.get()); !same) return same.error();
  LoadedCatalog loaded;
  loaded.catalog = std::move(*received);
  loaded.reason = "from node 0";
  loaded.received = true;
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return loaded;
}

void JobNode::leave() {
  if (std::exchange(left_, true)) return;
  base_.mount_point.stop();
  job_.leave(base_.refusal());
}

void JobNode::stop() {
  leave();
  job_.stop(kLastWords);
}

std::string SharedSource::peers_text() const {
  return node.job().peers_text(source) + fmt::format("network   {}\n", node.network_text());
}

NodePlacement::NodePlacement(SharedSource& shared, const Catalog& catalog, ChunkCache& cache,
                             const MountBase& base)
    : shared_(shared),
      job_(shared.node.job()),
      catalog_(catalog),
      cache_(cache),
      log_(base.log),
      server_(job_.make_server(catalog, cache, shared.source)),
      home_prefill_(cache, catalog),
      home_prefill_thread_("home-prefill", home_prefill_.alarm(), base.clock,
                           [this](TimePoint now) { return home_prefill_.step(now); }),
      placement_manager_(
          catalog, [this] { return capacities(); },
          base.options.placement == "nopfs" ? PlacementRule::nopfs : PlacementRule::clairfs,
          [this](const std::shared_ptr<const PlacementMap>& placement) { apply_placement(placement); },
          log_) {}

void NodePlacement::serve(const IndexStore& indexes, PlanManager& plans) {
  job_.serve_indexes(indexes);
  job_.follow_nodes([this] { nodes_changed(); });
  job_.serve(catalog_, server_);
  await_hellos();
  job_.follow_plans([&plans](const PlanChange& change) { static_cast<void>(plans.take_over(change)); });
}

// Placements are the same on all nodes only if all know what each can keep.
void NodePlacement::await_hellos() const {
  const auto deadline = std::chrono::steady_clock::now() + kHelloPatience;
  const auto silent = [](const PeerReport& node) { return node.state == PeerState::joining; };
  for (;;) {
    auto nodes = job_.nodes();
    std::erase_if(nodes, [&](const PeerReport& node) { return node.node == job_.self() || !silent(node); });
    if (nodes.empty()) return;
    if (std::chrono::steady_clock::now() > deadline) {
      return log_.warn("{} sent no hello within {} (first: node {}); assuming they cache nothing",
                       pluralize(nodes.size(), "node", "nodes"), format_duration(kHelloPatience),
                       nodes.front().node.value);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// As each node last said. One that has said nothing yet keeps nothing.
std::vector<NodeCapacity> NodePlacement::capacities() const {
  std::vector<NodeCapacity> capacities;
  const uint64_t mean_chunk = round_to_pages(mean_chunk_bytes(catalog_));
  for (const PeerReport& node : job_.nodes()) {
    capacities.push_back(
        {node.info.ram_capacity,
         NvmeStore::usable_bytes(node.info.nvme_capacity, catalog_.largest_chunk(), mean_chunk)});
  }
  return capacities;
}

std::vector<NodeStock> NodePlacement::stocks() const {
  std::vector<NodeStock> stocks;
  for (const PeerReport& node : job_.nodes())
    stocks.push_back({{node.info.staging, node.info.page_cache}, node.info.warm});
  return stocks;
}

void NodePlacement::nodes_changed() {
  std::vector<bool> dead;
  for (const PeerReport& node : job_.nodes()) {
    dead.push_back(node.state == PeerState::dead || node.state == PeerState::left);
  }
  placement_manager_.set_dead(dead);
}

void NodePlacement::apply_placement(const std::shared_ptr<const PlacementMap>& placement) {
  {
    MutexLock lock(mutex_);
    placement_ = placement;
  }
  const NodeId self = job_.self();
  shared_.policy.set_placement(placement, self);
  HoldersOf homes;
  if (placement) homes = [placement](ChunkId chunk) { return placement->holders(chunk); };
  shared_.source.set_homes(std::move(homes));
  home_prefill_.set_placement(placement, self);
}

std::shared_ptr<const PlacementMap> NodePlacement::current() const {
  MutexLock lock(mutex_);
  return placement_;
}

uint64_t NodePlacement::announce(const PlanChange& change) const {
  if (change.withdrawn) {
    job_.announce_withdrawn(change.name, change.text);
    return 0;
  }
  const auto told = change.text.empty() ? job_.announce_cancelled(change.name)
                                        : job_.announce_plan(change.name, change.text);
  if (told) return *told;
  log_.warn("the other nodes are not told of plan {}: {}", change.name, told.error().message);
  return 0;
}

std::string NodePlacement::status_text(uint64_t least_pfs_bytes) const {
  const JobTotals totals = job_.totals();
  std::string text = fmt::format("  this is node {}; {} of {} nodes answer\n", job_.self().value,
                                 totals.alive, totals.nodes);
  text += fmt::format("  all nodes together have read {} from the source",
                      format_size(totals.counters.pfs_bytes));
  if (least_pfs_bytes > 0) {
    text +=
        fmt::format("; the lower bound of the epochs begun is {} ({:.3f})", format_size(least_pfs_bytes),
                    static_cast<double>(totals.counters.pfs_bytes) / static_cast<double>(least_pfs_bytes));
  }
  const PrefillProgress warm = home_prefill_.progress();
  text += fmt::format(
      "\n  prefill of this node: {} of {}{}\n", format_size(warm.done), format_size(warm.total),
      warm.failed == 0 ? "" : ", " + pluralize(warm.failed, "chunk", "chunks") + " could not be read");
  return text;
}

std::string NodePlacement::json(uint64_t least_pfs_bytes) const {
  nlohmann::ordered_json job = nlohmann::ordered_json::parse(job_.peers_json(shared_.source));
  job["least_pfs_bytes"] = least_pfs_bytes;
  job["network"] = shared_.node.network_text();
  const PrefillProgress warm = home_prefill_.progress();
  job["warm_up"] = {{"total_bytes", warm.total}, {"done_bytes", warm.done}, {"failed_chunks", warm.failed}};
  if (const auto placed = current()) {
    job["placement"] = {{"homeless_bytes", placed->homeless_bytes()},
                        {"kept_bytes", placed->kept_bytes(job_.self())},
                        {"memory_bytes", placed->memory_bytes()}};
  }
  return nlohmann::ordered_json{{"job", job}}.dump();
}

}  // namespace clairfs
