#include "plan/samplers/streaming/shuffle.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "plan/random/numpy_integers.h"
#include "plan/random/numpy_shuffle.h"
#include "plan/random/pcg64.h"

namespace clairfs {
namespace {

using Samples = std::vector<uint32_t>;

// Consecutive samples [begin, end): a shard, or the part of one that a canonical node has.
struct ShardSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
};
using Spans = std::vector<ShardSpan>;

Pcg64 numpy_generator(const BigInteger& seed) {
  return Pcg64(SeedSequence(std::vector{seed}));
}

// Generator.shuffle(items) of a Python list.
template <class Item>
void shuffle_items(Pcg64& random, std::span<Item> items) {
  Samples order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  numpy_shuffle(random, order);
  const std::vector<Item> before(items.begin(), items.end());
  for (size_t i = 0; i < items.size(); ++i) items[i] = before[order[i]];
}

Spans shard_spans(const Samples& sizes) {
  Spans spans;
  uint32_t begin = 0;
  for (const uint32_t size : sizes) {
    spans.push_back({begin, begin + size});
    begin += size;
  }
  return spans;
}

// Cuts the spans, as they follow each other, into equal shares of the samples: one list a canonical node.
std::vector<Spans> divide_spans(const Spans& spans, uint64_t total, uint64_t nodes) {
  std::vector<Spans> divided(nodes);
  size_t next = 0;
  uint32_t cut = 0;  // samples of spans[next] that are given out
  uint64_t given = 0;
  for (uint64_t node = 0; node < nodes; ++node) {
    const uint64_t end = total * (node + 1) / nodes;
    while (next < spans.size() && given < end) {
      const ShardSpan left{spans[next].begin + cut, spans[next].end};
      const auto take = static_cast<uint32_t>(std::min<uint64_t>(left.size(), end - given));
      divided[node].push_back({left.begin, left.begin + take});
      given += take;
      cut = take == left.size() ? 0 : cut + take;
      if (cut == 0) ++next;
    }
  }
  return divided;
}

void append_span(const ShardSpan& span, Samples& samples) {
  const size_t before = samples.size();
  samples.resize(before + span.size());
  std::iota(samples.begin() + static_cast<ptrdiff_t>(before), samples.end(), span.begin);
}

// Shuffles what `samples` has from position `from` on.
void shuffle_tail(Pcg64& random, Samples& samples, size_t from) {
  numpy_shuffle(random, std::span(samples).subspan(from));
}

// Samples are shuffled within each shard part.
void py1s(Pcg64& random, const std::vector<Spans>& nodes, Samples& samples) {
  for (const Spans& spans : nodes) {
    for (const ShardSpan& span : spans) {
      const size_t from = samples.size();
      append_span(span, samples);
      shuffle_tail(random, samples, from);
    }
  }
}

// Samples are shuffled within blocks of the node's samples.
void py1b(Pcg64& random, const std::vector<Spans>& nodes, uint32_t block, Samples& samples) {
  for (const Spans& spans : nodes) {
    const size_t from = samples.size();
    for (const ShardSpan& span : spans) append_span(span, samples);
    for (size_t at = from; at < samples.size(); at += block) {
      numpy_shuffle(random, std::span(samples).subspan(at, std::min<size_t>(block, samples.size() - at)));
    }
  }
}

struct BlockBounds {
  explicit BlockBounds(uint32_t block)
      : least(static_cast<uint32_t>(0.75 * block)), range(static_cast<uint32_t>(1.25 * block) - least) {}
  uint32_t draw(Pcg64& random) const { return least + numpy_below(random, range); }

  const uint32_t least;
  const uint32_t range;
};

// As py1b, with blocks of random sizes that each node begins at another point of.
void py1br(Pcg64& random, const std::vector<Spans>& nodes, uint32_t block, Samples& samples) {
  const BlockBounds bounds(block);
  Samples staggers;
  for (size_t node = 0; node < nodes.size(); ++node) staggers.push_back(numpy_below(random, bounds.least));
  for (size_t node = 0; node < nodes.size(); ++node) {
    const auto first = static_cast<int64_t>(samples.size());
    for (const ShardSpan& span : nodes[node]) append_span(span, samples);
    const auto stop = static_cast<int64_t>(samples.size());
    std::vector<std::pair<int64_t, int64_t>> blocks;
    for (int64_t at = first; at < stop;) {
      const int64_t size = bounds.draw(random);
      const int64_t begin = std::max<int64_t>(at - staggers[node], first);
      const int64_t end = std::min<int64_t>(at + size - staggers[node], stop);
      blocks.emplace_back(begin, end);
      at += end - begin;
    }
    for (const auto& [begin, end] : blocks) {
      numpy_shuffle(random,
                    std::span(samples).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    }
  }
}

// Samples are shuffled within each shard part, then each moves by a random distance, so that parts reach
// into each other.
void py1e_node(Pcg64& random, const Spans& spans, uint32_t block, Samples& samples) {
  struct Placed {
    double position;
    uint32_t index;
  };
  const BlockBounds bounds(block);
  Samples node;
  for (const ShardSpan& span : spans) {
    const size_t from = node.size();
    append_span(span, node);
    shuffle_tail(random, node, from);
  }
  const auto total = static_cast<double>(node.size());
  std::vector<Placed> placed;
  placed.reserve(node.size());
  for (const ShardSpan& span : spans) {
    const auto offset = static_cast<double>(placed.size());
    const double reach = std::max((static_cast<double>(bounds.draw(random)) - span.size()) / 2, 0.0);
    const double low = std::max(-reach, -offset);
    const double high = std::min(reach, total - offset - span.size());
    for (uint32_t i = 0; i < span.size(); ++i) {
      const double shift = low + (high - low) * numpy_double(random);
      placed.push_back({offset + i + shift, static_cast<uint32_t>(placed.size())});
    }
  }
  // Equal positions, one pair in 10^8, come in any order from NumPy.
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return a.position != b.position ? a.position < b.position : a.index < b.index;
  });
  for (const Placed& sample : placed) samples.push_back(node[sample.index]);
}

// Shuffles twice: shards and samples once for all epochs, then the nodes' parts and their samples in each.
void py2s(Pcg64& once, Pcg64& random, Spans shards, uint64_t nodes, Samples& samples) {
  shuffle_items(once, std::span(shards));
  // The samples of all shards as the first shuffle leaves them; parts are ranges of this array.
  Samples fixed;
  Spans places;
  for (const ShardSpan& shard : shards) {
    const auto from = static_cast<uint32_t>(fixed.size());
    append_span(shard, fixed);
    places.push_back({from, static_cast<uint32_t>(fixed.size())});
  }
  for (const ShardSpan& place : places) {
    numpy_shuffle(once, std::span(fixed).subspan(place.begin, place.size()));
  }
  std::vector<Spans> parts = divide_spans(places, fixed.size(), nodes);
  for (Spans& node : parts) {
    shuffle_items(random, std::span(node));
    for (const ShardSpan& part : node) {
      numpy_shuffle(random, std::span(fixed).subspan(part.begin, part.size()));
      samples.insert(samples.end(), fixed.begin() + ptrdiff_t{part.begin},
                     fixed.begin() + ptrdiff_t{part.end});
    }
  }
}

}  // namespace

std::optional<StreamingAlgorithm> parse_streaming_algorithm(std::string_view name) {
  constexpr std::pair<std::string_view, StreamingAlgorithm> kNames[] = {
      {"naive", StreamingAlgorithm::naive}, {"py1s", StreamingAlgorithm::py1s},
      {"py2s", StreamingAlgorithm::py2s},   {"py1b", StreamingAlgorithm::py1b},
      {"py1br", StreamingAlgorithm::py1br}, {"py1e", StreamingAlgorithm::py1e}};
  for (const auto& [known, algorithm] : kNames) {
    if (name == known) return algorithm;
  }
  return std::nullopt;
}

std::vector<uint32_t> streaming_shuffle(const StreamingShuffle& shuffle, Epoch epoch) {
  Spans spans = shard_spans(shuffle.shard_sizes);
  const uint64_t total = spans.empty() ? 0 : spans.back().end;
  Pcg64 once = numpy_generator(shuffle.seed);
  Pcg64 random = numpy_generator(shuffle.seed.plus(epoch.value));
  Samples samples;
  samples.reserve(total);
  if (shuffle.algorithm == StreamingAlgorithm::naive) {
    append_span({0, static_cast<uint32_t>(total)}, samples);
    shuffle_tail(random, samples, 0);
    return samples;
  }
  if (shuffle.algorithm == StreamingAlgorithm::py2s) {
    py2s(once, random, std::move(spans), shuffle.canonical_nodes, samples);
    return samples;
  }
  shuffle_items(once, std::span(spans));
  std::vector<Spans> nodes = divide_spans(spans, total, shuffle.canonical_nodes);
  for (Spans& node : nodes) shuffle_items(random, std::span(node));
  switch (shuffle.algorithm) {
    case StreamingAlgorithm::py1s:
      py1s(random, nodes, samples);
      break;
    case StreamingAlgorithm::py1b:
      py1b(random, nodes, shuffle.block_size, samples);
      break;
    case StreamingAlgorithm::py1br:
      py1br(random, nodes, shuffle.block_size, samples);
      break;
    default:
      for (const Spans& node : nodes) py1e_node(random, node, shuffle.block_size, samples);
  }
  return samples;
}

}  // namespace clairfs
