#include "plan/inference/search/dealing.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "plan/inference/search/order_search.h"
#include "plan/tracking/interleaving.h"

namespace clairfs {
namespace {

// PyTorch's default of batches that each worker has in flight.
constexpr uint64_t kPrefetch = 2;

// Opens that make a thread a reader of the order: one may be a stray that lies there by chance.
constexpr size_t kReads = 2;

// Opens of a rank that show all of its workers.
constexpr uint64_t kDealt = 48;

bool is_alive(uint32_t thread) {
  return thread != 0 && ::access(fmt::format("/proc/{}", thread).c_str(), F_OK) == 0;
}

struct ThreadOpens {
  size_t first = 0;  // of all opens
  size_t last = 0;
  std::vector<uint32_t> samples;  // of its rank: positions over ranks
};

// The most threads of any rank that were at work at the same time.
uint64_t most_at_once(const std::map<uint32_t, ThreadOpens>& threads, uint32_t ranks) {
  uint64_t most = 0;
  for (const auto& thread : threads) {
    const ThreadOpens& one = thread.second;
    const auto count = std::count_if(threads.begin(), threads.end(), [&](const auto& entry) {
      return entry.second.first <= one.last && one.last <= entry.second.last;
    });
    most = std::max(most, static_cast<uint64_t>(count));
  }
  return (most + ranks - 1) / ranks;
}

}  // namespace

Dealing find_dealing(std::span<const Placed> opens, uint32_t ranks, const Fit& fit,
                     const std::function<bool(uint32_t thread)>& alive) {
  std::map<uint32_t, ThreadOpens> threads;
  for (size_t i = 0; i < opens.size(); ++i) {
    const uint32_t position = opens[i].position;
    if (position >= fit.reached || uint64_t{position} + fit.window < fit.start) continue;
    ThreadOpens& thread = threads[opens[i].thread];
    if (thread.samples.empty()) thread.first = i;
    thread.last = i;
    thread.samples.push_back(position / ranks);
  }
  std::erase_if(threads, [](const auto& entry) { return entry.second.samples.size() < kReads; });
  Dealing dealing;
  const auto still_there =
      std::count_if(threads.begin(), threads.end(), [&](const auto& entry) { return alive(entry.first); });
  dealing.workers =
      std::max(most_at_once(threads, ranks), (static_cast<uint64_t>(still_there) + ranks - 1) / ranks);
  if (dealing.workers < 2) dealing.workers = 0;
  std::vector<uint32_t> begun;
  for (const auto& [number, thread] : threads) {
    for (size_t i = 0; i < thread.samples.size(); ++i) {
      if (thread.samples[i] > 0 && (i == 0 || thread.samples[i] != thread.samples[i - 1] + 1))
        begun.push_back(thread.samples[i]);
    }
  }
  if (dealing.workers > 0 && !begun.empty()) dealing.batch = common_divisor(begun);
  const uint64_t steps = kPrefetch * dealing.workers + 1;
  // A reader by tasks has no batches; its opens are taken to go astray twice as far as was seen.
  const uint64_t seen = (uint64_t{fit.spread} + ranks - 1) / ranks;
  if (steps * dealing.batch < seen) dealing.batch = (2 * seen + steps - 1) / steps;
  return dealing;
}

uint64_t enough_opens(uint64_t ranks, uint64_t length) {
  return std::min<uint64_t>({kDealt * ranks, length / 4, OrderSearch::kMostOpens / 4 * 3});
}

bool add_dealing(PlanSpec& plan, std::span<const Placed> opens, const Fit& fit) {
  const Dealing dealing = find_dealing(opens, static_cast<uint32_t>(plan.ranks_per_node), fit, is_alive);
  plan.batch = dealing.batch;
  plan.workers = dealing.workers;
  return opens.size() >= enough_opens(plan.ranks_per_node, fit.length);
}

}  // namespace clairfs
