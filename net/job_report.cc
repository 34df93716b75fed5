// Job's reports for people and programs.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "cache/base/units.h"
#include "net/job.h"

namespace clairfs {
namespace {

void add(wire::NodeCounters& sum, const wire::NodeCounters& c) {
  sum.pfs_bytes += c.pfs_bytes;
  sum.pfs_opens += c.pfs_opens;
  sum.requested += c.requested;
  sum.bytes_in += c.bytes_in;
  sum.served += c.served;
  sum.bytes_out += c.bytes_out;
  sum.late += c.late;
  sum.failed += c.failed;
}

nlohmann::ordered_json counters_json(const wire::NodeCounters& c) {
  return {{"pfs_bytes", c.pfs_bytes}, {"pfs_opens", c.pfs_opens}, {"requested", c.requested},
          {"bytes_in", c.bytes_in},   {"served", c.served},       {"bytes_out", c.bytes_out},
          {"late", c.late},           {"failed", c.failed}};
}

}  // namespace

JobTotals Job::totals() const {
  JobTotals totals;
  for (const PeerReport& node : nodes()) {
    ++totals.nodes;
    if (node.state == PeerState::alive) ++totals.alive;
    add(totals.counters, node.info.counters);
  }
  return totals;
}

std::string Job::peers_text(const RoutedSource& source) const {
  std::string out = fmt::format(
      "{:>4}  {:<20} {:<8} {:>10} {:>10} {:>9} {:>12} {:>11} {:>7} {:>7} {:>7}  {:>10}\n", "node", "host",
      "state", "in", "out", "latency", "bandwidth", "outstanding", "late", "failed", "absent", "its PFS");
  for (const PeerReport& node : nodes()) {
    const std::string host = escaped(node.info.host);
    if (node.node == self()) {
      out += fmt::format("{:>4}  {:<20} {:<8} {:>10} {:>10} {:>9} {:>12} {:>11} {:>7} {:>7} {:>7}  {:>10}\n",
                         node.node.value, host, "self", "", "", "", "", "", "", "", "",
                         format_size(node.info.counters.pfs_bytes));
      continue;
    }
    const PeerTraffic& t = membership_.traffic(node.node);
    const bool measured = t.received.value() > 0;
    out += fmt::format(
        "{:>4}  {:<20} {:<8} {:>10} {:>10} {:>9} {:>12} {:>11} {:>7} {:>7} {:>7}  {:>10}{}\n",
        node.node.value, host.empty() ? "?" : host, to_string(node.state), format_size(t.bytes_in.value()),
        format_size(t.bytes_out.value()), measured ? format_duration(client_.latency(node.node)) : "-",
        measured ? format_size(static_cast<uint64_t>(client_.bandwidth(node.node))) + "/s" : "-",
        format_size(static_cast<uint64_t>(std::max<int64_t>(0, t.outstanding_bytes.value()))), t.late.value(),
        t.failed.value() + t.corrupt.value(), t.not_here.value(), format_size(node.info.counters.pfs_bytes),
        node.parting.empty() ? "" : fmt::format("  ({})", escaped(node.parting)));
  }
  const JobTotals all = totals();
  out +=
      fmt::format("job   {} of {} nodes alive   from the PFS {} in {} opens   from peers {} in {} chunks\n",
                  all.alive, all.nodes, format_size(all.counters.pfs_bytes), all.counters.pfs_opens,
                  format_size(all.counters.bytes_in), all.counters.served);
  out += fmt::format("PFS   latency {}   bandwidth {}/s (from this node)\n",
                     format_duration(source.pfs_latency()),
                     format_size(static_cast<uint64_t>(source.pfs_bandwidth())));
  return out;
}

std::string Job::peers_json(const RoutedSource& source) const {
  using Json = nlohmann::ordered_json;
  Json peers = Json::array();
  for (const PeerReport& node : nodes()) {
    Json peer;
    peer["rank"] = node.node.value;
    peer["host"] = escaped(node.info.host);
    peer["state"] = node.node == self() ? "self" : to_string(node.state);
    peer["ram_capacity"] = node.info.ram_capacity;
    peer["nvme_capacity"] = node.info.nvme_capacity;
    peer["warm_bytes"] = node.info.warm;
    peer["counters"] = counters_json(node.info.counters);
    if (node.node != self()) {
      const PeerTraffic& t = membership_.traffic(node.node);
      peer["serves"] = node.serves;
      peer["silent_seconds"] = in_seconds(node.silent);
      peer["latency_seconds"] = in_seconds(client_.latency(node.node));
      peer["bandwidth"] = client_.bandwidth(node.node);
      peer["outstanding_bytes"] = t.outstanding_bytes.value();
      peer["requested"] = t.requested.value();
      peer["received"] = t.received.value();
      peer["bytes_in"] = t.bytes_in.value();
      peer["late"] = t.late.value();
      peer["not_here"] = t.not_here.value();
      peer["failed"] = t.failed.value();
      peer["corrupt"] = t.corrupt.value();
      peer["served"] = t.served.value();
      peer["bytes_out"] = t.bytes_out.value();
    }
    if (!node.parting.empty()) peer["parting"] = escaped(node.parting);
    peers.push_back(std::move(peer));
  }
  const JobTotals all = totals();
  Json out;
  out["self"] = self().value;
  out["peers"] = std::move(peers);
  out["total"] = counters_json(all.counters);
  out["total"]["nodes"] = all.nodes;
  out["total"]["alive"] = all.alive;
  out["pfs"] = {{"latency_seconds", in_seconds(source.pfs_latency())}, {"bandwidth", source.pfs_bandwidth()}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace clairfs
