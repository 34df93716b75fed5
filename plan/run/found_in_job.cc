#include "plan/run/found_in_job.h"

#include "plan/sequence/access_sequence.h"

namespace clairfs {

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
NodePlace FoundInJob::place_of(const FoundOrder& found) const {
  const PlanSpec& plan = found.plan;
  const bool of_job = place_.nodes > 1 && divides_among_ranks(plan) && found.node == place_.node.value &&
                      plan.world == place_.nodes * plan.ranks_per_node;
  return of_job ? place_ : NodePlace{NodeId(found.node), 1};
}

bool FoundInJob::found(const PlanSpec& plan) {
  if (left_ && same_order(*left_, plan)) left_.reset();
  if (is_word(plan)) return false;
  word_ = Word{plan, place_.node};
  return true;
}

bool FoundInJob::left(const PlanSpec& plan) {
  left_ = plan;
  if (!is_word(plan)) return false;
  word_.reset();
  return true;
}

bool FoundInJob::told(const PlanSpec& plan, NodeId origin) {
  word_ = Word{plan, origin};
  return !left_ || !same_order(*left_, plan);
}

void FoundInJob::withdrawn(const PlanSpec& plan) {
  if (is_word(plan)) word_.reset();
}

}  // namespace clairfs
