#include "plan/run/found_in_job.h"

#include <algorithm>
#include <utility>

#include "plan/sequence/access_sequence.h"

namespace clairfs {
namespace {

// Of plans that were left: more than the orders that the nodes of a job find in turn, and at most a megabyte
// of texts.
constexpr size_t kMostLeft = 16;

}  // namespace

bool same_order(PlanSpec a, PlanSpec b) {
  for (PlanSpec* plan : {&a, &b}) {
    plan->batch = plan->workers = plan->start_sample = 0;
    plan->prefetch_factor = 0;
    plan->index.clear();
    plan->name.clear();
  }
  return a == b;
}

// Where ranks read all samples it cannot be known that others have the same order.
JobPlace FoundInJob::place_of(const FoundOrder& found) const {
  const PlanSpec& plan = found.plan;
  const bool of_job = place_.size > 1 && divides_among_ranks(plan) && found.node == place_.self.value &&
                      plan.world == place_.size * plan.ranks_per_node;
  return of_job ? place_ : JobPlace{NodeId(found.node), 1};
}

bool FoundInJob::found(const PlanSpec& plan) {
  std::erase_if(left_, [&](const PlanSpec& left) { return same_order(left, plan); });
  if (is_word(plan)) return false;
  word_ = Word{plan, place_.self};
  return true;
}

std::optional<PlanSpec> FoundInJob::left(const PlanSpec& plan) {
  std::erase_if(left_, [&](const PlanSpec& left) { return same_order(left, plan); });
  left_.push_back(plan);
  if (left_.size() > kMostLeft) left_.erase(left_.begin());
  if (!is_word(plan)) return std::nullopt;
  return std::exchange(word_, std::nullopt)->plan;
}

bool FoundInJob::told(const PlanSpec& plan, NodeId origin) {
  word_ = Word{plan, origin};
  return !has_left(plan);
}

bool FoundInJob::has_left(const PlanSpec& plan) const {
  return std::any_of(left_.begin(), left_.end(),
                     [&](const PlanSpec& left) { return same_order(left, plan); });
}

}  // namespace clairfs
