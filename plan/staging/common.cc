// Staging pushes what every reader of a plan needs, whatever it reads: pages of a database's index, headers.
#include <algorithm>
#include <iterator>

#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Of the staging budget at most one part in so many: the index of an LMDB of a million records has 70 MB.
constexpr uint64_t kCommonShare = 4;

// Units that are on their way at a time: as many as keep a source busy.
constexpr size_t kCommonAhead = 64;

// Between two looks for what the kernel took back. While looks find something each pause is twice as long as
// the one before: where the kernel takes such pages back over and over, or refuses them, fetching them each
// time would load the source.
constexpr Duration kShortestPause = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::minutes(1);

// In no order: these pages are for no use of any sample.
constexpr uint64_t kNowhere = UINT64_MAX;

}  // namespace

void Staging::list_common(StagedPlan& plan) const {
  std::vector<std::shared_ptr<StagedUnit>> units;
  plan.common_pages = plan.ledger->common_pages(options_.budget / kCommonShare);
  for (const PageRange& pages : plan.common_pages) {
    plan.common_bytes += pages.end - pages.begin;
    parts_.add_units_of(pages, kNowhere, units);
  }
  plan.common.assign(units.begin(), units.end());
  plan.common_checked = plan.common_pages.size();
}

void Staging::note_read(const std::string& plan, FileId file, uint64_t offset, uint64_t length) {
  {
    const MutexLock lock(parts_.shared->mutex);
    const auto found = parts_.shared->plans.find(plan);
    if (found == parts_.shared->plans.end()) return;
    const std::vector<PageRange>& pages = found->second->common_pages;
    const auto behind = std::partition_point(pages.begin(), pages.end(), [&](const PageRange& range) {
      return range.file < file || (range.file == file && range.begin < offset + length);
    });
    if (behind == pages.begin()) return;
    const PageRange& last = *std::prev(behind);
    if (last.file != file || last.end <= offset || found->second->common_read.exchange(true)) return;
  }
  wake();
}

// One page that was pushed and had to be read hardly ever is the only one. True if there is more to look at.
bool Staging::look_for_common(StagedPlan& plan) {
  const size_t all = plan.common_pages.size();
  if (plan.common_checked == all) {
    if (all == 0 || !plan.common_read.load(std::memory_order_relaxed)) return false;
    if (!plan.common.empty() || !plan.goes_on()) return false;
    if (parts_.now < plan.check_common_again) {
      parts_.look_again_within(plan.check_common_again - parts_.now);
      return false;
    }
    plan.common_read = false;
    plan.common_checked = 0;
    plan.common_gone = false;
  }
  for (uint64_t n = 0; plan.common_checked < all && n < kPushesPerStep; ++n, ++plan.common_checked) {
    std::vector<std::shared_ptr<StagedUnit>> units;
    parts_.add_units_of(plan.common_pages[plan.common_checked], kNowhere, units);
    for (const auto& unit : units) {
      const uint64_t bytes = unit->end - unit->begin;
      const auto there = parts_.page_cache.pages_of(unit->file, unit->begin, bytes);
      if (!there || *there >= round_to_pages(bytes) / kPageSize) continue;
      plan.common.push_back(unit);
      plan.common_gone = true;
    }
  }
  if (plan.common_checked < all) return true;
  plan.common_pause =
      plan.common_gone ? std::clamp(2 * plan.common_pause, kShortestPause, kLongestPause) : kShortestPause;
  plan.check_common_again = parts_.now + plan.common_pause;
  return false;
}

// True if there is more to do at once.
bool Staging::push_common(StagedPlan& plan) {
  const bool looking = look_for_common(plan);
  uint64_t pushed = 0;
  size_t waiting = 0;
  for (auto at = plan.common.begin();
       at != plan.common.end() && waiting < kCommonAhead && pushed < kPushesPerStep;) {
    const auto unit = *at;
    if (!unit->in_flight && !plan.windows.front()->ask(unit, nullptr, deadline_at(parts_.now))) break;
    if (!unit->arrived) {
      ++waiting;
      ++at;
      continue;
    }
    at = plan.common.erase(at);
    if (unit->failed) continue;  // the reader will get the error itself
    parts_.push_pages(*unit);
    ++pushed;
  }
  return looking || pushed == kPushesPerStep;
}

}  // namespace clairfs
