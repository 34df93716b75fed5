#include "plan/inference/chance/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace clairfs {
namespace {

// Windows that are tried: from readers without workers to those of 16 workers with batches of 1024.
constexpr std::array<uint32_t, 15> kWindows = {2,   4,    8,    16,   32,   64,    128,  256,
                                               512, 1024, 2048, 4096, 8192, 16384, 32768};

// A window that is a larger share of the order tells nothing.
constexpr uint64_t kLargestShare = 3;

// Of the order's beginning somebody else may have opened a few, which the kernel then has.
constexpr uint32_t kBeginning = 8;

// Beside the order's beginning a reader may have begun at any of its first opens: the first ones may be
// strays.
constexpr size_t kStarts = 3;

// A worker that begins goes on while the others open no more than so many.
constexpr size_t kBegins = 8;

// An open is a stray if it is further ahead than so many times what is usual. Workers that take turns are
// rarely twice as far ahead as most of their opens were.
constexpr uint64_t kFurther = 4;
// Nearer opens are no strays: the first ones may all be one worker's, of samples in turn.
constexpr uint64_t kNear = 32;
// Fewer may be strays that lie side by side by chance.
constexpr size_t kNeighbours = 8;

// What is allowed is shared out among three ways to look: windows from all starts, the next step, any step.
constexpr double kLooks = 3;
constexpr double kWindowsTried = kWindows.size() * (kStarts + 1);

struct Window {
  uint32_t start = 0;
  bool anywhere = false;  // the start was taken from the opens
  uint32_t width = 0;
};

struct Hits {
  uint32_t count = 0;
  uint32_t lowest = UINT32_MAX;
  uint32_t reached = 0;
};

struct Lead {
  uint32_t ahead = 0;  // of the number of hits before it; 0 if it is not
  uint32_t position = 0;
};

// Adds each hit to `leads`.
Hits hits_in(std::span<const Placed> opens, const Window& window, std::vector<Lead>* leads = nullptr) {
  Hits hits;
  const uint64_t low = window.anywhere ? window.start - std::min(window.start, window.width) : window.start;
  for (const Placed& open : opens) {
    const uint64_t next = uint64_t{window.start} + hits.count;
    const uint64_t high = next + window.width;
    if (open.position == Placed::kNowhere || open.position < low || open.position >= high) continue;
    if (leads != nullptr) {
      const uint64_t ahead = open.position < next ? 0 : open.position - next + 1;
      leads->push_back({static_cast<uint32_t>(ahead), open.position});
    }
    ++hits.count;
    hits.lowest = std::min(hits.lowest, open.position);
    hits.reached = std::max(hits.reached, open.position + 1);
  }
  return hits;
}

// Opens that come `step` after what their thread has opened before.
uint32_t successors(std::span<const Placed> opens, uint32_t step) {
  std::unordered_map<uint32_t, uint32_t> newest;
  uint32_t count = 0;
  for (const Placed& open : opens) {
    if (open.position == Placed::kNowhere) continue;
    const auto [at, first] = newest.try_emplace(open.thread, open.position);
    if (!first && uint64_t{at->second} + step == open.position) ++count;
    at->second = open.position;
  }
  return count;
}

// Without lone strays, if most opens are of threads that go on to the next sample of their rank, and no rank
// has two: no worker is ahead of another then, so an open that follows nothing, and that nothing follows,
// tells nothing of the readers, whoever made it. A thread that leaves samples out goes on from there, and
// stays. One that has just come may be a worker that begins.
std::vector<Placed> without_strays(std::span<const Placed> opens, uint32_t ranks) {
  std::vector<Placed> kept(opens.begin(), opens.end());
  std::unordered_map<uint32_t, size_t> newest;  // of each thread
  std::vector<bool> goes_on(opens.size());
  for (size_t i = 0; i < opens.size(); ++i) {
    const auto [at, first] = newest.try_emplace(opens[i].thread, i);
    const size_t before = std::exchange(at->second, i);
    if (!first && uint64_t{opens[before].position} + ranks == opens[i].position)
      goes_on[before] = goes_on[i] = true;
  }
  std::unordered_set<uint32_t> readers;
  for (size_t i = 0; i < opens.size(); ++i) {
    if (goes_on[i]) readers.insert(opens[i].thread);
  }
  const auto newest_opens = opens.last(std::min(opens.size(), kBegins));
  const bool begins = std::any_of(newest_opens.begin(), newest_opens.end(), [&](const Placed& open) {
    return open.position != Placed::kNowhere && !readers.contains(open.thread);
  });
  const bool mostly = 3 * uint64_t{successors(opens, ranks)} >= 2 * opens.size();
  if (!mostly || begins || readers.size() > ranks || newest.contains(0)) return kept;
  kept.clear();
  for (size_t i = 0; i < opens.size(); ++i) {
    if (goes_on[i]) kept.push_back(opens[i]);
  }
  return kept;
}

// Whether hits lie side by side, as those of a worker do that goes on with its next batch while another one
// has not begun. Strays lie anywhere.
bool are_neighbours(std::span<const Lead> hits) {
  if (hits.size() < kNeighbours) return false;
  const auto [first, last] = std::ranges::minmax_element(hits, {}, &Lead::position);
  return 2 * hits.size() > last->position - first->position;
}

// The furthest lead, but for strays: the window may be as wide as a small dataset, and then it has most of
// them. A reader is as far ahead at first as later. Few of the first half are strays, also where the reader
// has left the order since: one that it left earlier does not explain kMostly of the opens.
uint32_t spread_of(std::vector<Lead> leads) {
  if (leads.empty()) return 0;
  const auto middle = leads.begin() + static_cast<std::ptrdiff_t>((leads.size() + 1) / 2);
  std::ranges::sort(leads.begin(), middle, {}, &Lead::ahead);
  const size_t last = (leads.size() + 1) / 2 - 1;
  const auto few = static_cast<size_t>((1 - kMostly) * static_cast<double>(last));
  const uint64_t least = leads[few].ahead;
  const uint64_t furthest = least + std::max(kFurther * (leads[last - few].ahead - least), kNear);
  std::ranges::sort(leads, {}, &Lead::ahead);
  const auto far = std::ranges::upper_bound(leads, furthest, {}, &Lead::ahead);
  if (!are_neighbours({far, leads.end()})) leads.erase(far, leads.end());
  return leads.empty() ? 0 : leads.back().ahead;
}

// ln 1/h!
double log_successors(uint64_t hits) {
  return -std::lgamma(static_cast<double>(hits) + 1);
}

// Samples that may be opened next, at the end.
double left_of(const Reading& reading, uint64_t opened) {
  return static_cast<double>(reading.samples - opened + 1);
}

// The window whose hits are least likely, of those that begin there and explain the opens.
std::optional<Fit> fit_from(std::span<const Placed> opens, const Reading& reading, const Window& start) {
  std::optional<Fit> best;
  const uint64_t m = opens.size();
  // A start that was taken from an open explains that one by itself.
  const uint64_t taken = start.anywhere ? 1 : 0;
  for (auto width = kWindows.rbegin(); width != kWindows.rend(); ++width) {
    if (uint64_t{*width} * kLargestShare > reading.length) continue;
    const Hits hits = hits_in(opens, {start.start, start.anywhere, *width});
    const double share = static_cast<double>(hits.count) / static_cast<double>(m);
    if (share < kMostly) break;  // nor does a narrower one
    if (!start.anywhere && hits.lowest > kBeginning) break;
    const double q = static_cast<double>(*width) * (start.anywhere ? 2 : 1) / left_of(reading, m);
    const double chance = log_tail(m - taken, q, hits.count - taken);
    if (best && chance >= best->log_chance) continue;
    best = {chance, share, *width, 0, start.start, reading.length, hits.reached};
  }
  if (!best) return best;
  // What is a stray in a narrow window may have been a worker ahead of the others.
  const std::vector<Placed> of_reader = without_strays(opens, reading.stride);
  std::vector<Lead> leads;
  hits_in(of_reader, {start.start, start.anywhere, 4 * best->window}, &leads);
  best->spread = spread_of(std::move(leads));
  return best;
}

}  // namespace

bool goes_forward(std::span<const Placed> opens) {
  std::unordered_map<uint32_t, uint32_t> newest;
  std::optional<uint32_t> last;
  size_t steps = 0, forward = 0, all_steps = 0, all_forward = 0;
  for (const Placed& open : opens) {
    if (open.thread == 0) return false;  // cannot be told
    if (open.position == Placed::kNowhere) continue;
    const auto [at, first] = newest.try_emplace(open.thread, open.position);
    if (!first) ++steps, forward += open.position > at->second ? 1 : 0;
    if (last) ++all_steps, all_forward += open.position > *last ? 1 : 0;
    at->second = open.position;
    last = open.position;
  }
  if (2 * steps < opens.size()) steps = all_steps, forward = all_forward;
  return 4 * forward >= 3 * steps;
}

uint64_t begun_at(const Fit& fit) {
  return fit.start > fit.window ? fit.start - fit.window : 0;
}

std::vector<uint32_t> threads_of(std::span<const Placed> opens, const Fit& fit) {
  std::vector<uint32_t> threads;
  for (const Placed& open : opens) {
    const bool explained = open.position < fit.reached && uint64_t{open.position} + fit.window >= fit.start;
    if (explained) threads.push_back(open.thread);
  }
  return threads;
}

bool is_certain(const Fit& fit, double orders) {
  return fit.explains() && is_certain(fit.log_chance + std::log(std::max(orders, 1.0)));
}

bool is_certain(double log_chance_of_all) {
  return log_chance_of_all + std::log(kShares) < std::log(kMostWrong / 2);
}

double log_tail(uint64_t trials, double q, uint64_t hits) {
  const auto m = static_cast<double>(trials);
  const double share = trials == 0 ? 0 : static_cast<double>(hits) / m;
  if (share <= q || q >= 1) return 0;
  const double missed = share >= 1 ? 0 : (1 - share) * std::log((1 - share) / (1 - q));
  return -m * (share * std::log(share / q) + missed);
}

uint32_t usual_distance(std::span<const Placed> opens) {
  std::unordered_map<uint32_t, uint32_t> newest;
  std::map<uint32_t, uint32_t> distances;
  for (const Placed& open : opens) {
    if (open.position == Placed::kNowhere) continue;
    const auto [at, first] = newest.try_emplace(open.thread, open.position);
    if (!first && open.position > at->second && open.position - at->second <= kMostDistance)
      ++distances[open.position - at->second];
    at->second = open.position;
  }
  const auto most = std::max_element(distances.begin(), distances.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == distances.end() ? 1 : most->first;
}

Fit fit_order(std::span<const Placed> opens, const Reading& reading) {
  const uint64_t m = opens.size();
  if (m == 0 || reading.samples <= m) return {};
  std::optional<Fit> best = fit_from(opens, reading, {});
  const bool anywhere = !best && !reading.from_start && goes_forward(opens);
  for (size_t i = 0; anywhere && !best && i < std::min<size_t>(kStarts, m); ++i) {
    if (opens[i].position == Placed::kNowhere) continue;
    best = fit_from(opens, reading, {opens[i].position, true, 0});
  }
  if (!best) return {};
  double least = reading.sequential ? 0 : best->log_chance + std::log(kWindowsTried);
  const auto look = [&](uint32_t step, double ways) {
    const uint64_t hits = successors(opens, step);
    least = std::min(least, log_successors(hits) + std::log(ways));
    if (!reading.sequential)
      least = std::min(least, log_tail(m, 1 / left_of(reading, m), hits) + std::log(ways));
  };
  look(reading.stride, 1);
  look(usual_distance(opens), kMostDistance);
  best->log_chance = std::min(0.0, least + std::log(kLooks));
  return *best;
}

}  // namespace clairfs
