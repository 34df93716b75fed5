// OrderSearch: whether readers follow an order that was found.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "plan/inference/search/order_search.h"

namespace clairfs {

// Null unless it was made for this look.
const Numbering* OrderSearch::numbering_of(const FoundOrder& found) const {
  const auto folder = place_of(*source_.catalog, found.plan);
  const auto* numbered = folder ? numberings_.known(*folder) : nullptr;
  if (numbered == nullptr) return nullptr;
  const auto of_plan = std::find_if(numbered->begin(), numbered->end(),
                                    [&](const Numbering& one) { return one.is_of(found.plan); });
  return of_plan == numbered->end() ? nullptr : &*of_plan;
}

// In the order of all ranks: the newest opens, of each sample the first. Those that it does not have are
// nowhere.
std::vector<Placed> OrderSearch::placed_in(std::span<const SeenOpen> opens, const FoundOrder& found) const {
  const Numbering* numbering = numbering_of(found);
  if (numbering == nullptr) return {};
  if (opens.size() > kMostOpens) opens = opens.last(kMostOpens);
  PlanSpec plan = found.plan;
  plan.epochs = plan.start_sample = 0;
  plan.world = plan.ranks_per_node = 1;
  const Evidence evidence = evidence_of(opens, *numbering);
  const Epoch epoch(static_cast<uint32_t>(found.plan.first_epoch));
  const auto places = places_of(*numbering, evidence, plan, epoch, NodeId(0));
  if (!places) return {};
  std::vector<uint32_t> all(evidence.samples.size());
  std::iota(all.begin(), all.end(), 0);
  return placed(evidence, all, *places, {});
}

// Where the opens lie, but for strays.
bool OrderSearch::is_read_in(std::span<const SeenOpen> opens, std::span<const SeenOpen> others,
                             const FoundOrder& found) const {
  std::vector<Placed> theirs = placed_in(opens, found);
  const std::vector<Placed> more = placed_in(others, found);
  if (theirs.empty() || more.empty()) return false;
  std::sort(theirs.begin(), theirs.end(),
            [](const Placed& a, const Placed& b) { return a.position < b.position; });
  const size_t strays = theirs.size() / 10;
  const uint32_t low = theirs[strays].position;
  const uint32_t high = theirs[theirs.size() - 1 - strays].position;
  const auto hits = std::count_if(more.begin(), more.end(), [&](const Placed& open) {
    return open.position >= low && open.position <= high;
  });
  const uint32_t samples = numbering_of(found)->index->size();
  const double share = (double{1} + high - low) / static_cast<double>(samples);
  return log_tail(more.size(), share, static_cast<uint64_t>(hits)) < -kClearly;
}

bool OrderSearch::goes_forward_in(std::span<const SeenOpen> opens, const FoundOrder& found) const {
  return goes_forward(placed_in(opens, found));
}

}  // namespace clairfs
