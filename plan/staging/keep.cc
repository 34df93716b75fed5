// Staging chooses what stays in the page cache of a plan that does not fit there.
//
// Every epoch uses each of its samples once, so a sample that is there at an epoch's first use of it was
// there when the epoch began: of B bytes that may stay, no choice spares more than B bytes an epoch, and any
// B bytes that just stay spare as much. So what is read first stays, until it has no further use. Where ranks
// or nodes get other samples each epoch it spares its share of what they read.
//
// A sample that stays is read without a request, and not only behind what was pushed. So the window steps
// over it at hardly any cost, the tracker is told how many of them come in a row (announce()), and where
// nothing else can be a sentinel one of them lacks a page again. That one cannot be while an earlier use of
// it is unread, so a window does not reach further than half an epoch past the reader.
//
// Its chunks need no place in a tier: tiers and page cache hold different samples. Chunks that records share
// stay in their tier as long as any of them has a use, so of records those stay in the page cache that no
// tier has, nor has room for.
//
// Small records and shards do not stay, unless all of them do: their pages are shared, and readers who go on
// past a sample's end would be seen too seldom among what stays. Large records have pages of their own.
#include <algorithm>

#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Records that have so many bytes on average have pages of their own.
constexpr uint64_t kLargeRecord = 32 << 10;

}  // namespace

// Whether samples may stay of a plan of which not all do.
bool Staging::may_keep_part(const PlanRun& run) {
  const SampleIndex& index = run.index();
  if (!index.shares_files()) return true;
  const uint64_t least = std::max<uint64_t>(kLargeRecord, index.read_block());
  return run.of_records() && !index.shares_bytes() && run.dataset_bytes() / index.size() >= least;
}

bool StagingParts::in_tiers(const SampleIndex& index, uint32_t sample) const {
  const TierSpace space = cache.space();
  size_t chunks = 0;
  size_t kept = 0;
  for_each_chunk(index, catalog, sample, [&](ChunkId chunk) {
    ++chunks;
    const bool room = FirstTouchPolicy::tier(catalog.range(chunk).length, space) != Tier::none;
    if (cache.tier_of(chunk) != Tier::none || (room && cache.would_keep(chunk, space))) ++kept;
  });
  return 2 * kept > chunks;
}

bool StagedPlan::goes_on() const {
  return std::any_of(windows.begin(), windows.end(), [](const auto& window) {
    const TrackerState state = window->reader().tracker().state();
    return state != TrackerState::suspended && state != TrackerState::finished;
  });
}

bool StagedPlan::comes_again(uint32_t sample) const {
  return std::any_of(windows.begin(), windows.end(),
                     [&](const auto& window) { return window->comes_again(sample); });
}

bool ReaderWindow::comes_again(uint32_t sample) const {
  return !timeline_.complete() || timeline_.uses_within(sample, dropped_ + 1, timeline_.end());
}

// The reader is done with the sample at `position`, which is about to be released.
void ReaderWindow::keep_or_let_go(uint64_t position) {
  const uint32_t sample = timeline_.sample_at(position);
  const bool again = plan_.comes_again(sample);
  if (plan_.ledger->stays(sample)) {
    if (!again) plan_.let_go(sample);
    return;
  }
  const SampleIndex& index = reader_->index();
  const uint64_t bytes = page_bytes(index, sample);
  if (!plan_.keeps_part || !again || bytes == 0 || bytes > parts_.room_to_keep) return;
  if (plan_.of_records && (bytes < kLargeRecord || parts_.in_tiers(index, sample))) return;
  if (!is_whole(position).value_or(true)) return;
  plan_.ledger->keep(sample);
  plan_.part_bytes += bytes;
  parts_.room_to_keep -= bytes;
  plan_.tell_policy_of_pages(sample, true);
}

void StagedPlan::let_go(uint32_t sample) {
  ledger->let_go(sample);
  part_bytes -= page_bytes(windows.front()->reader().index(), sample);
  tell_policy_of_pages(sample, false);
  drop_released(sample);
}

bool StagedPlan::drop_released(uint32_t sample) {
  const std::vector<PageRange> free = ledger->release(sample);
  for (const PageRange& range : free) {
    parts.sentinel_pages.close(range);
    parts.page_cache.drop(range.file, range.begin, round_to_pages(range.end) - range.begin);
  }
  return !free.empty();
}

bool StagedPlan::let_go_of_any(uint64_t most) {
  const uint32_t samples = windows.front()->reader().index().size();
  for (; part_bytes > 0 && most > 0; ++searched) {
    if (searched >= samples) searched = 0;
    if (!ledger->stays(searched)) continue;
    let_go(searched);
    --most;
  }
  return part_bytes > 0;
}

// No more than `room` bytes stay of plans that do not fit, and none of those that nobody follows: their
// pages would hide where the reader is. True if there is more to let go of at once.
bool Staging::keep_within(const std::map<std::string, std::shared_ptr<StagedPlan>>& plans, uint64_t room) {
  uint64_t kept = 0;
  for (const auto& [name, plan] : plans) kept += plan->part_bytes;
  bool more = false;
  for (const auto& [name, plan] : plans) {
    if (plan->part_bytes == 0 || (kept <= room && plan->goes_on())) continue;
    const uint64_t before = plan->part_bytes;
    more = plan->let_go_of_any(kPushesPerStep) || more;
    kept -= before - plan->part_bytes;
  }
  parts_.room_to_keep = room - std::min(room, kept);
  parts_.metrics.staging_kept.set(static_cast<int64_t>(kept));
  return more;
}

void StagedPlan::tell_policy_of_pages(uint32_t sample, bool there) const {
  for_each_chunk(windows.front()->reader().index(), parts.catalog, sample,
                 [&](ChunkId chunk) { parts.policy.set_in_page_cache(chunk, there); });
}

// Samples that the window may reach past the reader.
uint64_t ReaderWindow::most_ahead() const {
  if (plan_.part_bytes == 0 || timeline_.empty()) return UINT64_MAX;
  return std::max<uint64_t>(timeline_.last_length() / 2, 1);
}

}  // namespace clairfs
