// Pushing what has arrived, and leaving sentinels open; what pushes cost.
#include <algorithm>
#include <utility>

#include "cache/io/memory.h"
#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Whether a reader of the sample takes the page, maybe because it goes on past the sample's end.
bool takes(const SampleIndex& index, uint32_t sample, const PageRange& page) {
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.file == page.file && range.offset < page.end && index.read_end(range) > page.begin) return true;
  }
  return false;
}

}  // namespace

// Tells the tracker what is about to be pushed, before it is: a reader close behind may pass it unseen at
// once. So it may what stays further on, where nothing is a sentinel yet, and may have passed what the window
// has given up since. Where several ranks read, another one may have filled any sentinel a moment ago.
// Returns the end of what the tracker takes for pushed now.
uint64_t ReaderWindow::announce() {
  uint64_t end = staged_;
  uint64_t units = 0;
  for (const auto& unit : units_) {
    if (++units > kPushesPerStep || (unit->chunk && !unit->arrived)) break;
    end = unit->position + 1;
  }
  uint32_t widest = chooser_.widest_gap(staged_, end);
  if (longest_kept_run_ > 0) {
    end = std::max(end, fetched_);
    widest = std::max(widest, std::min(longest_kept_run_, SentinelChooser::kLongestGap));
  }
  end = std::max(end, pushed_until_);
  gap_ = plan_.windows.size() == 1 ? widest : 2 * widest;
  reader_->tracker().set_pushed(end, gap_);
  return end;
}

// Whether the reader has come to the sample since the turn began, which may take milliseconds. What it has
// read itself, and maybe given back, is not to be there for its next use, where nobody counts on it yet; and
// a sentinel behind the reader tells of nothing. Of streams and records more is of use (overtaken()).
bool ReaderWindow::opened_meanwhile(uint64_t position) const {
  const bool of_files = !plan_.of_records && reader_->streams() == 0;
  return of_files && reader_->tracker().opened(position);
}

bool ReaderWindow::push_arrived() {
  chooser_.choose_gap({high_water_, staged_, fetched_, bytes_, budget_, most_ahead()});
  uint64_t told = announce();
  const uint64_t before = staged_;
  uint64_t pushed = 0;
  for (; !units_.empty() && pushed < kPushesPerStep; ++pushed) {
    const auto unit = units_.front();
    const bool late = overtaken() || opened_meanwhile(unit->position);
    if (!late && (asked_ == 0 || (unit->chunk && !unit->arrived))) break;
    if (!late && unit->position >= told) told = announce();  // it has arrived since
    if (late) {
      complete_ = true;
    } else {
      push(*unit);
    }
    pop_unit();
    if (unit->last) hand_on(staged_ + 1);
  }
  if (staged_ != before) tell_policy();
  return pushed > 0;
}

// What the sample at `position` takes of the window: the pages that are to be pushed for it, and not for the
// one before (leave_out_shared_pages()), but no less than it takes to remember it, which is all that one
// takes that stays.
uint64_t ReaderWindow::cost_of(uint64_t position) const {
  constexpr uint64_t kLeast = 1024;
  const uint32_t sample = timeline_.sample_at(position);
  const uint64_t bytes = page_bytes(reader_->index(), sample);
  if (!plan_.keeps_all && plan_.ledger->stays(sample)) return std::min(bytes, kLeast);
  if (bytes == 0 || !newest_) return bytes;
  const ByteRange first = reader_->index().range(sample, 0);
  const PageRange& before = *newest_;
  const uint64_t begin = page_floor(first.offset);
  const bool follows = first.file == before.file && begin >= before.begin && begin < before.end;
  if (!follows) return bytes;
  const bool to_the_end = before.end == parts_.catalog.stamp(before.file).size;  // there is no more
  const uint64_t all = round_to_pages(reader_->index().read_end(first)) - begin;
  const uint64_t there = to_the_end ? all : std::min(all, before.end - begin);
  return std::max(bytes - there, kLeast);
}

// Pushes one unit; with the last one of a sample, says what became of the sample.
void ReaderWindow::push(const StagedUnit& unit) {
  const uint32_t sample = timeline_.sample_at(unit.position);
  const bool seen = plan_.of_records && opened(unit.position);  // it would tell nothing new
  if (unit.first && !seen) choose_sentinel(unit);
  if (!unit.chunk || staged_elsewhere(sample)) {
    complete_ = true;
    return;
  }
  if (const auto found = sentinels_.find(unit.position); found != sentinels_.end() && !unit.failed) {
    const PageRange& page = found->second;
    if (page.file == unit.file && page.begin >= unit.begin && page.end <= unit.end)
      parts_.sentinel_pages.keep(page, {reader_.get(), sample, unit.position},
                                 joined(parts_.bytes_of(unit, page)));
  }
  // The next one brings the pages that it shares with this one.
  if (unit.failed && unit.position == newest_position_) newest_.reset();
  complete_ = !unit.failed && parts_.push_pages(unit) && complete_;
  if (!unit.last) return;
  parts_.metrics.staging_pushed.add();
  if (complete_) plan_.ledger->note_whole(sample);
  complete_ = true;
}

// Before the first page of the sample is pushed. Another rank's read would hide this one's.
void ReaderWindow::choose_sentinel(const StagedUnit& unit) {
  const uint64_t position = unit.position;
  const uint32_t sample = timeline_.sample_at(position);
  const uint64_t end = timeline_.epoch_end(position);
  const bool last_of_epoch = is_last_to_tell(position);
  if (!chooser_.due(position, last_of_epoch)) return;
  const bool late = last_of_epoch || chooser_.late(position);
  // The page of one that stays has to be fetched again, so any other will rather be the sentinel.
  const bool reopens = plan_.ledger->stays(sample) && (plan_.keeps_all || (late && !unread_before(position)));
  std::optional<PageRange> page;
  if (unit.chunk || unit.covered || reopens) page = sentinel_page(position, late);
  if (!chooser_.choose(position, last_of_epoch, page.has_value())) return;
  sentinels_.emplace(position, *page);
  leave_open(position);
  parts_.metrics.staging_sentinels.add();
  if (last_of_epoch && position + 1 < end && end == timeline_.end() && timeline_.complete())
    reader_->tracker().set_unseen_end(position + 1);
}

// Whether nothing that comes after it in its epoch can be a sentinel. The last sample of an epoch always
// can, but for records that share all their pages with others.
bool ReaderWindow::is_last_to_tell(uint64_t position) const {
  constexpr uint64_t kTail = 128;  // further from the end it is not looked for
  const uint64_t end = timeline_.epoch_end(position);
  if (position + 1 == end || end - position > kTail) return position + 1 == end;
  for (uint64_t later = end; --later > position;) {
    if (!plan_.of_records || sentinel_page(later, true)) return false;
  }
  return true;
}

// A page that tells of this position, because the reader comes to no sample in it sooner, and no other
// reader has one of them before it. `nearly`: a page will do that the reader may come to a little sooner.
std::optional<PageRange> ReaderWindow::sentinel_page(uint64_t position, bool nearly) const {
  const uint32_t own = timeline_.sample_at(position);
  if (staged_elsewhere(own)) return std::nullopt;
  for (const PageRange& page : plan_.ledger->sentinel_pages(own)) {
    if (tells(position, page, nearly)) return page;
  }
  return std::nullopt;
}

bool ReaderWindow::tells(uint64_t position, const PageRange& page, bool nearly) const {
  // A reader that reads on past a record may ask for the page as close as this: little is wrong with the
  // position then. The tracker believes in two gaps beyond the last sentinel, which may lie one behind the
  // reader. A sentinel that it does not believe is gone all the same; if that was the last one, the plan does
  // not end.
  constexpr uint64_t kClose = 64;
  const uint64_t close = nearly ? std::min<uint64_t>(kClose, chooser_.gap()) : 0;
  const SampleIndex& index = reader_->index();
  const uint32_t own = timeline_.sample_at(position);
  bool alone = true;
  const auto look = [&](uint64_t begin, uint64_t end, uint64_t before) {
    index.samples_of(page.file, begin, end - begin, [&](uint32_t sample) {
      if (sample == own || !alone || !takes(index, sample, page)) return;
      alone = !timeline_.uses_within(sample, safe_, before) && !staged_elsewhere(sample);
    });
  };
  look(page.begin, page.end, position);
  const uint64_t reach = std::min<uint64_t>(page.begin, index.read_block() - 1);
  if (!alone || reach == 0) return alone;
  const uint64_t before = std::min(first_of_run(position, page), position - std::min(position, close));
  look(page.begin - reach, page.begin, std::max(safe_, before));
  return alone;
}

// From which position on the readers of all samples up to this one take the page: records in the order of
// their file, shorter than what is read at a time. A reader of the first of them has read them all.
uint64_t ReaderWindow::first_of_run(uint64_t position, const PageRange& page) const {
  constexpr uint64_t kMost = 1024;  // records of 64 bytes that are read 64 KiB at a time
  const uint64_t least = std::max({safe_, timeline_.begin(), position - std::min(position, kMost)});
  uint64_t first = position;
  while (first > least && takes(reader_->index(), timeline_.sample_at(first - 1), page)) --first;
  return first;
}

// The page is left out of what is pushed from now on. It may be there from an earlier reader or plan.
void ReaderWindow::leave_open(uint64_t position) {
  const uint32_t sample = timeline_.sample_at(position);
  const PageRange& page = sentinels_.at(position);
  parts_.sentinel_pages.open(page, {reader_.get(), sample, position});
  parts_.page_cache.drop(page.file, page.begin, kPageSize);
  if (timeline_.uses_within(sample, safe_, high_water_)) open_again_.push_back(position);
}

// The reader has passed those (it did not need the page, or somebody else has read it), or is not to come to
// them.
void ReaderWindow::forget_sentinels(uint64_t from, uint64_t before) {
  for (auto at = sentinels_.lower_bound(from); at != sentinels_.end() && at->first < before;) {
    parts_.sentinel_pages.close(at->second, reader_.get(), at->first);
    at = sentinels_.erase(at);
  }
}

// A READ that was under way when a page was dropped brings it back; it has ended when safe has passed it.
void ReaderWindow::leave_open_again() {
  for (const uint64_t position : std::exchange(open_again_, {})) {
    if (position < high_water_ || !timeline_.holds(position) || !sentinels_.contains(position)) continue;
    if (timeline_.uses_within(timeline_.sample_at(position), safe_, high_water_)) {
      open_again_.push_back(position);
    } else {
      leave_open(position);
    }
  }
}

}  // namespace clairfs
