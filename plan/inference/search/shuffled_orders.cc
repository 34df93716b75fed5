// OrderSearch: what DataLoader(shuffle=True) may have drawn, from epoch to epoch.
//
// What an epoch has told of the next ones is remembered by the place of the samples: a script goes through
// its validation set between them, in an order of its own. Who reads the next one may be known as one program
// or as everybody.
#include <algorithm>

#include "plan/inference/search/dealing.h"
#include "plan/inference/search/order_search.h"

namespace clairfs {
namespace {

// Places whose shuffles are remembered: those of a training's folders.
constexpr size_t kMostShuffled = 8;

// How far the first opens of a loader may lie from the beginning: what its workers have in flight, and as
// many as were seen. PyTorch's default of batches that each of them prefetches is 2.
uint64_t reach_of(uint64_t batch, uint64_t workers, uint64_t seen) {
  return batch == 0 ? 0 : (2 * workers + 1) * batch + seen;
}

}  // namespace

bool OrderSearch::is_read(FileId place, std::span<const SeenOpen> opens) const {
  const auto is_in = [&](const SeenOpen& open) {
    const auto places = numberings_.places_of(open.file);
    if (std::find(places.begin(), places.end(), place) != places.end()) return true;
    for (FileId at = open.file; at != place; at = source_.catalog->parent(at)) {
      if (at.value == 0) return false;
    }
    return true;
  };
  return static_cast<size_t>(std::count_if(opens.begin(), opens.end(), is_in)) >= kFewest;
}

OrderSearch::ShuffledEpochs& OrderSearch::shuffles_in(FileId place) {
  if (!shuffles_.contains(place) && shuffles_.size() >= kMostShuffled) {
    shuffles_.erase(std::min_element(shuffles_.begin(), shuffles_.end(), [](const auto& a, const auto& b) {
      return a.second.looked < b.second.looked;
    }));
  }
  ShuffledEpochs& shuffles =
      shuffles_.try_emplace(place, ShuffledEpochs{ShuffleSearch(shuffle_options_)}).first->second;
  shuffles.looked = looks_;
  return shuffles;
}

std::optional<FoundOrder> OrderSearch::plan_shuffle(const Numbering& numbering, const Evidence& evidence,
                                                    const ShuffleSearch::Found& shuffle,
                                                    ShuffledEpochs& shuffles, bool goes_on) {
  // Where that is not enough for a mount, which searches many times, the seed is known once more was seen.
  if (!is_certain(shuffle.log_chance)) return std::nullopt;
  PlanSpec plan = shuffle.order;
  numbering.name_in(plan);
  plan.world = plan.ranks_per_node = 1;
  PlanSpec any = plan;
  any.epochs = any.first_epoch = 0;
  const auto places =
      places_of(numbering, evidence, any, Epoch(static_cast<uint32_t>(plan.first_epoch)), NodeId(0));
  if (!places) return std::nullopt;
  const std::vector<Placed> opened = placed(evidence, evidence.views.front(), *places, {});
  const Fit fit = fit_order(opened, {numbering.index->size(), places->length, 1, false, false});
  if (!fit.explains()) return std::nullopt;
  if (!add_dealing(plan, opened, fit)) {
    if (!goes_on || shuffles.batch == 0) return std::nullopt;
    plan.batch = shuffles.batch;
    plan.workers = shuffles.workers;
  }
  shuffles.batch = plan.batch;
  shuffles.workers = plan.workers;
  FoundOrder found{plan, 0, opened.size(), orders_, shuffle.log_chance};
  found.threads = threads_of(opened, fit);
  found.description = shuffle.description;
  return found;
}

// An epoch counts once its seed is known.
std::optional<FoundOrder> OrderSearch::try_shuffles(FileId folder, std::span<const SeenOpen> opens,
                                                    const ReaderFacts& facts, Effort& effort) {
  for (const Numbering& numbering : numberings_.of(folder)) {
    const Evidence evidence = evidence_of(opens, numbering);
    if (evidence.views.empty()) continue;
    const uint32_t n = numbering.index->size();
    if (evidence.samples.size() < enough_opens(1, n)) continue;
    ShuffledEpochs& shuffles = shuffles_in(folder);
    const uint64_t tested_before = shuffles.search.tested();
    const auto shuffle = shuffles.search.find({n, evidence.samples, 0, orders_, facts.seeds});
    const uint64_t tested = shuffles.search.tested() - tested_before;
    if (!stop_()) effort.in_vain += tested;  // else it was given up for another reader
    if (shuffle) effort.in_vain = 0;
    orders_ += static_cast<double>(tested);
    if (!shuffle) continue;
    if (auto found = plan_shuffle(numbering, evidence, *shuffle, shuffles, false)) return found;
  }
  return std::nullopt;
}

// That takes next to nothing, so it comes with the likely orders, and as early as these.
std::optional<FoundOrder> OrderSearch::try_next_shuffles(std::span<const SeenOpen> opens) {
  opens = opens.first(std::min(opens.size(), kMostOpens));
  for (auto& [place, shuffles] : shuffles_) {
    if (!shuffles.search.has_begun() || !is_read(place, opens)) continue;
    for (const Numbering& numbering : numberings_.of(place)) {
      const Evidence evidence = evidence_of(opens, numbering);
      if (evidence.views.empty()) continue;
      const uint64_t reach = reach_of(shuffles.batch, shuffles.workers, evidence.samples.size());
      const uint64_t tested_before = shuffles.search.tested();
      const auto shuffle =
          shuffles.search.go_on({numbering.index->size(), evidence.samples, reach, orders_, {}});
      orders_ += static_cast<double>(shuffles.search.tested() - tested_before);
      if (!shuffle) continue;
      if (auto found = plan_shuffle(numbering, evidence, *shuffle, shuffles, true)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace clairfs
