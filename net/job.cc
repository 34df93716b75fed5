#include "net/job.h"

#include <cerrno>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"

namespace clairfs {
namespace {

// The node whose catalog, chunk size and version all others must share.
constexpr NodeId kFirst = CatalogExchange::kScanner;

// Messages that could not be understood and are named in the log; after that only counted.
constexpr uint64_t kReportedMessages = 20;

}  // namespace

// What is done with each kind of message, on the net thread.
struct Job::Dispatch {
  Job& job;
  NodeId from;

  void operator()(const wire::Hello& m) const { job.on_hello(from, m); }
  void operator()(const wire::Goodbye& m) const { job.membership_.on_goodbye(from, m.reason); }
  void operator()(const wire::Refusal& m) const {
    if (from == kFirst) job.refuse_self(m.reason);
  }
  void operator()(const wire::ChunkRequests& m) const { job.requests_.load()->on_requests(from, m); }
  void operator()(const wire::Reprioritize& m) const { job.requests_.load()->on_reprioritize(from, m); }
  void operator()(const wire::Probe& m) const { job.requests_.load()->on_probe(from, m); }
  void operator()(const wire::ChunkReplies& m) const { job.client_.on_replies(from, m); }
  void operator()(const wire::ProbeAnswer& m) const { job.client_.on_probe_answer(from, m); }
  void operator()(const wire::PlanEntry& m) const { job.on_plan(m); }
  void operator()(const wire::CatalogProgress& m) const { job.catalog_exchange_.on_progress(from, m); }
  void operator()(const wire::CatalogOffer& m) const { job.catalog_exchange_.on_offer(from, m); }
  void operator()(const wire::CatalogRequest& m) const { job.catalog_exchange_.on_request(from, m); }
  void operator()(const wire::IndexInquiry& m) const { job.index_exchange_.on_inquiry(from, m); }
  void operator()(const wire::IndexState& m) const { job.index_exchange_.on_state(from, m); }
  void operator()(const wire::IndexRequest& m) const { job.index_exchange_.on_request(from, m); }
};

Job::Job(const Deps& deps, const JobOptions& options, Refused refused)
    : deps_(deps),
      options_(options),
      on_refused_(std::move(refused)),
      numbers_(deps.transport.size()),
      membership_({deps.transport, deps.clock, deps.metrics, deps.log, [this] { return describe(); },
                   [this](NodeId node, PeerState before, PeerState now) { on_change(node, before, now); }},
                  options.times),
      client_({deps.transport, membership_, numbers_, deps.clock, deps.metrics, deps.log}, options.client),
      catalog_exchange_({deps.transport, numbers_, membership_, deps.clock}, options.catalog),
      index_exchange_({deps.transport, numbers_, membership_, deps.clock,
                       [this](std::function<void()> task) { events_.post(std::move(task)); }},
                      options.index),
      plans_(deps.transport.self()),
      unserved_(deps.transport),
      events_(plans_) {
  deps_.transport.start({[this](NodeId from, std::span<const std::byte> bytes) { on_message(from, bytes); },
                         [this](TimePoint now) { tick(now); }, wire::stands_alone});
}

Job::~Job() {
  stop({});
}

void Job::stop(Duration patience) {
  events_.end();
  catalog_exchange_.fail(Error{ECANCELED, "the mount is being shut down"});
  index_exchange_.stop();
  client_.stop();
  requests_.exchange(&unserved_)->stop();
  deps_.transport.stop(patience);
}

void Job::leave(const std::string& reason) {
  index_exchange_.stop();
  membership_.say_goodbye(reason);
  requests_.load()->stop();
  events_.end();
}

void Job::on_message(NodeId from, std::span<const std::byte> bytes) {
  const auto message = wire::decode(bytes);
  if (message) {
    membership_.heard(from, deps_.clock.now());
    return std::visit(Dispatch{*this, from}, *message);
  }
  const bool other_version = message.error().code == EPROTONOSUPPORT;
  if (misread_.fetch_add(1) < kReportedMessages)
    deps_.log.error("a message of node {} is ignored: {}", from.value, message.error().message);
  if (other_version && from == kFirst)
    refuse_self(fmt::format("node 0 runs another version of clairfs: {}; start the same on all nodes",
                            message.error().message));
}

void Job::tick(TimePoint now) {
  membership_.tick(now);
  client_.tick(now);
  catalog_exchange_.tick(now);
  index_exchange_.tick(now);
}

// Everybody compares himself with node 0 only, so that one message names the one that differs.
void Job::on_hello(NodeId from, const wire::Hello& hello) {
  if (membership_.is_outdated(from, hello)) return;
  wire::Hello own = describe();
  own.catalog_identity = membership_.catalog_identity();
  if (from == kFirst) {
    if (const auto what = difference(own, hello)) return refuse_self(*what);
  } else if (self() == kFirst) {
    if (const auto what = difference(hello, own)) {
      if (membership_.state(from) != PeerState::left)
        deps_.log.error("node {} ({}) is refused: {}", from.value, escaped(hello.host), *what);
      (void)deps_.transport.send(from, wire::encode(wire::Refusal{*what}));
      return membership_.on_goodbye(from, "refused: " + *what);
    }
  }
  membership_.on_hello(from, hello);
  if (hello.catalog_identity == 0) catalog_exchange_.on_hello_without(from);
  if (hello.plans != own.plans) {
    for (const wire::PlanEntry& entry : plans_.entries())
      (void)deps_.transport.send(from, wire::encode(entry));
  }
}

// What keeps a node that says `theirs` out of the job of one that says `first`.
std::optional<std::string> Job::difference(const wire::Hello& theirs, const wire::Hello& first) const {
  if (theirs.chunk_size != first.chunk_size) {
    return fmt::format("its chunk size is {}, that of node 0 is {}: give all nodes the same --chunk",
                       format_size(theirs.chunk_size), format_size(first.chunk_size));
  }
  if (theirs.catalog_identity != 0 && first.catalog_identity != 0 &&
      theirs.catalog_identity != first.catalog_identity)
    return "its catalog is another one than that of node 0: mount the same dataset on all nodes";
  return std::nullopt;
}

void Job::refuse_self(const std::string& why) {
  if (refused_.exchange(true)) return;
  const std::string message =
      fmt::format("node {} (this one) cannot be part of the job: {}", self().value, why);
  deps_.log.error("{}", message);
  catalog_exchange_.fail(Error{EPERM, message});
  events_.post([this, message] { on_refused_(message); });
}

void Job::on_change(NodeId node, PeerState, PeerState now) {
  client_.on_peer_change(node, now);
  requests_.load()->on_peer_change(node, now);
  if (node == kFirst && (now == PeerState::dead || now == PeerState::left))
    catalog_exchange_.fail(Error{ECONNABORTED, "node 0, which scans the dataset, is gone; its log says why"});
  events_.nodes_changed();
}

Result<std::shared_ptr<const Catalog>> Job::await_catalog(
    const std::function<void(uint64_t entries)>& progress) {
  return catalog_exchange_.await(progress);
}

RoutedSource Job::make_source(const Catalog& catalog, ChunkSource& pfs) {
  return {{catalog, pfs, client_, membership_, deps_.clock, deps_.log, self()}, options_.choice};
}

PeerServer Job::make_server(const Catalog& catalog, ChunkCache& cache, const RoutedSource& source) {
  return {{deps_.transport, cache, catalog, membership_, deps_.clock, deps_.metrics,
           [&source](ChunkId chunk) { return source.is_home(chunk); }},
          options_.server};
}

void Job::serve(const Catalog& catalog, PeerRequests& server) {
  requests_ = &server;
  membership_.set_ready(catalog.identity());
}

wire::Hello Job::describe() const {
  wire::Hello hello;
  hello.chunk_size = options_.chunk_size;
  hello.ram_capacity = options_.ram_capacity;
  hello.nvme_capacity = options_.nvme_capacity;
  hello.staging = options_.staging;
  hello.page_cache = options_.page_cache;
  hello.warm = static_cast<uint64_t>(std::max<int64_t>(deps_.metrics.nvme_warm_bytes.value(), 0));
  hello.plans = plans_.digest();
  hello.host = options_.host.substr(0, wire::kMaxName);
  const Metrics& m = deps_.metrics;
  hello.counters.pfs_bytes = m.pfs_bytes.value();
  hello.counters.pfs_opens = m.pfs_opens.value();
  hello.counters.requested = m.peers_requested.value();
  hello.counters.bytes_in = m.peers_bytes_in.value();
  hello.counters.served = m.peers_served.value();
  hello.counters.bytes_out = m.peers_bytes_out.value();
  hello.counters.late = m.peers_late.value();
  hello.counters.failed = m.peers_failed.value() + m.peers_corrupt.value();
  return hello;
}

void Job::on_plan(const wire::PlanEntry& entry) {
  if (plans_.merge(entry)) events_.plan_changed(entry.name);
}

Result<uint64_t> Job::announce_plan(const std::string& name, const std::string& text) {
  const auto entry = plans_.enter(name, text);
  if (!entry) return entry.error();
  tell_all(*entry);
  return entry->stamp;
}

Result<uint64_t> Job::announce_cancelled(const std::string& name) {
  const auto entry = plans_.enter(name, std::nullopt);
  if (!entry) return entry.error();
  tell_all(*entry);
  return entry->stamp;
}

void Job::announce_withdrawn(const std::string& name, const std::string& text) {
  if (const auto entry = plans_.withdraw(name, text)) tell_all(*entry);
}

void Job::tell_all(const wire::PlanEntry& entry) {
  const auto bytes = wire::encode(entry);
  for (uint32_t i = 0; i < deps_.transport.size(); ++i) {
    // A node that does not get it finds another digest in the next hello.
    if (NodeId(i) != self()) (void)deps_.transport.send(NodeId(i), bytes);
  }
  events_.plan_changed(entry.name);
}

}  // namespace clairfs
