#include "plan/tracking/chain.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace clairfs {
namespace {

// Fewer would let the files of one small folder, read in order, pass for a reader.
constexpr uint32_t kShortest = 8;
constexpr double kChance = 1e-6;

// A chain that ended before the last of these sightings tells of the past.
constexpr size_t kNewest = 4;

// Ticks between two links; what was seen longer ago than that says little about where the reader is now.
constexpr uint64_t kLongestSkip = 8;

// Of a sample that comes more often in an epoch only the first are tried, to bound the work.
constexpr size_t kOccurrences = 4;

struct ChainPoint {
  size_t sighting;
  uint64_t tick;
  uint32_t position;
  Chain best;  // the longest chain that ends here
};

std::vector<ChainPoint> points_of(std::span<const Sighting> sightings, const PositionsOf& positions_of) {
  std::vector<ChainPoint> points;
  std::vector<uint32_t> positions;
  for (size_t i = 0; i < sightings.size(); ++i) {
    // A file opened over and over is one sighting.
    const bool again = std::any_of(sightings.begin() + static_cast<std::ptrdiff_t>(i) + 1, sightings.end(),
                                   [&](const Sighting& s) { return s.sample == sightings[i].sample; });
    if (again) continue;
    const auto add = [&, tick = sightings[i].tick](uint32_t sample) {
      positions.clear();
      positions_of(sample, positions);
      positions.resize(std::min(positions.size(), kOccurrences));
      for (const uint32_t position : positions)
        points.push_back({i, tick, position, {1, 0, position, position, position, tick}});
    };
    add(sightings[i].sample);
    for (const uint32_t other : sightings[i].others) add(other);
  }
  return points;
}

double samples_each(std::span<const Sighting> sightings) {
  size_t samples = sightings.size();
  for (const Sighting& sighting : sightings) samples += sighting.others.size();
  return static_cast<double>(samples) / static_cast<double>(sightings.size());
}

uint64_t longest_step(const ChainStep& step, uint64_t ticks) {
  return step.reorder_window + std::min(ticks, kLongestSkip) * step.reach;
}

Chain extended(const Chain& chain, uint32_t position) {
  Chain longer = chain;
  ++longer.length;
  longer.second = chain.length == 1 ? std::min(chain.top, position)
                                    : std::max(chain.second, std::min(chain.top, position));
  longer.top = std::max(chain.top, position);
  longer.low = std::min(chain.low, position);
  return longer;
}

// The numbers of the points by position: a step is short, so few of them can be the one before.
std::vector<size_t> by_position(const std::vector<ChainPoint>& points) {
  std::vector<size_t> numbers(points.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  std::sort(numbers.begin(), numbers.end(),
            [&](size_t a, size_t b) { return points[a].position < points[b].position; });
  return numbers;
}

// The longest chain of sightings `from` and later that goes on with points[at]; nothing if none does.
const Chain* chain_before(const std::vector<ChainPoint>& points, const std::vector<size_t>& sorted, size_t at,
                          size_t from, const ChainStep& step) {
  const ChainPoint& point = points[at];
  const uint64_t position = point.position;
  const uint64_t least = position - std::min(position, longest_step(step, kLongestSkip));
  size_t best = at;  // none
  for (auto next = std::lower_bound(sorted.begin(), sorted.end(), least,
                                    [&](size_t n, uint64_t wanted) { return points[n].position < wanted; });
       next != sorted.end() && points[*next].position < position + step.reorder_window; ++next) {
    const ChainPoint& earlier = points[*next];
    const bool is_earlier = *next < at && earlier.sighting >= from && earlier.sighting != point.sighting;
    // The same sample, which may be meant by both.
    if (!is_earlier || earlier.position == position) continue;
    if (position > earlier.position + longest_step(step, point.tick - earlier.tick)) continue;
    const uint32_t length = earlier.best.length;
    const uint32_t longest = points[best].best.length;
    if (best == at || length > longest || (length == longest && *next < best)) best = *next;
  }
  return best == at ? nullptr : &points[best].best;
}

// Longest chain over the points of sightings `from` and later.
Chain longest_chain(std::vector<ChainPoint> points, const std::vector<size_t>& sorted, size_t from,
                    size_t sightings, const ChainStep& step) {
  Chain longest;
  for (size_t i = 0; i < points.size(); ++i) {
    ChainPoint& point = points[i];
    if (point.sighting < from) continue;
    const Chain* const before = chain_before(points, sorted, i, from, step);
    if (before != nullptr) point.best = extended(*before, point.position);
    if (point.sighting + kNewest >= sightings && point.best.length > longest.length) longest = point.best;
  }
  return longest;
}

// A run that ends at a position of the newest sighting.
struct RunEnd {
  uint32_t position;
  Chain run;
};

// The longest run that goes on with a position so many ticks later; a new one if none does.
RunEnd gone_on(const std::vector<RunEnd>& ends, uint32_t position, uint64_t tick, uint64_t ticks,
               uint64_t reorder_window) {
  const Chain* before = nullptr;
  for (const RunEnd& end : ends) {
    const bool follows = position != end.position && position + reorder_window > end.position &&
                         position <= end.position + reorder_window + ticks;
    if (follows && (before == nullptr || end.run.length > before->length)) before = &end.run;
  }
  if (before != nullptr) return {position, extended(*before, position)};
  return {position, {1, 0, position, position, position, tick}};
}

}  // namespace

std::optional<Chain> find_run(std::span<const Sighting> sightings, const PositionsOf& positions_of,
                              uint64_t length, uint64_t reorder_window) {
  std::vector<RunEnd> ends;
  std::vector<RunEnd> longer;
  std::vector<uint32_t> positions;
  uint64_t tick = 0;
  for (const Sighting& sighting : sightings) {
    positions.clear();
    positions_of(sighting.sample, positions);
    longer.clear();
    for (const uint32_t position : positions)
      longer.push_back(gone_on(ends, position, sighting.tick, sighting.tick - tick, reorder_window));
    ends.swap(longer);
    tick = sighting.tick;
  }
  const auto longest = std::max_element(
      ends.begin(), ends.end(), [](const RunEnd& a, const RunEnd& b) { return a.run.length < b.run.length; });
  if (longest == ends.end() || longest->run.length < kShortest) return std::nullopt;
  Chain run = longest->run;
  // No fewer than a chain is looked for among: who asks wants most of them explained.
  run.among = std::max(run.length, static_cast<uint32_t>(kSightings / 4));
  const auto places = static_cast<double>(ends.size());
  const double share = 2 * places * static_cast<double>(reorder_window) / static_cast<double>(length);
  const double ways = std::log(places * static_cast<double>(sightings.size()));
  if (ways + (run.length - 1) * std::log(std::min(share, 1.0)) >= std::log(kChance)) return std::nullopt;
  return run;
}

uint32_t telling_length(uint32_t sightings, double share) {
  const double step = std::log(std::min(share, 1.0));
  double ways = 0;  // ln C(sightings, k)
  for (uint32_t k = 1; k <= sightings; ++k) {
    ways += std::log(static_cast<double>(sightings - k + 1) / k);
    if (k >= kShortest && ways + (k - 1) * step < std::log(kChance)) return k;
  }
  return sightings + 1;
}

std::optional<Chain> find_chain(std::span<const Sighting> sightings, const PositionsOf& positions_of,
                                uint64_t epoch_length, ChainStep step) {
  if (sightings.size() < kShortest || epoch_length == 0) return std::nullopt;
  const std::vector<ChainPoint> points = points_of(sightings, positions_of);
  if (points.size() < kShortest) return std::nullopt;
  const std::vector<size_t> sorted = by_position(points);
  const double share = samples_each(sightings) *
                       static_cast<double>(step.reorder_window + longest_step(step, kLongestSkip)) /
                       static_cast<double>(epoch_length);
  // The last few tell soonest after a change, all tell most where steps are a large share of the epoch.
  for (const size_t recent : {kSightings / 4, kSightings / 2, kSightings}) {
    const size_t count = std::min(recent, sightings.size());
    const uint32_t needed = telling_length(static_cast<uint32_t>(count), share);
    if (needed <= count) {
      Chain chain = longest_chain(points, sorted, sightings.size() - count, sightings.size(), step);
      chain.among = static_cast<uint32_t>(count);
      if (chain.length >= needed) return chain;
    }
    if (count == sightings.size()) break;
  }
  return std::nullopt;
}

}  // namespace clairfs
