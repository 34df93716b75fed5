#include "mount-helper/job_node.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "cache/nvme_store.h"
#include "net/source_check.h"

namespace clairfs {
namespace {

// Time for goodbyes to leave; they are a few hundred bytes.
constexpr auto kLastWords = std::chrono::seconds(1);

// Every node says hello at once; a node that has not been heard by then is taken to keep nothing.
constexpr auto kHelloPatience = std::chrono::seconds(30);

/// The placement as the peers' client and server ask for it.
class PlacedHomes final : public HomeDirectory {
 public:
  explicit PlacedHomes(std::shared_ptr<const Placement> placement) : placement_(std::move(placement)) {}
  std::vector<Rank> holders(ChunkId chunk) const override { return placement_->holders(chunk); }

 private:
  const std::shared_ptr<const Placement> placement_;
};

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
  for (const NvmeDir& nvme : options.nvme) job.nvme_capacity += nvme.capacity;
  return job;
}

}  // namespace

Result<std::unique_ptr<JobNode>> JobNode::connect(Parts parts) {
  auto node = std::unique_ptr<JobNode>(new JobNode(std::move(parts)));
  const Parts& p = node->parts_;
  MpiOptions mpi;
  mpi.before_abort = p.abandon;
  mpi.waiting = p.waiting;
  auto transport = MpiTransport::connect(p.place, mpi, p.log);
  if (!transport) return transport.error();
  node->transport_ = std::move(*transport);
  node->job_ =
      std::make_unique<Job>(Job::Parts{*node->transport_, p.clock, p.metrics, p.log}, job_options(p.options),
                            Job::Events{p.refused, [self = node.get()] { self->nodes_changed(); }});
  return node;
}

JobNode::~JobNode() {
  stop();
}

Result<LoadedCatalog> JobNode::catalog(const Load& load,
                                       const std::function<void(const std::string&)>& progress) {
  const auto began = std::chrono::steady_clock::now();
  if (parts_.place.self == CatalogExchange::kGiver) {
    auto loaded = load([this](uint64_t entries) { job_->tell_scan_progress(entries); });
    if (loaded) job_->publish_catalog(loaded->catalog);
    return loaded;
  }
  auto received = job_->await_catalog([&](uint64_t entries) {
    if (parts_.waiting) parts_.waiting();
    if (entries > 0) progress(fmt::format("rank 0 is scanning: {}", counted(entries, "entry", "entries")));
  });
  if (!received) return received.error();
  const Fd source(::open(parts_.options.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!source) return system_error(errno, "open " + parts_.options.source);
  if (Status same = check_source(**received, source.get()); !same) return same.error();
  LoadedCatalog loaded;
  loaded.catalog = std::move(*received);
  loaded.reason = "from rank 0";
  loaded.received = true;
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return loaded;
}

ChunkSource& JobNode::make_source(const Catalog& catalog, ChunkSource& pfs) {
  catalog_ = &catalog;
  return job_->make_source(catalog, pfs);
}

TierPolicy& JobNode::policy(NextUsePolicy& single) {
  policy_ = std::make_unique<PlacedPolicy>(*catalog_, single);
  return *policy_;
}

void JobNode::make_placement(ChunkCache& cache) {
  warm_up_ = std::make_unique<WarmUp>(cache, *catalog_);
  const bool nopfs = parts_.options.placement == "nopfs";
  job_placement_ = std::make_unique<JobPlacement>(
      *catalog_, [this] { return capacities(); }, nopfs ? PlacementRule::nopfs : PlacementRule::clairfs,
      [this](const std::shared_ptr<const Placement>& placement) { place(placement); }, parts_.log);
  MutexLock lock(mutex_);
  placing_ = true;
}

void JobNode::serve(ChunkCache& cache) {
  job_->serve(cache);
  await_hellos();
}

// Placements are the same on all nodes only if all know what each can keep.
void JobNode::await_hellos() const {
  const auto deadline = std::chrono::steady_clock::now() + kHelloPatience;
  const auto silent = [](const PeerReport& node) { return node.state == PeerState::joining; };
  for (;;) {
    auto nodes = job_->nodes();
    std::erase_if(nodes,
                  [&](const PeerReport& node) { return node.rank == parts_.place.self || !silent(node); });
    if (nodes.empty()) return;
    if (std::chrono::steady_clock::now() > deadline) {
      return parts_.log.warn("{} said no hello, rank {} among them; what they keep is taken to be nothing",
                             counted(nodes.size(), "node", "nodes"), nodes.front().rank.value);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// As each node last said. One that has said nothing yet keeps nothing.
std::vector<NodeCapacity> JobNode::capacities() const {
  std::vector<NodeCapacity> capacities;
  const uint64_t mean_chunk = round_to_pages(mean_chunk_bytes(*catalog_));
  for (const PeerReport& node : job_->nodes()) {
    capacities.push_back(
        {node.info.ram_capacity,
         NvmeStore::usable_bytes(node.info.nvme_capacity, catalog_->chunk_size(), mean_chunk)});
  }
  return capacities;
}

void JobNode::nodes_changed() {
  {
    MutexLock lock(mutex_);
    if (!placing_) return;
  }
  std::vector<bool> dead;
  for (const PeerReport& node : job_->nodes()) {
    dead.push_back(node.state == PeerState::dead || node.state == PeerState::left);
  }
  job_placement_->set_dead(dead);
}

void JobNode::place(const std::shared_ptr<const Placement>& placement) {
  {
    MutexLock lock(mutex_);
    placement_ = placement;
  }
  const Rank self = parts_.place.self;
  policy_->set_placement(placement, self);
  job_->source()->set_homes(placement ? std::make_shared<const PlacedHomes>(placement) : nullptr);
  warm_up_->set_placement(placement, self);
}

std::shared_ptr<const Placement> JobNode::placement() const {
  MutexLock lock(mutex_);
  return placement_;
}

void JobNode::follow(PlanManager& plans) {
  job_->follow_plans([&plans](const PlanNews& news) { static_cast<void>(plans.take_over(news)); });
}

void JobNode::announce(const PlanNews& news) {
  const Status told =
      news.text.empty() ? job_->announce_cancelled(news.name) : job_->announce_plan(news.name, news.text);
  if (!told) parts_.log.warn("the other nodes are not told of plan {}: {}", news.name, told.error().message);
}

std::string JobNode::status_text(uint64_t least_pfs_bytes) const {
  const JobTotals totals = job_->totals();
  std::string text = fmt::format("  this is node {}; {} of {} nodes answer\n", parts_.place.self.value,
                                 totals.alive, totals.nodes);
  text += fmt::format("  all nodes together have read {} from the source",
                      format_size(totals.counters.pfs_bytes));
  if (least_pfs_bytes > 0) {
    text +=
        fmt::format("; the lower bound of the epochs begun is {} ({:.3f})", format_size(least_pfs_bytes),
                    static_cast<double>(totals.counters.pfs_bytes) / static_cast<double>(least_pfs_bytes));
  }
  const WarmUpProgress warm = warm_up_->progress();
  text += fmt::format(
      "\n  warm-up of this node: {} of {}{}\n", format_size(warm.done), format_size(warm.total),
      warm.failed == 0 ? "" : ", " + counted(warm.failed, "chunk", "chunks") + " could not be read");
  return text;
}

std::string JobNode::json(uint64_t least_pfs_bytes) const {
  nlohmann::ordered_json job = nlohmann::ordered_json::parse(job_->peers_json());
  job["least_pfs_bytes"] = least_pfs_bytes;
  const WarmUpProgress warm = warm_up_->progress();
  job["warm_up"] = {{"total_bytes", warm.total}, {"done_bytes", warm.done}, {"failed_chunks", warm.failed}};
  if (const auto placed = placement()) {
    job["placement"] = {{"homeless_bytes", placed->homeless_bytes()},
                        {"kept_bytes", placed->kept_bytes(parts_.place.self)},
                        {"memory_bytes", placed->memory_bytes()}};
  }
  return nlohmann::ordered_json{{"job", job}}.dump();
}

void JobNode::leave(const std::string& reason) {
  if (warm_up_) warm_up_->stop();
  job_->leave(reason);
}

void JobNode::stop() {
  if (warm_up_) warm_up_->stop();
  if (job_) job_->stop(kLastWords);
}

}  // namespace clairfs
