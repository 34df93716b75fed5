// OrderSearch: orders that somebody has reason to expect.
#include <algorithm>
#include <utility>

#include "plan/inference/search/candidates.h"
#include "plan/inference/search/order_search.h"
#include "plan/inference/seeds/default_generator.h"

namespace clairfs {
namespace {

// What of a plan makes the order of all ranks together.
PlanSpec order_alone(PlanSpec plan) {
  plan.name = PlanSpec().name;
  plan.index.clear();
  plan.n = plan.start_sample = plan.epochs_before = plan.workers = 0;
  plan.world = plan.ranks_per_node = 0;
  if (plan.sampler != "nopfs") plan.batch = PlanSpec().batch;
  return plan;
}

bool is_same_but_for_epoch(PlanSpec a, PlanSpec b) {
  if (is_of_epoch_seed(a) || is_of_epoch_seed(b)) return a == b;
  a.first_epoch = b.first_epoch = a.epochs = b.epochs = 0;
  return a == b;
}

// Whether it can be made of the plan's text and a numbering of its samples.
bool needs_no_file(const PlanSpec& order) {
  bool none = order.dataset_shuffle.empty();
  for_each_file(order, [&](const char*, const std::string& value) {
    none = none && (value.empty() || value.starts_with('['));
  });
  return none;
}

// The epochs in which readers of a suggested order may be.
std::vector<uint64_t> likely_epochs(const Suggestion& suggestion, uint64_t samples) {
  // What runs on from epoch to epoch is made from the first one on: a second or so.
  constexpr uint64_t kMostDrawn = uint64_t{1} << 26;
  const PlanSpec& order = suggestion.order;
  std::vector<uint64_t> epochs{0};
  if (is_of_epoch_seed(order)) return epochs;
  for (const uint64_t epoch : {order.first_epoch, order.first_epoch + 1}) {
    const bool of_loader = order.sampler == "torch.random" && order.generator != "default";
    const bool jumps = (order.sampler.starts_with("torch.") && !of_loader) || order.sampler == "list";
    const bool runs_on = !jumps;
    if (epoch != 0 && (!runs_on || epoch * samples <= kMostDrawn)) epochs.push_back(epoch);
  }
  return epochs;
}

}  // namespace

void OrderSearch::suggest(Suggestion suggestion) {
  suggestion.order = order_alone(std::move(suggestion.order));
  if (!needs_no_file(suggestion.order) || goes_by_number(suggestion.order)) return;
  const bool of_epoch = is_of_epoch_seed(suggestion.order);
  ++suggestions_;
  std::erase_if(suggested_, [&](const Suggestion& known) {
    return is_same_but_for_epoch(known.order, suggestion.order);
  });
  suggested_.insert(suggested_.begin(), std::move(suggestion));
  const auto is_of_kind = [&](const Suggestion& one) { return is_of_epoch_seed(one.order) == of_epoch; };
  const auto of_kind = std::count_if(suggested_.begin(), suggested_.end(), is_of_kind);
  if (static_cast<size_t>(of_kind) <= kMostSuggestions / 2) return;
  const auto oldest = [&](const auto& is_wanted) {
    return std::find_if(suggested_.rbegin(), suggested_.rend(), is_wanted);
  };
  auto out = oldest([&](const Suggestion& one) { return is_of_kind(one) && one.saved; });
  if (out == suggested_.rend() && !of_epoch) out = oldest(is_of_kind);
  if (out == suggested_.rend()) return (void)suggested_.erase(suggested_.begin());
  suggested_.erase(std::next(out).base());
}

// An order that is suggested because it explains a part of these opens was chosen among others: they count as
// compared, once.
std::optional<FoundOrder> OrderSearch::try_suggested(FileId folder, std::span<const SeenOpen> opens,
                                                     const ReaderFacts& facts) {
  for (Suggestion& suggestion : suggested_) {
    if (place_of(*source_.catalog, suggestion.order) != folder) continue;
    const auto& numberings = numberings_.of(folder);
    // Of two that agree only the other one is there.
    const bool any_format = suggestion.order.format == "files" && numberings.size() == 1;
    for (const Numbering& numbering : numberings) {
      if (!any_format && !numbering.is_of(suggestion.order)) continue;
      if (opens.size() < kTelling && numbering.index->size() > kSmall) continue;
      const Evidence evidence = evidence_of(opens, numbering);
      if (evidence.views.empty()) continue;
      orders_ += std::exchange(suggestion.orders, 0);
      for (const uint64_t epoch : likely_epochs(suggestion, numbering.index->size())) {
        if (over()) return std::nullopt;
        PlanSpec order = suggestion.order;
        order.first_epoch = epoch;
        order.epochs = 0;
        auto found = try_order(numbering, evidence, order, facts, false);
        if (awaited_) awaited_->description = describe_shuffle(suggestion.order);
        if (!found) continue;
        found->description = describe_shuffle(suggestion.order);
        return found;
      }
    }
  }
  return std::nullopt;
}

// All that was left to be seen is how many read it: thousands of others need not be refuted once more. A
// reader that has gone on to another folder is not awaited: of the first one nothing more would come.
std::optional<FoundOrder> OrderSearch::try_awaited(const FoundOrder& awaited,
                                                   std::span<const FileId> looked_in,
                                                   std::span<const SeenOpen> opens, const ReaderFacts& facts,
                                                   bool goes_on) {
  const auto folder = place_of(*source_.catalog, awaited.plan);
  const bool is_there = folder && std::find(looked_in.begin(), looked_in.end(), *folder) != looked_in.end();
  if (!is_there) return std::nullopt;
  for (const Numbering& numbering : numberings_.of(*folder)) {
    if (!numbering.is_of(awaited.plan)) continue;
    const Evidence evidence = evidence_of(opens, numbering);
    if (evidence.views.empty()) return std::nullopt;
    const bool from_start = is_sequential_order(awaited.plan) && !goes_on;
    auto found = try_order(numbering, evidence, awaited.plan, facts, from_start);
    if (awaited_) awaited_->description = awaited.description;
    if (found) found->description = awaited.description;
    return found;
  }
  return std::nullopt;
}

}  // namespace clairfs
