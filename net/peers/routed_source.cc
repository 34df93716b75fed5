#include "net/peers/routed_source.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace clairfs {
namespace {

// Of a PFS that nobody has read from yet: an open and a read of a few milliseconds each, and a part of what a
// job may take.
constexpr LatencyModel::Prior kPfsPrior{10e-3, 200e6};

// Peers that are asked for one fetch: the best, and one more.
constexpr size_t kAttempts = 2;

// Former holders who one after the other had not what they were asked for: they have given it up by now, and
// each costs a message and its answer.
constexpr unsigned kMostFormerMisses = 64;

// Damaged chunks named in the log; after that only counted.
constexpr uint64_t kReported = 100;

}  // namespace

// A fetch that a peer was asked for. One thread at a time deals with it: the one that has the last answer.
struct RoutedSource::Route {
  FetchRequest request;
  ChunkId chunk;
  std::vector<NodeId> tried;
  bool former = false;  // the last of them was asked because it was a holder once
};

RoutedSource::RoutedSource(const Deps& deps, const FallbackRule& rule)
    : deps_(deps), rule_(rule), pfs_path_(kPfsPrior) {}

RoutedSource::~RoutedSource() = default;

void RoutedSource::set_homes(HoldersOf homes) {
  auto known = homes ? std::make_shared<const HoldersOf>(std::move(homes)) : nullptr;
  std::shared_ptr<const HoldersOf> older;  // destroyed outside the lock, as the others are
  MutexLock lock(mutex_);
  homes_.swap(known);
  if (known == nullptr) return;
  older = std::exchange(former_, known);
  former_misses_ = 0;
}

std::vector<NodeId> RoutedSource::holders(ChunkId chunk) const {
  std::shared_ptr<const HoldersOf> homes;
  {
    MutexLock lock(mutex_);
    homes = homes_;
  }
  return homes ? (*homes)(chunk) : std::vector<NodeId>{};
}

std::vector<NodeId> RoutedSource::former_holders(ChunkId chunk) const {
  std::shared_ptr<const HoldersOf> homes;
  std::shared_ptr<const HoldersOf> former;
  {
    MutexLock lock(mutex_);
    homes = homes_;
    former = former_;
  }
  if (homes == nullptr || former == nullptr) return {};
  std::vector<NodeId> nodes = (*former)(chunk);
  const std::vector<NodeId> now = (*homes)(chunk);
  const bool moved = !nodes.empty() && (now.empty() || now.front() != nodes.front());
  if (!moved || nodes.front() == deps_.self) return {};
  std::erase_if(nodes, [&](NodeId node) {
    return node == deps_.self || !deps_.membership.serves(node) || deps_.peers.left_alone(node);
  });
  return nodes;
}

bool RoutedSource::is_home(ChunkId chunk) const {
  const std::vector<NodeId> nodes = holders(chunk);
  return !nodes.empty() && nodes.front() == deps_.self;
}

Duration RoutedSource::pfs_latency() const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  return pfs_path_.latency(now);
}

double RoutedSource::pfs_bandwidth() const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  return pfs_path_.bandwidth(now);
}

bool RoutedSource::may_wait_for_others(FileId file, uint64_t offset) const {
  const ChunkId chunk = deps_.catalog.chunk_at(file, offset);
  if (!former_holders(chunk).empty()) return true;
  const std::vector<NodeId> nodes = holders(chunk);
  if (nodes.empty() || nodes.front() == deps_.self) return false;
  return std::any_of(nodes.begin(), nodes.end(), [&](NodeId node) { return deps_.membership.serves(node); });
}

// Which of the nodes is to be asked; nothing: the PFS.
std::optional<size_t> RoutedSource::best_of(const std::vector<NodeId>& nodes, uint64_t length) const {
  std::vector<HolderPath> paths;
  for (const NodeId node : nodes)
    paths.push_back({deps_.peers.predict(node, length), deps_.peers.slow(node)});
  const TimePoint now = deps_.clock.now();
  Duration pfs{};
  {
    MutexLock lock(mutex_);
    pfs = pfs_path_.predict(pfs_bytes_ + length, now);
  }
  return choose_source(paths, pfs, rule_);
}

// The peer to ask; nothing: the PFS.
std::optional<RoutedSource::Choice> RoutedSource::choose(ChunkId chunk, uint64_t length,
                                                         const std::vector<NodeId>& tried) const {
  // Who held it when homes moved has it for as long as nothing takes its place; its home may have to read it.
  if (const std::vector<NodeId> former = former_holders(chunk); tried.empty() && !former.empty()) {
    if (const auto best = best_of(former, length))
      return Choice{.peer = former[*best], .only_here = true, .former = true};
  }
  const std::vector<NodeId> nodes = holders(chunk);
  if (nodes.empty() || nodes.front() == deps_.self) return std::nullopt;
  std::vector<NodeId> living;
  std::vector<NodeId> hanging;  // their PFS
  for (const NodeId node : nodes) {
    if (!deps_.membership.serves(node) || std::find(tried.begin(), tried.end(), node) != tried.end())
      continue;
    (deps_.peers.left_alone(node) ? hanging : living).push_back(node);
  }
  const bool only_here = living.empty();
  if (only_here) living.swap(hanging);
  if (living.empty()) return std::nullopt;
  // Copies come to be after the homes, so those who hold them may have nothing yet; the home reads what it
  // has not.
  if (!tried.empty() && living.front() == nodes.front()) living.resize(1);
  auto best = best_of(living, length);
  if (!best && !only_here && deps_.peers.take_trial(living.front())) best = 0;
  if (!best) return std::nullopt;
  return Choice{living[*best], living[*best] == nodes.front(), only_here};
}

void RoutedSource::start(FetchRequest request) {
  if (request.scope != FetchScope::anywhere || request.length == 0) return fetch_from_pfs(std::move(request));
  const ChunkId chunk = deps_.catalog.chunk_at(request.file, request.offset);
  const auto choice = choose(chunk, request.length, {});
  if (!choice) return fetch_from_pfs(std::move(request));
  ask_peer(std::make_shared<Route>(Route{std::move(request), chunk, {}}), *choice);
}

// Measures what it takes. The rest of a chunk and fills wait for all else, which says nothing of the PFS, and
// stand in front of nothing.
void RoutedSource::fetch_from_pfs(FetchRequest request) {
  if (request.rest || request.demand->now().is_background()) return deps_.pfs.start(std::move(request));
  const TimePoint begun = deps_.clock.now();
  const uint64_t length = request.length;
  uint64_t in_front = 0;
  {
    MutexLock lock(mutex_);
    in_front = pfs_bytes_ += length;
  }
  request.done = [this, begun, length, in_front, done = std::move(request.done)](const Fetched& outcome) {
    const TimePoint now = deps_.clock.now();
    {
      MutexLock lock(mutex_);
      pfs_bytes_ -= length;
      if (outcome && length > 0) pfs_path_.completed(in_front, now - begun, now);
    }
    done(outcome);
  };
  deps_.pfs.start(std::move(request));
}

void RoutedSource::ask_peer(const RoutePtr& route, const Choice& choice) {
  const FetchRequest& request = route->request;
  PeerFetch fetch;
  fetch.peer = choice.peer;
  fetch.chunk = route->chunk;
  fetch.offset = static_cast<uint32_t>(request.offset % deps_.catalog.chunk_size(request.file));
  fetch.length = static_cast<uint32_t>(request.length);
  fetch.memory = request.memory;
  fetch.demand = request.demand;
  fetch.home = choice.home;
  fetch.only_here = choice.only_here;
  route->former = choice.former;
  fetch.done = [this, route, peer = choice.peer](PeerOutcome outcome) { answered(route, peer, outcome); };
  deps_.peers.start(std::move(fetch));
}

void RoutedSource::ask_pfs(const RoutePtr& route) {
  FetchRequest request = std::move(route->request);
  request.scope = FetchScope::local_or_pfs;
  fetch_from_pfs(std::move(request));
}

void RoutedSource::answered(const RoutePtr& route, NodeId peer, PeerOutcome outcome) {
  switch (outcome) {
    case PeerOutcome::ok:
      if (route->former) former_answered(true);
      return route->request.done(Origin::peer);
    case PeerOutcome::cancelled:
      return route->request.done(Error{ECANCELED, "the mount is being shut down"});
    case PeerOutcome::memory_lost:
      return route->request.done(
          {Error{EIO, "a cancelled receive could not be withdrawn"}, FetchFailure::memory_lost});
    case PeerOutcome::corrupt: {
      uint64_t count = 0;
      {
        MutexLock lock(mutex_);
        count = ++corrupt_;
      }
      if (count <= kReported)
        deps_.log.warn("chunk {} came from node {} with a wrong checksum; it is fetched again",
                       route->chunk.value, peer.value);
      break;
    }
    case PeerOutcome::not_here:
    case PeerOutcome::failed:
    case PeerOutcome::late:
    case PeerOutcome::gone:
      break;
  }
  if (route->former) former_answered(false);
  route->tried.push_back(peer);
  const auto other = route->tried.size() < kAttempts
                         ? choose(route->chunk, route->request.length, route->tried)
                         : std::nullopt;
  if (other) {
    ask_peer(route, *other);
  } else {
    ask_pfs(route);
  }
}

void RoutedSource::former_answered(bool had_it) {
  std::shared_ptr<const HoldersOf> given_up;  // destroyed outside the lock
  MutexLock lock(mutex_);
  former_misses_ = had_it ? 0 : former_misses_ + 1;
  if (former_misses_ >= kMostFormerMisses) given_up.swap(former_);
}

// Whichever of the two has it.
void RoutedSource::demand_changed(const Demand& demand) {
  deps_.peers.demand_changed(demand);
  deps_.pfs.demand_changed(demand);
}

void RoutedSource::stop() {
  deps_.pfs.stop();
  deps_.peers.stop();
}

}  // namespace clairfs
