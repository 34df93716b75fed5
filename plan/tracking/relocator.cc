#include "plan/tracking/relocator.h"

#include <algorithm>
#include <span>
#include <vector>

namespace clairfs {
namespace {

// Strays from one search to the next: fewer would make a wrong order cost a search for each open.
constexpr uint64_t kSearchEvery = 4;

// Positions that a stretch must have to show that nothing is left out of it.
constexpr int64_t kEnough = 8;

// Samples looked up for each stray, on average, to see whether any is left out: a microsecond.
constexpr size_t kLookups = 32;

// Positions of which those in the middle are all opened when the furthest is; no more strays are kept.
int64_t span_of(int64_t reorder_window) {
  return 2 * (static_cast<int64_t>(kSightings) + reorder_window);
}

// Positions of an epoch of which the newest sightings may be more than a half.
constexpr int64_t kShort = 2 * static_cast<int64_t>(kSightings);

// A run over epochs that lie end to end, as that in the last of them. About as many of its sightings are of
// that epoch as it came to positions there.
Found in_its_epoch(Chain run, const std::vector<const KnownEpoch*>& row,
                   const std::vector<Sighting>& strays) {
  uint32_t begin = 0;
  size_t number = 0;
  for (; number + 1 < row.size() && run.top >= begin + row[number]->sequence().length(); ++number)
    begin += row[number]->sequence().length();
  run.top -= begin;
  run.second = std::max(run.second, begin) - begin;
  run.low = std::max(run.low, begin) - begin;
  const size_t sightings = std::min(strays.size(), size_t{run.top} + 1);
  run.since = std::max(run.since, strays[strays.size() - sightings].tick);
  return {row[number]->sequence().epoch(), run};
}

// Whether the chain lies in the epoch where the reader was expected, and not behind it.
bool skips_ahead(const KnownEpoch& epoch, const Chain& chain, int64_t next) {
  return epoch.begin <= next && next <= epoch.begin + chain.top;
}

template <typename T>
void push_newest(std::deque<T>& newest, const T& value) {
  newest.push_back(value);
  if (newest.size() > kSightings) newest.pop_front();
}

}  // namespace

void Relocator::note_match(uint64_t tick) {
  push_newest(matched_ticks_, tick);
}

void Relocator::note_stray(const Sighting& sighting) {
  push_newest(strays_, sighting);
  ++since_search_;
  if (!requires_all_) return;
  samples_.push_back(sighting.sample);
  ++unchecked_;
}

void Relocator::require_all(bool required) {
  requires_all_ = required;
  samples_.clear();
  unchecked_ = 0;
}

void Relocator::clear() {
  strays_.clear();
  matched_ticks_.clear();
  require_all(false);
}

bool Relocator::is_due() const {
  return since_search_ >= kSearchEvery;
}

// Whether nothing is left out where opens stray no more: the reorder window inside the stretch that was seen.
bool Relocator::leaves_nothing_out(const SequencePositions& order, const Chain& chain,
                                   int64_t reorder_window) {
  if (kLookups * unchecked_ < samples_.size()) return false;
  unchecked_ = 0;
  std::vector<int64_t> seen;
  for (const uint32_t sample : samples_) {
    for (const int64_t position : order.of(sample)) {
      if (position <= chain.top && position + span_of(reorder_window) > chain.top) seen.push_back(position);
    }
  }
  if (seen.empty()) return false;
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  const int64_t low = seen.front() + reorder_window;
  const int64_t high = int64_t{chain.top} - reorder_window;
  const auto inside =
      std::count_if(seen.begin(), seen.end(), [&](int64_t p) { return p >= low && p <= high; });
  return high - low >= kEnough && 4 * inside >= 3 * (high - low + 1);
}

// Over short epochs that lie end to end.
std::optional<Found> Relocator::find_in_row(const KnownEpochs& epochs, const std::vector<Sighting>& strays,
                                            int64_t reorder_window) {
  std::optional<Found> best;
  for (const auto& [number, first] : epochs.all()) {
    if (first.length() >= kShort || epochs.find(int64_t{number.value} - 1) != nullptr) continue;
    std::vector<const KnownEpoch*> row;
    uint32_t length = 0;
    for (const KnownEpoch* epoch = &first; epoch != nullptr;
         epoch = epochs.find(int64_t{epoch->sequence().epoch().value} + 1)) {
      row.push_back(epoch);
      length += epoch->sequence().length();
    }
    const auto positions_of = [&row](uint32_t sample, std::vector<uint32_t>& positions) {
      uint32_t begin = 0;
      for (const KnownEpoch* const epoch : row) {
        for (const uint32_t position : epoch->order->of(sample)) positions.push_back(begin + position);
        begin += epoch->sequence().length();
      }
    };
    const auto run = find_run(strays, positions_of, length, static_cast<uint64_t>(reorder_window));
    if (run && (!best || run->length > best->chain.length)) best = in_its_epoch(*run, row, strays);
  }
  return best;
}

std::optional<Found> Relocator::find(const KnownEpochs& epochs, TrackerState state, Sight sight) {
  since_search_ = 0;
  while (samples_.size() > static_cast<size_t>(span_of(sight.reorder_window))) samples_.pop_front();
  const std::vector<Sighting> strays(strays_.begin(), strays_.end());
  std::optional<Found> best;
  const auto explains_more = [&](const KnownEpoch& epoch, const Chain& chain) {
    if (!best || chain.length != best->chain.length) return !best || chain.length > best->chain.length;
    return state == TrackerState::following && epoch.sequence().epoch() != best->epoch &&
           skips_ahead(epoch, chain, sight.next);
  };
  for (const auto& [number, epoch] : epochs.all()) {
    const auto positions_of = [&order = *epoch.order](uint32_t sample, std::vector<uint32_t>& positions) {
      const std::span<const uint32_t> found = order.of(sample);
      positions.insert(positions.end(), found.begin(), found.end());
    };
    for (const int64_t reach : {int64_t{1}, sight.gap}) {
      if (reach == 0) continue;
      const ChainStep step{static_cast<uint64_t>(sight.reorder_window), static_cast<uint64_t>(reach)};
      const auto chain = find_chain(strays, positions_of, epoch.sequence().length(), step);
      if (chain && explains_more(epoch, *chain)) best = Found{number, *chain};
    }
  }
  if (!best && state == TrackerState::suspended) best = find_in_row(epochs, strays, sight.reorder_window);
  if (!best) return std::nullopt;
  const Chain& chain = best->chain;
  if (state == TrackerState::suspended && chain.length < kExplained * chain.among) return std::nullopt;
  const SequencePositions& order = *epochs.find(best->epoch)->order;
  if (requires_all_ && !leaves_nothing_out(order, chain, sight.reorder_window)) return std::nullopt;
  const auto meanwhile = std::count_if(matched_ticks_.begin(), matched_ticks_.end(),
                                       [&](uint64_t tick) { return tick > chain.since; });
  if (state == TrackerState::following && meanwhile >= chain.length) return std::nullopt;
  return best;
}

}  // namespace clairfs
