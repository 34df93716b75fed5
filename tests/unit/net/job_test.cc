// Nodes that agree on a catalog and on plans, come late, differ, leave and come back.
#include "net/job.h"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include "net/group/source_check.h"
#include "tests/support/catch.h"
#include "tests/support/network/peer_nodes.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// A node before it has a catalog.
struct Starting {
  Starting(InProcessNetwork& network, NodeId rank, const std::function<void(JobOptions&)>& change = {})
      : points(network.points()) {
    JobOptions options;
    options.host = "node" + std::to_string(rank.value);
    options.chunk_size = 64 << 10;
    options.times = {50ms, 1min, 2min};
    options.catalog.piece = 1000;
    options.catalog.piece_patience = 200ms;
    if (change) change(options);
    job = std::make_unique<Job>(Job::Deps{network.endpoint(rank), clock, metrics, log.logger()}, options,
                                [this](const std::string& why) {
                                  {
                                    MutexLock lock(mutex);
                                    refusal = why;
                                  }
                                  points.pass();
                                });
  }
  ~Starting() { job->stop(1s); }
  std::string refused() {
    MutexLock lock(mutex);
    return refusal;
  }
  void follow_plans() {
    job->follow_plans(
        [this](const PlanChange& change) { note(change.text.empty() ? "-" + change.name : change.text); });
  }
  void note(const std::string& what) {
    {
      MutexLock lock(mutex);
      plans.push_back(what);
    }
    points.pass();
  }
  std::string last_plan() {
    MutexLock lock(mutex);
    return plans.empty() ? "" : plans.back();
  }
  std::vector<std::string> all_plans() {
    MutexLock lock(mutex);
    return plans;
  }

  SequencePoints& points;  // of the network; also passed when the job says something
  SteadyClock clock;
  CapturedLog log;
  Metrics metrics;
  Mutex mutex;
  std::string refusal;
  std::vector<std::string> plans;
  std::unique_ptr<Job> job;
};

std::shared_ptr<const Catalog> scan(const TempTree& tree) {
  CapturedLog log;
  ScanOptions options;
  options.chunk_size = 64 << 10;
  return *scan_catalog(tree.path(), options, log.logger());
}

std::shared_ptr<const Catalog> some_catalog(const TempTree& tree, int files = 50) {
  for (int i = 0; i < files; ++i) tree.write("d/f" + std::to_string(i), 100);
  return scan(tree);
}

}  // namespace

TEST_CASE("one node scans and all others get its catalog") {
  InProcessNetwork network(4, 1, {0ms, 3ms});
  TempTree tree;
  const auto catalog = some_catalog(tree, 300);
  REQUIRE(catalog->image().size() > 20 * 1000);
  Starting giver(network, NodeId(0));
  std::vector<std::unique_ptr<Starting>> others;
  for (uint32_t i = 1; i < 4; ++i) others.push_back(std::make_unique<Starting>(network, NodeId(i)));
  std::vector<std::jthread> waiting;
  std::atomic<int> equal{0};
  std::atomic<uint64_t> told{0};
  for (auto& node : others) {
    waiting.emplace_back([&] {
      const auto got = node->job->await_catalog([&](uint64_t entries) {
        told = entries;
        network.points().pass();
      });
      if (got && (*got)->identity() == catalog->identity()) ++equal;
    });
  }
  giver.job->tell_scan_progress(12345);
  CHECK(network.points().wait_until([&] { return told == 12345; }));
  CHECK(equal == 0);
  giver.job->publish_catalog(catalog);
  waiting.clear();
  CHECK(equal == 3);
}

TEST_CASE("the catalog arrives over a network that loses and damages") {
  InProcessNetwork network(2, 3, {0ms, 3ms, 0.2, 0.2, 0.2});
  TempTree tree;
  const auto catalog = some_catalog(tree);
  Starting giver(network, NodeId(0));
  Starting other(network, NodeId(1));
  giver.job->publish_catalog(catalog);
  // Three damaged images in a row are possible and then an error, never a wrong catalog.
  const auto got = other.job->await_catalog([](uint64_t) {});
  if (got) {
    CHECK((*got)->identity() == catalog->identity());
  } else {
    CHECK(got.error().code == EBADMSG);
  }
}

TEST_CASE("who waits for the catalog is told when the giver leaves, dies, or is silent") {
  InProcessNetwork network(2, 1);
  Starting giver(network, NodeId(0));
  const std::string how = GENERATE("leaves", "dies", "silent");
  Starting other(network, NodeId(1), [&](JobOptions& options) {
    if (how == "dies") options.times = {50ms, 100ms, 300ms};
    if (how == "silent") options.catalog.patience = 300ms;
  });
  REQUIRE(network.points().wait_until([&] { return other.job->nodes()[0].state != PeerState::joining; }));
  if (how == "leaves") giver.job->leave("the source is gone");
  if (how == "dies") network.kill(NodeId(0));
  const auto got = other.job->await_catalog([](uint64_t) {});
  REQUIRE(!got);
  CHECK(got.error().code == (how == "silent" ? ETIMEDOUT : ECONNABORTED));
  if (how == "leaves") CHECK(other.log.has("the source is gone"));
}

TEST_CASE("a node with another chunk size is refused, and told what differs") {
  InProcessNetwork network(3, 1);
  Starting giver(network, NodeId(0));
  Starting same(network, NodeId(1));
  Starting other(network, NodeId(2), [](JobOptions& options) { options.chunk_size = 1 << 20; });
  const auto got = other.job->await_catalog([](uint64_t) {});
  REQUIRE(!got);
  CHECK(got.error().code == EPERM);
  CHECK(got.error().message.find("its chunk size is 1.0 MiB, that of node 0 is 64.0 KiB") !=
        std::string::npos);
  CHECK(network.points().wait_until([&] { return !other.refused().empty(); }));
  CHECK(network.points().wait_until([&] { return giver.job->nodes()[2].state == PeerState::left; }));
  CHECK(same.refused().empty());
  CHECK(giver.refused().empty());
}

TEST_CASE("a node of another version is told by its own log") {
  InProcessNetwork network(2, 1);
  Starting other(network, NodeId(1));
  Transport& strange = network.endpoint(NodeId(0));
  strange.start({[](NodeId, std::span<const std::byte>) {}, [](TimePoint) {}});
  auto bytes = wire::encode(wire::Goodbye{});
  bytes.resize(bytes.size() - sizeof(uint64_t));
  bytes[0] = std::byte{wire::kVersion + 1};
  wire::seal(bytes);
  CHECK(strange.send(NodeId(1), bytes));
  CHECK(network.points().wait_until(
      [&] { return other.refused().find("another version") != std::string::npos; }));
  strange.stop(0s);
}

TEST_CASE("a node tells the others what it had on NVMe, also when it learns that after its first hello") {
  InProcessNetwork network(2, 1);
  Starting one(network, NodeId(0));
  Starting other(network, NodeId(1));
  REQUIRE(network.points().wait_until([&] { return one.job->nodes()[1].state == PeerState::alive; }));
  CHECK(one.job->nodes()[1].info.warm == 0);
  other.metrics.nvme_warm_bytes.set(12345);
  CHECK(network.points().wait_until([&] { return one.job->nodes()[1].info.warm == 12345; }));
  CHECK(other.job->nodes()[1].info.warm == 12345);
}

TEST_CASE("rubbish from another node is ignored") {
  InProcessNetwork network(2, 1);
  Starting other(network, NodeId(1));
  Transport& strange = network.endpoint(NodeId(0));
  strange.start({[](NodeId, std::span<const std::byte>) {}, [](TimePoint) {}});
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes(random() % 100);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    if (bytes.size() > 3) {
      bytes[0] = std::byte{wire::kVersion};
      bytes[1] = std::byte{0};
      bytes[2] = static_cast<std::byte>(random() % 16);
      wire::seal(bytes);
    }
    CHECK(strange.send(NodeId(1), bytes));
  }
  wire::Hello hello;
  hello.host = "the end";
  hello.chunk_size = 64 << 10;
  hello.incarnation = ~0ULL;
  CHECK(strange.send(NodeId(1), wire::encode(hello)));
  CHECK(network.points().wait_until([&] { return other.job->nodes()[0].info.host == "the end"; }));
  CHECK(other.log.lines_with("is ignored") <= 20);
  strange.stop(0s);
}

TEST_CASE("a node whose source is another dataset learns what differs") {
  TempTree theirs;
  const auto catalog = some_catalog(theirs, 200);
  const auto check = [&](const TempTree& ours) {
    const Fd fd(::open(ours.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const Status same = check_source(*catalog, fd.get());
    return same ? std::string("same") : same.error().message;
  };
  CHECK(check(theirs) == "same");
  TempTree empty;
  CHECK(check(empty).find("No such file") != std::string::npos);
  TempTree copied;  // the same names and sizes, later
  some_catalog(copied, 200);
  const auto later = std::filesystem::file_time_type::clock::now() + 1h;
  for (int i = 0; i < 200; ++i) std::filesystem::last_write_time(copied.at("d/f" + std::to_string(i)), later);
  CHECK(check(copied).find("modified") != std::string::npos);
  TempTree grown;
  for (int i = 0; i < 200; ++i) grown.write("d/f" + std::to_string(i), 101);
  CHECK(check(grown).find("101 bytes here, 100 there") != std::string::npos);
}

TEST_CASE("a plan registered on any node reaches all, and so does its end") {
  InProcessNetwork network(3, 1, {0ms, 3ms});
  std::vector<std::unique_ptr<Starting>> nodes;
  for (uint32_t i = 0; i < 3; ++i) nodes.push_back(std::make_unique<Starting>(network, NodeId(i)));
  for (auto& node : nodes) node->follow_plans();
  const auto all_have = [&](const std::string& plan) {
    return network.points().wait_until([&] {
      return std::all_of(nodes.begin(), nodes.end(), [&](auto& node) { return node->last_plan() == plan; });
    });
  };
  CHECK(nodes[1]->job->announce_plan("default", "seed=1"));
  CHECK(all_have("seed=1"));
  CHECK(nodes[2]->job->announce_plan("default", "seed=2"));
  CHECK(all_have("seed=2"));
  CHECK(nodes[0]->job->announce_cancelled("default"));
  CHECK(all_have("-default"));
  CHECK(nodes[0]->all_plans() == std::vector<std::string>{"seed=1", "seed=2", "-default"});
  CHECK(nodes[0]->job->announce_plan("default", std::string(wire::kMaxText + 1, 'x')).error().code == E2BIG);
}

TEST_CASE("nodes on which different plans are registered at once end with the same one") {
  InProcessNetwork network(4, GENERATE(1, 2, 3), {0ms, 20ms});
  std::vector<std::unique_ptr<Starting>> nodes;
  for (uint32_t i = 0; i < 4; ++i) nodes.push_back(std::make_unique<Starting>(network, NodeId(i)));
  for (auto& node : nodes) node->follow_plans();
  {
    std::vector<std::jthread> scripts;
    for (size_t n = 0; n < nodes.size(); ++n) {
      scripts.emplace_back([&, n] {
        for (int i = 0; i < 20; ++i)
          (void)nodes[n]->job->announce_plan("default",
                                             "seed=" + std::to_string(n * 100 + static_cast<size_t>(i)));
      });
    }
  }
  CHECK(network.points().wait_until([&] {
    return std::all_of(nodes.begin(), nodes.end(), [&](auto& node) {
      return !node->last_plan().empty() && node->last_plan() == nodes[0]->last_plan();
    });
  }));
}

TEST_CASE("late nodes and those that heard nothing for a while get the plans in force") {
  InProcessNetwork network(3, 1, {0ms, 1ms});
  Starting a(network, NodeId(0));
  Starting b(network, NodeId(1));
  CHECK(a.job->announce_plan("train", "seed=1"));
  CHECK(a.job->announce_plan("val", "seed=2"));
  CHECK(a.job->announce_cancelled("val"));
  network.hang(NodeId(1));
  network.set_faults({0ms, 1ms, 0.3});
  CHECK(a.job->announce_plan("train", "seed=3"));
  Starting late(network, NodeId(2));
  late.follow_plans();
  b.follow_plans();
  network.wake(NodeId(1));
  for (Starting* node : {&b, &late}) {
    CHECK(network.points().wait_until([&] {
      const std::vector<std::string> plans = node->all_plans();
      const auto replaced = std::find(plans.begin(), plans.end(), "seed=3");
      const auto registered = std::find(plans.begin(), plans.end(), "seed=2");
      // Who heard of "val" while it was in force hears of its end too.
      return replaced != plans.end() &&
             (registered == plans.end() || std::find(registered, plans.end(), "-val") != plans.end());
    }));
  }
}

TEST_CASE("a node that leaves is not asked any more, and others go on") {
  AwaitedCount changes;
  NodesOptions options;
  options.nodes = 3;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(3));
  REQUIRE(nodes.await_serving());
  Tally tally;
  for (uint32_t c = 0; c < 20; ++c) tally.acquire(nodes, 0, ChunkId(c));
  REQUIRE(tally.await_all());
  nodes[0].job->follow_nodes([&] { changes.raise(); });
  REQUIRE(changes.reaches(1));  // for those before
  const uint64_t before = changes.value();
  nodes[2].end();
  CHECK(nodes[2].stopped_in_time);
  REQUIRE(changes.reaches(before + 1));
  REQUIRE(nodes.network.points().wait_until([&] {
    return nodes[0].job->nodes()[2].state == PeerState::left &&
           nodes[1].job->nodes()[2].state == PeerState::left;
  }));
  for (size_t n = 0; n < 2; ++n) {
    for (uint32_t c = 0; c < nodes.catalog->chunk_count(); ++c) tally.acquire(nodes, n, ChunkId(c));
  }
  REQUIRE(tally.await_all());
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  CHECK(nodes[0].metrics.peers_late.value() == 0);
}

TEST_CASE("a node that was taken for dead and wakes is served and serves again") {
  NodesOptions options;
  options.impatient();
  options.nodes = 2;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(2));
  REQUIRE(nodes.await_serving());
  const uint64_t incarnation = nodes[0].job->nodes()[1].info.incarnation;
  nodes.network.hang(NodeId(1));
  REQUIRE(
      nodes.network.points().wait_until([&] { return nodes[0].job->nodes()[1].state == PeerState::dead; }));
  CHECK(nodes[0].metrics.peers_dead.value() == 1);
  Tally tally;
  for (uint32_t c = 0; c < 10; ++c) tally.acquire(nodes, 0, ChunkId(c));
  REQUIRE(tally.await_all());
  CHECK(tally.from_peers == 0);
  nodes.network.wake(NodeId(1));
  // What it had sent before may be heard first.
  REQUIRE(nodes.network.points().wait_until(
      [&] { return nodes[0].job->nodes()[1].info.incarnation > incarnation; }));
  REQUIRE(nodes.await_serving());
  CHECK(nodes[0].metrics.peers_dead.value() == 0);
  CHECK(nodes[1].log.has("was suspended for"));
  CHECK(!nodes[1].log.has("taken for dead"));  // it does not blame others for its sleep
  for (uint32_t c = 10; c < 40; ++c) tally.acquire(nodes, (c + 1) % 2, ChunkId(c));
  REQUIRE(tally.await_all());
  CHECK(tally.from_peers > 0);
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
}

TEST_CASE("what the nodes did is seen on each of them") {
  NodesOptions options;
  options.nodes = 3;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(3));
  REQUIRE(nodes.await_serving());
  Tally tally;
  for (size_t n = 0; n < 3; ++n) {
    for (uint32_t c = 0; c < nodes.catalog->chunk_count(); ++c) tally.acquire(nodes, n, ChunkId(c));
  }
  REQUIRE(tally.await_all());
  const uint64_t from_peers = tally.from_peers;
  CHECK(nodes.network.points().wait_until([&] {
    const JobTotals totals = nodes[1].job->totals();
    return totals.nodes == 3 && totals.alive == 3 && totals.counters.served == from_peers;
  }));
  const auto json = nlohmann::json::parse(nodes[1].job->peers_json(nodes[1].routed));
  CHECK(json["self"] == 1);
  CHECK(json["peers"].size() == 3);
  CHECK(json["peers"][0]["state"] == "alive");
  CHECK(json["peers"][1]["state"] == "self");
  CHECK(json["peers"][0]["bytes_in"].get<uint64_t>() + json["peers"][2]["bytes_in"].get<uint64_t>() ==
        nodes[1].metrics.peers_bytes_in.value());
  CHECK(json["total"]["served"] == from_peers);
  const std::string text = nodes[1].job->peers_text(nodes[1].routed);
  CHECK(text.find("node0") != std::string::npos);
  CHECK(text.find("3 of 3 nodes alive") != std::string::npos);
}
