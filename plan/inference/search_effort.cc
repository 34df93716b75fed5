// OrderSearch: how much is searched for whom, and when.
#include <algorithm>
#include <memory>

#include "plan/inference/order_search.h"

namespace clairfs {

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
  if (effort.looked == 0) {
    effort.all_seeds_at = kTelling;
    effort.shuffles = std::make_shared<ShuffledEpochs>(ShuffledEpochs{ShuffleSearch(shuffle_options_)});
  }
  effort.looked = ++looks_;
  return effort;
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
