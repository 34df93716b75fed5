// How a job grows with its nodes: the code of net/ for 4 to 1,024 nodes in one process, over a network of its
// own time (tests/support/network/virtual_network.h). A table says each figure for each number of nodes, and
// how it grows from the last but one to the last.
//
//   nodes_bench [--quick]      --quick: up to 64 nodes
//
// Times are those of the network, whatever else the machine does; processor time and memory are the real
// ones, and hold the network's part, too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/sinks/null_sink.h>
#include <sys/stat.h>

#include "cache/base/thread.h"
#include "cache/catalog/builder.h"
#include "net/job.h"
#include "tests/support/network/virtual_network.h"

namespace clairfs {
namespace {

using namespace std::chrono_literals;

// Of ImageNet's train split; what is sent here stands for it.
constexpr uint64_t kCatalogBytes = 150'000'000;
constexpr uint32_t kEntries = 8'000;
constexpr double kCard = 1.25e9;  // bytes a second: 10 Gbit/s

double cpu_seconds() {
  return in_seconds(thread_cpu_time());
}

double heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return double(info.uordblks) + double(info.hblkhd);
}

std::shared_ptr<const Catalog> made_up_catalog() {
  CatalogBuilder builder("/data", 4U << 20, kEntries);
  SourceAttributes folder;
  folder.mode = S_IFDIR | 0755;
  SourceAttributes image;
  image.mode = S_IFREG | 0644;
  image.size = 110'000;
  builder.add(FileId(0), "", folder);
  for (uint32_t i = 1; i < kEntries; ++i)
    builder.add(FileId(0), "img_" + std::to_string(10'000'000 + i) + ".JPEG", image);
  return builder.finish(0, 0).value();
}

// Which of the alternatives of wire::Message the bytes are.
size_t kind_of(std::span<const std::byte> message) {
  return std::to_integer<size_t>(message[sizeof(wire::kVersion)]);
}
const size_t kPlanKind = wire::Message(wire::PlanEntry()).index();

struct Node {
  Node(Transport& transport, const Clock& clock, Logger& log, const JobOptions& options)
      : unserved(transport), job({transport, clock, metrics, log}, options, [](const std::string& why) {
          fmt::print(stderr, "nodes_bench: {}\n", why);
          std::abort();
        }) {}
  Metrics metrics;
  UnservedRequests unserved;
  Job job;
};

/// A job, from its begin on.
class Nodes {
 public:
  Nodes(uint32_t count, const std::shared_ptr<const Catalog>& catalog)
      : count_(count), catalog_(catalog), knows_plan_(count), network_(count, network_options()) {
    JobOptions options;
    options.chunk_size = 4U << 20;
    const uint64_t pieces = (kCatalogBytes + wire::kMaxPiece - 1) / wire::kMaxPiece;
    options.catalog.piece = static_cast<uint32_t>((catalog->image().size() + pieces - 1) / pieces);
    log_.set_level(spdlog::level::off);
    const double before = heap_bytes();
    for (uint32_t i = 0; i < count; ++i) {
      options.host = fmt::format("node{:04}.cluster", i);
      nodes_.push_back(std::make_unique<Node>(network_.endpoint(NodeId(i)), network_.clock(), log_, options));
    }
    heap_before_ = before;
  }
  ~Nodes() {
    for (auto& node : nodes_) node->job.stop({});
  }

  VirtualNetwork& network() { return network_; }
  Node& operator[](uint32_t rank) { return *nodes_[rank]; }
  uint32_t count() const { return count_; }
  double heap_of_a_node() const { return (heap_bytes() - heap_before_) / count_; }

  /// Until all that have not been taken away know so many others alive.
  Duration until_alive(int64_t others, Duration most) {
    return until(
        [this, others] {
          return all([others](const Node& node) { return node.metrics.peers_alive.value() == others; });
        },
        most);
  }
  Duration until_dead(int64_t others, Duration most) {
    return until(
        [this, others] {
          return all([others](const Node& node) { return node.metrics.peers_dead.value() == others; });
        },
        most);
  }
  /// Anybody of them.
  Duration until_somebody_dead(Duration most) {
    return until(
        [this] { return !all([](const Node& node) { return node.metrics.peers_dead.value() == 0; }); }, most);
  }
  bool all_alive(int64_t others) const {
    return all([others](const Node& node) { return node.metrics.peers_alive.value() == others; });
  }
  void take_away(uint32_t rank) { away_.push_back(rank); }
  void bring_back(uint32_t rank) { std::erase(away_, rank); }

  /// Until all have the catalog but those that are away.
  Duration spread_catalog() {
    nodes_[0]->job.publish_catalog(catalog_);
    return until(
        [this] {
          for (uint32_t i = 1; i < count_; ++i) {
            if (!is_away(i) && network_.bulk_bytes_received(NodeId(i)) < catalog_->image().size())
              return false;
          }
          return true;
        },
        1h);
  }
  void serve() {
    nodes_[0]->job.serve(*catalog_, nodes_[0]->unserved);
    for (uint32_t i = 1; i < count_; ++i) {
      if (is_away(i)) continue;
      const auto got = nodes_[i]->job.await_catalog([](uint64_t) {});
      if (!got || (*got)->identity() != catalog_->identity()) fail("a catalog did not come whole");
      catalogs_.push_back(*got);
      nodes_[i]->job.serve(*catalogs_.back(), nodes_[i]->unserved);
    }
  }

  void register_plan(uint32_t rank, const std::string& name) {
    std::fill(knows_plan_.begin(), knows_plan_.end(), false);
    knows_plan_[rank] = true;
    plan_messages_ = 0;
    plan_began_ = network_.clock().now();
    plan_spread_ = {};
    if (!nodes_[rank]->job.announce_plan(name, "sampler=torch.distributed seed=42 epochs=90"))
      fail("a plan is refused");
  }
  bool knows_plan(uint32_t rank) const { return knows_plan_[rank]; }
  /// From its registration on.
  Duration until_all_know_plan(Duration most) {
    until(
        [this] {
          for (uint32_t i = 0; i < count_; ++i) {
            if (!is_away(i) && !knows_plan_[i]) return false;
          }
          return true;
        },
        most);
    return plan_spread_;
  }
  Duration since_plan() const { return network_.clock().now() - plan_began_; }
  double plan_messages() const { return double(plan_messages_); }

  Duration until(const std::function<bool()>& over, Duration most) {
    const TimePoint start = network_.clock().now();
    if (!network_.run_until(over, most)) fail("what must come does not");
    return network_.clock().now() - start;
  }
  VirtualNetwork::Traffic sent() const {
    VirtualNetwork::Traffic sum;
    for (uint32_t i = 0; i < count_; ++i) {
      const auto sent = network_.sent(NodeId(i));
      sum.messages += sent.messages;
      sum.message_bytes += sent.message_bytes;
      sum.bulk_bytes += sent.bulk_bytes;
    }
    return sum;
  }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    fmt::print(stderr, "nodes_bench: {}\n", why);
    std::exit(1);
  }
  bool is_away(uint32_t rank) const { return std::find(away_.begin(), away_.end(), rank) != away_.end(); }
  bool all(const std::function<bool(const Node&)>& holds) const {
    for (uint32_t i = 0; i < count_; ++i) {
      if (!is_away(i) && !holds(*nodes_[i])) return false;
    }
    return true;
  }
  VirtualNetworkOptions network_options() {
    VirtualNetworkOptions options;
    options.bytes_per_second = kCard;
    options.bulk_weight = kCatalogBytes / catalog_->image().size();
    options.arrived = [this](NodeId, NodeId to, std::span<const std::byte> message) {
      if (kind_of(message) != kPlanKind) return;
      ++plan_messages_;
      if (!knows_plan_[to.index()]) plan_spread_ = network_.clock().now() - plan_began_;
      knows_plan_[to.index()] = true;
    };
    return options;
  }

  const uint32_t count_;
  const std::shared_ptr<const Catalog> catalog_;
  Logger log_{"nodes", std::make_shared<spdlog::sinks::null_sink_mt>()};
  std::vector<bool> knows_plan_;
  uint64_t plan_messages_ = 0;
  TimePoint plan_began_{};
  Duration plan_spread_{};  // until the last one that heard of it
  VirtualNetwork network_;
  double heap_before_ = 0;
  std::vector<uint32_t> away_;
  std::vector<std::shared_ptr<const Catalog>> catalogs_;
  std::vector<std::unique_ptr<Node>> nodes_;  // first down
};

/// The figures, each for all numbers of nodes.
class Table {
 public:
  void add(const std::string& figure, double value) {
    const auto found =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.figure == figure; });
    Row& row = found != rows_.end() ? *found : rows_.emplace_back(Row{figure, {}});
    row.values.push_back(value);
  }
  void print(const std::vector<uint32_t>& counts) const {
    fmt::print("{:<58}", "nodes");
    for (const uint32_t count : counts) fmt::print("{:>11}", count);
    fmt::print("  grows, at the end\n");
    for (const Row& row : rows_) {
      fmt::print("{:<58}", row.figure);
      for (const double value : row.values)
        fmt::print("{:>11.{}f}", value, value < 10 ? 3 : value < 1000 ? 1 : 0);
      fmt::print("  {}\n", growth(counts, row.values));
    }
  }

 private:
  struct Row {
    std::string figure;
    std::vector<double> values;
  };

  // Of the last step, since much is bounded from some number of nodes on, or begins there: by its exponent.
  static const char* growth(const std::vector<uint32_t>& counts, const std::vector<double>& values) {
    const size_t last = values.size() - 1;
    if (last == 0 || std::abs(values[last] - values[last - 1]) < 1e-3) return "constant";
    const double exponent = std::log(std::max(values[last], 1e-6) / std::max(values[last - 1], 1e-6)) /
                            std::log(double(counts[last]) / counts[last - 1]);
    if (exponent < -0.1) return "falls";
    return exponent < 0.1 ? "constant" : exponent < 0.4 ? "log" : exponent < 1.4 ? "linear" : "quadratic";
  }

  std::vector<Row> rows_;
};

double per_node(double sum, const Nodes& nodes) {
  return sum / nodes.count();
}

void join(Nodes& nodes, Table& table) {
  const Duration took = nodes.until_alive(nodes.count() - 1, 10min);
  table.add("join: until all know all, ms", in_seconds(took) * 1e3);
  nodes.network().run_for(100ms);  // answers that are on their way
  table.add("join: messages a node sends", per_node(double(nodes.sent().messages), nodes));
  table.add("memory of a node, KiB", nodes.heap_of_a_node() / 1024);
}

void catalog(Nodes& nodes, const Catalog& sent, Table& table) {
  table.add("catalog of 150 MB: until all have it, s", in_seconds(nodes.spread_catalog()));
  const auto images = [&](uint32_t rank) {
    return double(nodes.network().sent(NodeId(rank)).bulk_bytes) / double(sent.image().size());
  };
  double most = 0;
  for (uint32_t i = 1; i < nodes.count(); ++i) most = std::max(most, images(i));
  table.add("catalog: times that rank 0 sends it", images(0));
  table.add("catalog: times that any other sends it", most);
  const auto before = nodes.sent();
  nodes.serve();
  nodes.network().run_for(1s);
  table.add("ready: messages a node sends within a second",
            per_node(double(nodes.sent().messages - before.messages), nodes));
}

void idle(Nodes& nodes, Table& table) {
  nodes.network().run_for(1s);
  const auto before = nodes.sent();
  const double cpu = cpu_seconds();
  constexpr auto kLength = 5s + 120ms;  // whole beats, whatever their length
  nodes.network().run_for(kLength);
  const auto after = nodes.sent();
  const double seconds = in_seconds(kLength);
  table.add("idle: messages a node sends a second",
            per_node(double(after.messages - before.messages), nodes) / seconds);
  table.add("idle: bytes a node sends a second",
            per_node(double(after.message_bytes - before.message_bytes), nodes) / seconds);
  table.add("idle: processor time of a node's ticks and messages, us a second",
            per_node(cpu_seconds() - cpu, nodes) / seconds * 1e6);
}

void plan(Nodes& nodes, Table& table) {
  nodes.register_plan(nodes.count() / 2, "train");
  table.add("plan: until all know it, ms", in_seconds(nodes.until_all_know_plan(1min)) * 1e3);
  nodes.network().run_for(6s);
  table.add("plan: messages for it, a node", per_node(nodes.plan_messages(), nodes));
}

constexpr uint32_t kSlow = 1;
constexpr Duration kSlowBy = 1s;

void slow_node(Nodes& nodes, Table& table) {
  nodes.network().slow_down(NodeId(kSlow), kSlowBy, kCard / 100);
  bool late = false;
  nodes.until(
      [&, end = nodes.network().clock().now() + 12s] {
        late = late || !nodes.all_alive(nodes.count() - 1);
        return nodes.network().clock().now() >= end;
      },
      1min);
  table.add("slow node (1 s, card / 100): taken for late", late ? 1 : 0);
  nodes.register_plan(0, "late");
  nodes.take_away(kSlow);
  const Duration others = nodes.until_all_know_plan(1min);
  nodes.bring_back(kSlow);
  table.add("slow node: until all others know a plan, ms", in_seconds(others) * 1e3);
  table.add("slow node: until it knows it, ms", in_seconds(nodes.until_all_know_plan(1min)) * 1e3);
  nodes.network().slow_down(NodeId(kSlow), {}, kCard);
  nodes.network().run_for(2 * kSlowBy);  // what is on its way
}

// One node dies, another stands still for as long.
void death_and_rejoin(Nodes& nodes, Table& table) {
  const uint32_t dies = nodes.count() - 1;
  const uint32_t hangs = nodes.count() - 2;
  nodes.network().kill(NodeId(dies));
  nodes.network().hang(NodeId(hangs));
  nodes.take_away(dies);
  nodes.take_away(hangs);
  const Duration late = nodes.until_alive(nodes.count() - 3, 10min);
  const Duration first = late + nodes.until_somebody_dead(10min);
  const Duration last = first + nodes.until_dead(2, 10min);
  table.add("death: until nobody asks it for anything, s", in_seconds(late));
  table.add("death: until somebody takes it for dead, s", in_seconds(first));
  table.add("death: until all do, s", in_seconds(last));
  nodes.register_plan(0, "missed");
  nodes.until_all_know_plan(1min);
  const auto before = nodes.sent();
  const Duration missed = nodes.since_plan();
  nodes.network().wake(NodeId(hangs));
  const Duration back = nodes.until_alive(nodes.count() - 2, 10min);
  nodes.bring_back(hangs);
  table.add("rejoin: until all take it back, ms", in_seconds(back) * 1e3);
  table.add("rejoin: until it has the plan that it missed, ms",
            in_seconds(nodes.until_all_know_plan(1min) - missed) * 1e3);
  nodes.network().run_for(1s);
  table.add("rejoin: messages of a node within a second",
            per_node(double(nodes.sent().messages - before.messages), nodes));
}

// The slow node is one that gives the catalog to others.
void catalog_past_slow_node(Nodes& nodes, Table& table) {
  nodes.network().slow_down(NodeId(kSlow), {}, kCard / 10);
  nodes.network().run_for(100ms);
  nodes.take_away(kSlow);
  table.add("slow node (card / 10): until all others have the catalog, s",
            in_seconds(nodes.spread_catalog()));
}

int run(uint32_t most_nodes) {
  std::vector<uint32_t> counts;
  Table table;
  const auto made_up = made_up_catalog();
  for (uint32_t count = 4; count <= most_nodes; count *= 4) {
    fmt::print(stderr, "nodes_bench: {} nodes\n", count);
    counts.push_back(count);
    {
      Nodes nodes(count, made_up);
      join(nodes, table);
      catalog(nodes, *made_up, table);
      idle(nodes, table);
      plan(nodes, table);
      slow_node(nodes, table);
      death_and_rejoin(nodes, table);
    }
    Nodes nodes(count, made_up);
    catalog_past_slow_node(nodes, table);
  }
  table.print(counts);
  return 0;
}

}  // namespace
}  // namespace clairfs

int main(int argc, char** argv) {
  const bool quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
  if (argc > 1 && !quick) {
    fmt::print(stderr, "usage: nodes_bench [--quick]\n");
    return 2;
  }
  return clairfs::run(quick ? 64 : 1024);
}
