// Fetching ahead: the units of what the reader needs next, and what fills the tiers meanwhile.
#include <algorithm>
#include <iterator>
#include <utility>

#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Samples whose chunks are known but not asked for yet: enough to go on with whenever memory comes free.
constexpr size_t kUnitsWaiting = 64;

// Samples looked at for filling in one go before everything else gets its turn: a millisecond where all of
// them are in a tier already.
constexpr uint64_t kFillsPerStep = 4096;

// How long NVMe is given to write before it is asked again whether it has caught up, since nothing rings
// then: some chunks. Later as long as it has taken already: half of what it had to write is left then.
constexpr auto kCatchUpPeriod = std::chrono::milliseconds(5);

// How long it may take until it is noticed that a disk hangs, since nothing rings then.
constexpr auto kHangPeriod = std::chrono::seconds(1);

// Seconds a sample that a reader is taken to need at most, so that one that has paused is not put off for
// ever behind others.
constexpr double kSlowestReader = 0.1;

// The same of one whose pace is not known yet. The nodes of a job begin tens of milliseconds apart, and homes
// serve them all by deadline: so each gets its first batch before any gets its window full.
constexpr double kUnknownReader = 1e-2;

// Seconds from now to the furthest deadline. One holds for good, and those after it are no earlier. So a
// reader that seemed slow, since it waited for its first samples, would come behind all others for as long as
// its whole window seemed to last: in a job of four nodes for 4 s.
constexpr double kFurthestDeadline = 1;

}  // namespace

// False when the window is full.
bool ReaderWindow::issue_fetches(uint64_t budget) {
  budget_ = budget;
  bool full = false;
  while (fetched_ < timeline_.end() && units_.size() < asked_ + kUnitsWaiting) {
    const uint64_t bytes = cost_of(fetched_);
    const bool passed = fetched_ < high_water_;  // what other workers have still to open
    // A sample larger than the budget is left to the reader, when nothing else is in the window: what lies
    // before `staged` counts as handed on.
    const bool fits = passed || bytes_ + bytes <= budget || (bytes > budget && bytes_ == 0);
    const bool unread = unread_before(fetched_);
    const bool stays = !plan_.keeps_all && plan_.ledger->stays(timeline_.sample_at(fetched_));
    const bool far = stays && !passed && fetched_ - high_water_ >= most_ahead();
    // When everything stays in the page cache, staging is leaving sentinels open, once the reader has passed.
    // So it does where a stream has a whole epoch in its window: the last part of it is to tell of its end.
    held_back_ = !fits;
    full = !fits || far || ((plan_.keeps_all || reader_->streams() > 0) && unread);
    if (full) break;
    const bool there = staged_elsewhere(timeline_.sample_at(fetched_));
    add_units(fetched_, bytes > budget || unread || there);
    if (!passed) costs_.emplace_back(fetched_, bytes);
    if (!passed) bytes_ += bytes;
    if (!passed && bytes > budget) oversize_bytes_ = bytes;
    kept_run_ = stays ? kept_run_ + 1 : 0;
    longest_kept_run_ = std::max(longest_kept_run_, kept_run_);
    hold_until(++fetched_);
  }
  // What has been asked for stays pinned until it is pushed, in order: so its bytes must always fit what
  // transit memory is certain to provide.
  for (; asked_ < units_.size(); ++asked_) {
    const auto& unit = units_[asked_];
    if (opened(unit->position)) unit->chunk.reset();
    if (!unit->chunk) continue;
    // Never before what was asked for already: pushing is in order, so a later sample that overtakes is of no
    // use and holds memory.
    deadline_ = std::max(deadline_, due(unit->position));
    const StagedUnit* const before = asked_ > 0 ? units_[asked_ - 1].get() : nullptr;
    if (!ask(unit, before, deadline_)) break;
    if (before == nullptr || unit->in_flight != before->in_flight) asked_bytes_ += unit->in_flight->bytes;
  }
  return !full;
}

// Whether the reader has an earlier use of the sample at `position` still before it. Its pages are there
// then or on their way, and pushing them again would fill a sentinel that is to tell of that use.
bool ReaderWindow::unread_before(uint64_t position) const {
  return timeline_.uses_within(timeline_.sample_at(position), high_water_, position);
}

// Whether another reader of the plan still has before it what was pushed of the sample for it.
bool ReaderWindow::staged_elsewhere(uint32_t sample) const {
  return std::any_of(plan_.windows.begin(), plan_.windows.end(), [&](const auto& other) {
    return other.get() != this && other->timeline_.uses_within(sample, other->safe_, other->staged_);
  });
}

// What the sample at `position` consists of: a unit for each chunk.
std::vector<std::shared_ptr<StagedUnit>> ReaderWindow::units_of(uint64_t position) const {
  std::vector<std::shared_ptr<StagedUnit>> units;
  for (const PageRange& range : plan_.ledger->pages_of(timeline_.sample_at(position)))
    parts_.add_units_of(range, position, units);
  for (const auto& unit : units) unit->first = unit == units.front();
  if (!units.empty()) units.back()->last = true;
  return units;
}

// Where a record begins in the pages that are pushed for the one before it, those before bring them: records
// in the order of the file are fetched and pushed end to end.
void ReaderWindow::leave_out_shared_pages(std::vector<std::shared_ptr<StagedUnit>>& units) const {
  // On their way, or in the page cache.
  const bool there = newest_ && newest_position_ >= dropped_;
  if (!there || units.empty()) return;
  const PageRange& before = *newest_;
  StagedUnit& next = *units.front();
  if (before.file != next.file || next.begin < before.begin || next.begin >= before.end) return;
  next.begin = std::min(before.end, next.end);
  if (next.begin < next.end) return;
  units.erase(units.begin());
  if (!units.empty()) units.front()->first = true;
}

// An earlier plan may have left the sample in the page cache, or a reader without a plan. Where samples share
// files that is not looked at, as in drop_until().
void ReaderWindow::note_left_there(uint64_t position) {
  const uint32_t sample = timeline_.sample_at(position);
  if (!plan_.keeps_all || reader_->index().shares_files() || plan_.ledger->stays(sample)) return;
  if (is_whole(position).value_or(false)) plan_.ledger->note_whole(sample);
}

void ReaderWindow::add_units(uint64_t position, bool skip) {
  if (!skip) note_left_there(position);
  skip = skip || plan_.ledger->stays(timeline_.sample_at(position));
  auto units = skip ? std::vector<std::shared_ptr<StagedUnit>>() : units_of(position);
  const bool has_bytes = !units.empty();
  leave_out_shared_pages(units);
  if (units.empty()) {
    units.push_back(std::make_shared<StagedUnit>(position, parts_.shared));
    units.back()->covered = has_bytes;
  } else {
    const StagedUnit& newest = *units.back();
    newest_ = PageRange{newest.file, newest.needs_from, newest.end};
    newest_position_ = position;
  }
  std::move(units.begin(), units.end(), std::back_inserter(units_));
}

// When the reader will be at `position`: the deadline of its fetches, which orders those of several plans.
uint64_t ReaderWindow::due(uint64_t position) const {
  const double rate = reader_->tracker().status().samples_per_second;
  const auto samples = static_cast<double>(position - std::min(position, high_water_));
  const double each = rate > 0 ? std::min(1 / rate, kSlowestReader) : kUnknownReader;
  const std::chrono::duration<double> left(std::min(samples * each, kFurthestDeadline));
  return deadline_at(parts_.now + std::chrono::duration_cast<Duration>(left));
}

bool ReaderWindow::ask(const std::shared_ptr<StagedUnit>& unit, const StagedUnit* before, uint64_t deadline) {
  const uint64_t length = unit->end - unit->begin;
  const uint64_t chunk_bytes = round_to_pages(parts_.catalog.range(*unit->chunk).length);
  const Use use{reader_->order(), unit->position};
  const uint64_t bytes = round_to_pages(parts_.cache.bytes_acquired(unit->file, unit->begin, length, use));
  const bool together = bytes == chunk_bytes && before != nullptr && before->chunk == unit->chunk &&
                        before->in_flight && before->in_flight->bytes == chunk_bytes;
  const uint64_t in_flight = parts_.shared->in_flight_bytes.load();
  const uint64_t most = parts_.cache.staging_share();
  const uint64_t part = most / plan_.windows.size();
  const bool room =
      in_flight == 0 || (in_flight + bytes <= most && (asked_bytes_ == 0 || asked_bytes_ + bytes <= part));
  if (!together && !room) return false;
  unit->in_flight = together ? before->in_flight : std::make_shared<InFlight>(parts_.shared, bytes);
  parts_.cache.acquire_range(
      unit->file, unit->begin, length, {Priority::Kind::prefetch, deadline},
      [unit](Result<AcquiredChunk> chunk) {
        if (chunk) {
          unit->start = chunk->start;
          unit->data = std::move(chunk->data);
        } else {
          unit->failed = true;  // the reader will get the error itself
        }
        unit->arrived = true;
        unit->shared->alarm.ring();
      },
      use);
  return true;
}

void ReaderWindow::pop_unit() {
  if (asked_ > 0) {
    --asked_;
    const auto& in_flight = units_.front()->in_flight;
    const bool last = asked_ == 0 || units_[1]->in_flight != in_flight;
    if (in_flight && last) asked_bytes_ -= in_flight->bytes;
  }
  units_.pop_front();
}

// Nothing from `from` on is to be pushed. What is on its way comes in vain.
void ReaderWindow::forget_units(uint64_t from) {
  for (; !units_.empty() && units_.back()->position >= from; units_.pop_back()) {
    if (asked_ < units_.size()) continue;
    --asked_;
    const auto& in_flight = units_.back()->in_flight;
    const bool first = asked_ == 0 || units_[asked_ - 1]->in_flight != in_flight;
    if (in_flight && first) asked_bytes_ -= in_flight->bytes;
  }
}

// What has arrived is pinned until all before it has, which may wait for memory that a disk keeps which
// hangs: so would readers. Then what was asked for last is given back, and asked for again when there is
// room. Who has most gives first, so that each keeps what its reader needs next.
void Staging::give_memory_back(const std::map<std::string, std::shared_ptr<StagedPlan>>& plans) {
  if (parts_.shared->in_flight_bytes == 0) return;
  parts_.look_again_within(kHangPeriod);
  const uint64_t most = parts_.cache.staging_share();
  while (parts_.shared->in_flight_bytes > most) {
    ReaderWindow* largest = nullptr;
    for (const auto& entry : plans) {
      for (const auto& window : entry.second->windows) {
        const bool larger = largest == nullptr || window->asked_bytes() > largest->asked_bytes();
        if (window->has_asked() && larger) largest = window.get();
      }
    }
    if (largest == nullptr) return;
    largest->unask_last();
  }
}

void ReaderWindow::unask_last() {
  --asked_;
  auto& unit = units_[asked_];
  const std::shared_ptr<InFlight> in_flight = std::move(unit->in_flight);
  if (!in_flight) return;
  const bool first = asked_ == 0 || units_[asked_ - 1]->in_flight != in_flight;
  if (first) asked_bytes_ -= in_flight->bytes;
  unit = unit->anew();
}

// The next sample that tiers may be filled with; nothing: all have been. Samples come in the order of their
// use, but records in that of their numbers, which is mostly that of their file: nearly all chunks of a file
// are used in the first part of an epoch, and the source reads chunks that follow one another at once.
std::optional<uint32_t> ReaderWindow::next_to_fill() {
  const uint64_t end = timeline_.end();
  filled_ = std::max(filled_, fetched_);
  if (filled_ >= end) return std::nullopt;
  if (!plan_.fills_in_file_order) return timeline_.sample_at(filled_);
  if (records_filled_ == 0) fills_until_ = end;
  if (records_filled_ < reader_->index().size()) return records_filled_;
  records_filled_ = 0;
  filled_ = std::exchange(fills_until_, end);  // uses that became known meanwhile take another round
  return filled_ < end ? std::optional(records_filled_) : std::nullopt;
}

// Whether so much is on its way into tiers that the sample has to wait. One more at the end is what NVMe
// would refuse when it is just not behind. Ranks have equal parts of it, or what the first uses last would be
// filled in before what the next uses soon.
bool ReaderWindow::fills_enough(uint32_t sample) const {
  const uint64_t bytes_next = page_bytes(reader_->index(), sample);
  const uint64_t most = 2 * parts_.most_in_flight / kFillDivisor;
  const auto too_much = [bytes_next](uint64_t under_way, uint64_t limit) {
    return under_way > 0 && under_way + bytes_next > limit;
  };
  return too_much(parts_.shared->fill_bytes, most) || too_much(*fill_bytes_, most / plan_.windows.size());
}

// Asks for the chunks of the sample that no tier has, up to the first for which there is no room: then false.
bool ReaderWindow::fill_with(uint32_t sample) const {
  const uint64_t deadline = plan_.fills_in_file_order ? sample : filled_ - high_water_;
  bool room = true, behind = false;
  for_each_chunk(reader_->index(), parts_.catalog, sample, [&](ChunkId chunk) {
    if (parts_.cache.tier_of(chunk) != Tier::none) return;
    const uint64_t length = parts_.catalog.range(chunk).length;
    const TierSpace space = parts_.cache.space();
    behind = behind || space.nvme_behind;
    room = room && FirstTouchPolicy::tier(length, space) != Tier::none;
    if (!room || !parts_.cache.would_keep(chunk, space)) return;
    const uint64_t bytes = round_to_pages(length);
    parts_.shared->fill_bytes.fetch_add(bytes);
    fill_bytes_->fetch_add(bytes);
    parts_.cache.acquire(
        chunk, {Priority::Kind::background, deadline},
        [shared = parts_.shared, filling = fill_bytes_, bytes](const Result<AcquiredChunk>&) {
          filling->fetch_sub(bytes);
          shared->fill_bytes.fetch_sub(bytes);
          shared->alarm.ring();
        });
  });
  if (!room && behind) {
    parts_.behind = true;
    parts_.behind_since = parts_.behind_since.value_or(parts_.now);
    parts_.look_again_within(
        std::clamp<Duration>(parts_.now - *parts_.behind_since, kCatchUpPeriod, kHangPeriod));
  }
  return room;
}

// Uses the source's idle time: chunks beyond the window go into tiers that have free space. True if there is
// more to do at once.
bool ReaderWindow::fill_tiers() {
  const bool in_file_order = plan_.fills_in_file_order;
  uint64_t n = 0;
  for (auto next = next_to_fill(); next; next = next_to_fill(), ++n) {
    if (n == kFillsPerStep) return true;
    const uint32_t sample = *next;
    const bool used = !in_file_order || timeline_.uses_within(sample, fetched_, timeline_.end());
    if (used && (fills_enough(sample) || !fill_with(sample))) return false;
    ++(in_file_order ? records_filled_ : filled_);
  }
  return false;
}

}  // namespace clairfs
