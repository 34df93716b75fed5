#include "plan/offline/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/plural.h"
#include "plan/offline/preview.h"
#include "plan/placement/placement_map.h"
#include "plan/simulator/model/access_frequency.h"
#include "plan/simulator/model/dataset.h"
#include "plan/simulator/study/plots.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

constexpr uint64_t kCounterMemory = uint64_t{512} << 20;

uint32_t nodes_of(const PlanSpec& spec) {
  const uint64_t world = std::max<uint64_t>(spec.world, 1);
  return static_cast<uint32_t>(std::max<uint64_t>(world / std::max<uint64_t>(spec.ranks_per_node, 1), 1));
}

// Reads by node and sample.
class Counters {
 public:
  Counters(uint32_t nodes, uint64_t samples)
      : nodes_(static_cast<uint32_t>(
            std::clamp<uint64_t>(kCounterMemory / (sizeof(uint16_t) * samples), 1, nodes))),
        samples_(samples),
        reads_(nodes_ * samples) {}

  uint32_t nodes() const { return nodes_; }
  std::span<const uint16_t> all() const { return reads_; }
  void add(uint32_t node, const EpochSequence& sequence) {
    for (uint32_t at = sequence.first_position(); at < sequence.length(); ++at) {
      uint16_t& reads = reads_[node * samples_ + sequence.sample_at(at)];
      if (reads < UINT16_MAX) ++reads;
    }
  }

 private:
  uint32_t nodes_;
  uint64_t samples_;
  std::vector<uint16_t> reads_;
};

// Calls `visit(node, sequence)` for the first `nodes` nodes, epoch by epoch.
template <class Visit>
Status for_each_epoch(AccessSequence& sequence, uint32_t nodes, Visit&& visit) {
  const PlanSpec& spec = sequence.spec();
  for (uint64_t epoch = spec.first_epoch; sequence.has_epoch(Epoch(static_cast<uint32_t>(epoch))); ++epoch) {
    const Epoch number(static_cast<uint32_t>(epoch));
    const auto order = sequence.order(number);
    if (!order) return order.error();
    for (uint32_t node = 0; node < nodes; ++node) {
      const Status visited = visit(node, sequence.node_sequence(*order, number, NodeId(node)));
      if (!visited) return visited;
    }
  }
  return {};
}

AccessFrequencies frequencies_of(const Counters& counters, const PlanStats& stats) {
  AccessFrequencies frequencies;
  frequencies.binomial = binomial_probabilities(stats.epochs, std::min(stats.mean / stats.epochs, 1.0));
  for (double& samples : frequencies.binomial) samples *= static_cast<double>(stats.samples);
  // Repeated sampling may read one more often than there are epochs.
  frequencies.binomial.resize(std::max<size_t>(frequencies.binomial.size(), stats.most + size_t{1}));
  frequencies.counted.resize(frequencies.binomial.size());
  for (const uint16_t reads : counters.all()) frequencies.counted[reads] += 1.0 / counters.nodes();
  return frequencies;
}

void count_tails(const PlanStatsRequest& request, const Counters& counters, PlanStats& stats) {
  const std::vector<double>& binomial = stats.frequencies.binomial;
  for (const double delta : request.deltas) {
    PlanStats::Tail tail{delta, (1 + delta) * stats.mean, 0, 0};
    const auto above = std::count_if(counters.all().begin(), counters.all().end(),
                                     [&](uint16_t reads) { return reads > tail.reads; });
    tail.counted = static_cast<double>(above) / counters.nodes();
    for (size_t reads = 0; reads < binomial.size(); ++reads) {
      if (static_cast<double>(reads) > tail.reads) tail.expected += binomial[reads];
    }
    stats.tails.push_back(tail);
  }
}

// The dataset behind the plan: scanned, or made up of samples of one size.
struct Dataset {
  const Catalog* catalog = nullptr;
  const SampleIndex* index = nullptr;
  std::unique_ptr<const ScenarioDataset> made_up;
};

Result<Dataset> dataset_of(const PlanStatsRequest& request, const PlanPreview& preview) {
  if (preview.index) return Dataset{preview.source.catalog.get(), preview.index.get(), nullptr};
  if (request.sample_bytes == 0) {
    return plan_error("n", "", "says nothing of the samples' size; give --sample-size SIZE, or root=DIR");
  }
  const auto mb = static_cast<float>(static_cast<double>(request.sample_bytes) / kMegabyte);
  auto made = ScenarioDataset::make(std::vector<float>(preview.samples, mb));
  if (!made) return made.error();
  Dataset dataset;
  dataset.made_up = std::move(*made);
  dataset.catalog = &dataset.made_up->catalog();
  dataset.index = &dataset.made_up->index();
  return dataset;
}

Result<PlacementMap> place(const Dataset& dataset, AccessSequence& sequence, const NodeCapacity& capacity) {
  if (sequence.nodes() > JobUses::kMostNodes) {
    return plan_error("world", fmt::format("{} nodes", sequence.nodes()),
                      fmt::format("want at most {} to place chunks on", JobUses::kMostNodes));
  }
  JobUses uses(*dataset.catalog, sequence.nodes());
  uint32_t epochs = 0;
  const Status added =
      for_each_epoch(sequence, sequence.nodes(), [&](uint32_t node, const EpochSequence& epoch) {
        if (node == 0) ++epochs;
        if (epochs <= kPlacementEpochs) uses.add(epoch, *dataset.index, NodeId(node));
        return Status();
      });
  if (!added) return added.error();
  uses.finish();
  const std::vector<NodeCapacity> capacities(sequence.nodes(), capacity);
  return PlacementMap::make(*dataset.catalog, std::move(uses), capacities);
}

Result<PlanStats::Reads> count_placed(const Dataset& dataset, AccessSequence& sequence,
                                      const NodeCapacity& capacity) {
  const auto placement = place(dataset, sequence, capacity);
  if (!placement) return placement.error();
  PlanStats::Reads reads;
  std::vector<bool> warm(dataset.catalog->chunk_count());
  const auto count = [&](uint32_t node, ChunkId chunk, double bytes) {
    const Tier tier = placement->tier_at(NodeId(node), chunk);
    const bool homeless = !placement->home(chunk);
    double& source = tier == Tier::ram    ? reads.local_ram
                     : tier == Tier::nvme ? reads.local_nvme
                     : homeless           ? reads.pfs
                                          : reads.peer;
    source += bytes;
    if (homeless || warm[chunk.index()]) return;
    warm[chunk.index()] = true;
    reads.prefill += dataset.catalog->range(chunk).length;
  };
  const auto count_range = [&](uint32_t node, const ByteRange& range) {
    const uint64_t end = range.offset + range.length;
    for (uint64_t at = range.offset; at < end;) {
      const ChunkId chunk = dataset.catalog->chunk_at(range.file, at);
      const ChunkRange whole = dataset.catalog->range(chunk);
      const uint64_t next = std::min(end, whole.offset + whole.length);
      count(node, chunk, static_cast<double>(next - at));
      at = next;
    }
  };
  const Status counted =
      for_each_epoch(sequence, sequence.nodes(), [&](uint32_t node, const EpochSequence& epoch) {
        for (uint32_t at = epoch.first_position(); at < epoch.length(); ++at) {
          const uint32_t sample = epoch.sample_at(at);
          for (uint32_t piece = 0; piece < dataset.index->range_count(sample); ++piece)
            count_range(node, dataset.index->range(sample, piece));
        }
        return Status();
      });
  if (!counted) return counted.error();
  return reads;
}

}  // namespace

Result<PlanStats> plan_stats(const PlanStatsRequest& request, Logger& log) {
  const auto spec = parse_plan(request.plan);
  if (!spec) return spec.error();
  if (spec->epochs == 0) return plan_error("epochs", "", "missing; how often a sample is read depends on it");
  const uint32_t nodes = nodes_of(*spec);
  auto preview = preview_plan(*spec, nodes, log);
  if (!preview) return preview.error();
  AccessSequence& sequence = preview->sequence;

  PlanStats stats;
  stats.samples = preview->samples;
  stats.nodes = sequence.nodes();
  Counters counters(stats.nodes, std::max<uint64_t>(stats.samples, 1));
  uint64_t reads = 0;
  // All nodes are walked for the mean; only the first have counters.
  const Status counted =
      for_each_epoch(sequence, stats.nodes, [&](uint32_t node, const EpochSequence& epoch) {
        if (node == 0) ++stats.epochs;
        reads += epoch.length() - epoch.first_position();
        if (node < counters.nodes()) counters.add(node, epoch);
        return Status();
      });
  if (!counted) return counted.error();
  if (stats.epochs == 0 || stats.samples == 0) return plan_error("epochs", "", "the job reads nothing");
  stats.counted_nodes = counters.nodes();
  stats.mean = static_cast<double>(reads) / (static_cast<double>(stats.samples) * stats.nodes);
  stats.least = *std::min_element(counters.all().begin(), counters.all().end());
  stats.most = *std::max_element(counters.all().begin(), counters.all().end());
  stats.frequencies = frequencies_of(counters, stats);
  count_tails(request, counters, stats);
  if (request.capacity) {
    const auto dataset = dataset_of(request, *preview);
    if (!dataset) return dataset.error();
    const auto placed = count_placed(*dataset, sequence, *request.capacity);
    if (!placed) return placed.error();
    stats.placed = *placed;
  }
  return stats;
}

std::string plan_stats_text(const PlanStats& stats) {
  const double deviation = std::sqrt(stats.mean * (1 - std::min(stats.mean / stats.epochs, 1.0)));
  std::string text = fmt::format(
      "{} samples, {} nodes, {} epochs\n"
      "a node reads a sample {:.4g} times on average (E/N), with a deviation of {:.4g}; from {} to {} "
      "times\n",
      stats.samples, stats.nodes, stats.epochs, stats.mean, deviation, stats.least, stats.most);
  if (stats.counted_nodes < stats.nodes)
    text += fmt::format("(counted on the first {} nodes)\n", stats.counted_nodes);
  text +=
      fmt::format("\n{:>8}  {:>12}  {:>20}  {:>20}\n", "delta", "more than", "samples of a node", "binomial");
  for (const PlanStats::Tail& tail : stats.tails) {
    text += fmt::format("{:>8.4g}  {:>6.4g} reads  {:>20.2f}  {:>20.2f}\n", tail.delta, tail.reads,
                        tail.counted, tail.expected);
  }
  if (!stats.placed) return text;
  const auto line = [&](const char* what, double bytes) {
    text += fmt::format("{:<34}{:>8.2f} %  {:.4g} GiB\n", what, 100 * bytes / stats.placed->all(),
                        bytes / (1 << 30));
  };
  text += "\nof the bytes that all nodes read over the job\n";
  line("  from the node's own RAM", stats.placed->local_ram);
  line("  from the node's own NVMe", stats.placed->local_nvme);
  line("  from another node", stats.placed->peer);
  line("  from the PFS every time", stats.placed->pfs);
  line("and once, to fill the tiers", stats.placed->prefill);
  return text;
}

std::string plan_stats_json(const PlanStats& stats) {
  nlohmann::ordered_json object;
  object["samples"] = stats.samples;
  object["nodes"] = stats.nodes;
  object["epochs"] = stats.epochs;
  object["counted_nodes"] = stats.counted_nodes;
  object["mean_reads"] = stats.mean;
  object["least_reads"] = stats.least;
  object["most_reads"] = stats.most;
  object["tails"] = nlohmann::ordered_json::array();
  for (const PlanStats::Tail& tail : stats.tails) {
    object["tails"].push_back({{"delta", tail.delta},
                               {"more_than", tail.reads},
                               {"counted", tail.counted},
                               {"expected", tail.expected}});
  }
  if (stats.placed) {
    object["bytes"] = {{"ram", stats.placed->local_ram},
                       {"nvme", stats.placed->local_nvme},
                       {"peer", stats.placed->peer},
                       {"pfs", stats.placed->pfs},
                       {"warm_up", stats.placed->prefill}};
  }
  return object.dump(2) + "\n";
}

std::string plan_stats_plot(const PlanStats& stats) {
  std::vector<Bar> sources;
  if (stats.placed) {
    const auto add = [&](const char* label, double bytes) {
      sources.push_back(
          {label, {bytes / (1 << 30)}, fmt::format("{:.1f} %", 100 * bytes / stats.placed->all())});
    };
    add("own RAM", stats.placed->local_ram);
    add("own NVMe", stats.placed->local_nvme);
    add("another node", stats.placed->peer);
    add("PFS, every time", stats.placed->pfs);
    add("PFS, to fill tiers", stats.placed->prefill);
  }
  const std::string job = fmt::format("{}, {}, {} samples", pluralize(stats.nodes, "node", "nodes"),
                                      pluralize(stats.epochs, "epoch", "epochs"),
                                      number_text(static_cast<double>(stats.samples)));
  return frequency_plot(stats.frequencies, sources, job);
}

}  // namespace clairfs
