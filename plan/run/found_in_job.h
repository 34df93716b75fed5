// FoundInJob: what the nodes of a job say of the plan that was found.
//
// Each node watches its own readers. It tells the others of an order that all ranks of the job share, if the
// ranks that it sees are those that a registered plan would give it; any other order is followed on its node
// alone and has no part in the placement. The last word that holds in the job is the same on all nodes, as
// for registered plans (net/group/plan_register.h): of two at the same time one wins. But each node believes
// its own readers first:
// - A node whose readers follow an order goes on, whatever the word is.
// - A node whose readers follow none takes the word over.
// - A node that took it over and whose readers leave it withdraws it. The others then follow it only if their
//   readers do, each by itself, and it is not taken over again; found here, it is.
// So a wrong word costs each node a few reads, once.
#pragma once

#include <optional>
#include <vector>

#include "plan/inference/search/order_search.h"
#include "plan/run/plan_run.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// Whether two plans give the same order, whatever is known of workers, batch and where their reader begins.
bool same_order(PlanSpec a, PlanSpec b);

/// Not thread-safe: PlanTable::submit_mutex guards it.
class FoundInJob {
 public:
  struct Word {
    PlanSpec plan;
    NodeId origin;
  };

  explicit FoundInJob(JobPlace place) : place_(place) {}

  /// Where the ranks of an order are: on the nodes of the job, or on a node by itself.
  JobPlace place_of(const FoundOrder& found) const;

  /// A plan of the job was found here. Whether the others are to be told: not if it is the word already.
  bool found(const PlanSpec& plan);
  /// Readers here have left a plan of the job. The word that is withdrawn, as it was said, if there is one.
  std::optional<PlanSpec> left(const PlanSpec& plan);
  /// A node found a plan, maybe this one. Whether it is taken over, if nothing is followed here.
  bool told(const PlanSpec& plan, NodeId origin);
  /// The last word was withdrawn, or cancelled by a user, on whichever node and whatever it was.
  void cancelled() { word_.reset(); }

  /// Readers here have left the plan: it is taken over no more, until it is found here.
  bool has_left(const PlanSpec& plan) const;
  const std::optional<Word>& word() const { return word_; }
  bool is_word(const PlanSpec& plan) const { return word_ && same_order(word_->plan, plan); }

 private:
  const JobPlace place_;
  std::optional<Word> word_;
  std::vector<PlanSpec> left_;  // plans that readers here have left and not been found to follow since
};

}  // namespace clairfs
