// OrderSearch: how much is searched for whom, and when.
#include <algorithm>
#include <memory>

#include "plan/inference/search/candidates.h"
#include "plan/inference/search/order_search.h"
#include "plan/inference/seeds/default_generator.h"

namespace clairfs {
namespace {

// Other seeds are tried again when so many times as many opens were seen.
constexpr size_t kAllSeedsAgain = 4;

}  // namespace

void OrderSearch::begin() {
  numberings_.forget();
  used_ = 0;
  for (auto& [reader, effort] : efforts_) {
    effort.used = 0;
    effort.look_at = effort.suggestions_at = 0;
    effort.all_seeds_at = kTelling;
    effort.awaited.reset();
    if (reader == kEverybody) effort.in_vain /= 2;
  }
}

OrderSearch::Effort& OrderSearch::effort_of(uint32_t reader) {
  if (!efforts_.contains(reader) && efforts_.size() >= kMostReaders) {
    auto first = efforts_.begin();
    if (first->first == kEverybody) ++first;
    efforts_.erase(std::min_element(first, efforts_.end(), [](const auto& a, const auto& b) {
      return a.second.looked < b.second.looked;
    }));
  }
  Effort& effort = efforts_[reader];
  if (effort.looked == 0) effort.all_seeds_at = kTelling;
  effort.looked = ++looks_;
  return effort;
}

// What is tried from now on counts as tried for these opens.
OrderSearch::Look OrderSearch::begin_look(std::span<const SeenOpen> opens,
                                          const std::optional<FoundOrder>& before, Which which,
                                          Effort& effort) {
  const bool likely = which == Which::likely || which == Which::any;
  const bool others = which == Which::others || which == Which::any;
  Look look;
  look.suggested =
      likely && (effort.suggestions_seen != suggestions_ || opens.size() >= effort.suggestions_at);
  if (look.suggested) {
    effort.suggestions_seen = suggestions_;
    effort.suggestions_at = next_look(opens);
  }
  look.first_opens = opens.first(std::min(opens.size(), kMostOpens));
  look.opens = opens.last(std::min(opens.size(), kMostOpens));
  look.which = which;
  look.many_seeds = which == Which::seeds || which == Which::shuffles;
  look.later = look.many_seeds || which == Which::rest;
  look.goes_on = before && is_sequential_order(before->plan);
  const auto shuffles = shuffles_.find(folders(look.first_opens, std::nullopt).front());
  look.goes_on_shuffling = (before && is_of_epoch_seed(before->plan)) ||
                           (shuffles != shuffles_.end() && shuffles->second.search.has_begun());
  if (others) {
    effort.seeds_due = look.opens.size() >= effort.all_seeds_at;
    effort.shuffles_due = effort.seeds_due || look.goes_on_shuffling;
    if (effort.seeds_due) effort.all_seeds_at = look.opens.size() * kAllSeedsAgain;
  }
  look.all_seeds = which != Which::likely && effort.seeds_due;
  return look;
}

// Or when the second pass over all samples may have begun.
size_t OrderSearch::telling_after(std::span<const SeenOpen> opens) {
  const size_t telling = opens.size() < kTelling ? kTelling : SIZE_MAX;
  if (opens.empty()) return telling;
  const std::vector<Numbering>& known = numberings_.of(folders(opens, std::nullopt).front());
  const size_t again = known.empty() ? 0 : known.front().index->size() + kTelling;
  return again > opens.size() ? std::min(telling, again) : telling;
}

// Half as many again. With a few less than kTelling that would be long after kTelling, and a reader may open
// no more than that before it waits.
size_t OrderSearch::next_look(std::span<const SeenOpen> opens) {
  const size_t next = opens.size() + std::max(opens.size() / 2, AccessRecorder::kFirstLook / 2);
  return std::min(next, telling_after(opens));
}

size_t OrderSearch::look_at(uint32_t reader) const {
  const auto effort = efforts_.find(reader);
  return effort == efforts_.end() ? 0 : effort->second.look_at;
}

size_t OrderSearch::telling_at(uint32_t reader) const {
  const auto effort = efforts_.find(reader);
  return effort == efforts_.end() ? SIZE_MAX : effort->second.telling_at;
}

uint64_t OrderSearch::tried_in_vain(uint32_t reader) const {
  const auto effort = efforts_.find(reader);
  return effort == efforts_.end() ? 0 : effort->second.in_vain;
}

void OrderSearch::looked(uint32_t reader, std::span<const SeenOpen> opens) {
  Effort& effort = effort_of(reader);
  effort.look_at = next_look(opens);
  effort.telling_at = telling_after(opens);
}

}  // namespace clairfs
