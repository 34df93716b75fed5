#include "plan/tracking/tracker.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace clairfs {
namespace {

// Samples that may go unseen although every open is seen: links that lead out of the dataset, repetitions.
constexpr int64_t kUnseen = 8;

// Observations in a row that lie in the next epoch and mean that the reader is there. Fewer may be strays, or
// samples of this epoch's end that come early in the next one, too.
constexpr uint32_t kEnterNext = 3;
// The same, not in a row, from which on the reader has left the rest of its epoch out. Each other observation
// forgives a part, as much as strays of 5 % never outweigh, and a rank that is still in this epoch does.
constexpr double kLeftRest = 3;
constexpr double kEarlyForgiven = 0.25;

// A piece of a file read by one of some tens of workers counts as the same observation: so many READs later,
// or kSightings opens, and so many positions beside the reorder window.
constexpr size_t kRepeatSpan = 32;

// Another open of a file by one of some workers counts as the same observation: so many opens later. They are
// a quarter of the epoch at most: a reader that leaves out the rest of it comes to most of them soon after.
constexpr int64_t kInARow = 16;

// Positions that are looked through for samples that were left out, as a multiple of those from which on they
// are missed: of every other sample twice as many would do, of one sample in eight none less.
constexpr int64_t kStretch = 4;

// Samples of the accesses that are kept for an epoch that is not known yet. It takes milliseconds to make; a
// reader without workers that finds everything in the page cache opens some tens of files in one.
constexpr size_t kMostWaiting = 1024;

// Samples that an observation out of order may be of: of 1300 bytes each, four begin in a page. With more of
// them only longer chains would tell, and each search would take longer.
constexpr size_t kMostPerRead = 4;

// A reader that reads from the page cache at full speed pauses no longer between two batches, and one that
// trains is seen at every sentinel.
constexpr Duration kEndSilence = std::chrono::seconds(5);

}  // namespace

Tracker::Tracker(uint64_t reorder_window, std::optional<Epoch> last, std::optional<uint64_t> leap)
    : last_(last),
      of_streams_(leap.has_value()),
      leap_(static_cast<int64_t>(leap.value_or(0))),
      progress_(reorder_window) {}

// What was seen before the reader was found in an epoch has its place in another one, and keeps it.
void Tracker::add_epoch(std::shared_ptr<const SequencePositions> epoch, std::optional<uint64_t> begin) {
  const MutexLock lock(mutex_);
  const Epoch number = epoch->sequence().epoch();
  const uint32_t first = epoch->sequence().first_position();
  const bool expected = epochs_.empty();
  const int64_t moved = epochs_.add(std::move(epoch), begin);
  if (expected) {
    set_epoch(number);
    progress_.begin(begin_ + first);
    found_ = begin_ + first;
  } else if (number == epoch_) {
    set_epoch(number);
    progress_.shift(moved);
    found_ += moved;
    for (Sighting& seen : lately_) {
      if (seen.position >= begin_ - moved) seen.position += moved;
    }
  }
  if (!may_be_beyond()) judge_what_waited();
  if (state_ == TrackerState::suspended) realign();
}

void Tracker::widen(uint64_t reorder_window) {
  const MutexLock lock(mutex_);
  progress_.widen(reorder_window);
  relocator_.require_all(false);  // what seemed to be left out comes later
  if (state_ == TrackerState::suspended) realign();
}

uint64_t Tracker::reorder_window() const {
  const MutexLock lock(mutex_);
  return static_cast<uint64_t>(progress_.planned_slack());
}

void Tracker::drop_epoch(Epoch epoch) {
  const MutexLock lock(mutex_);
  if (epoch != epoch_) epochs_.drop(epoch);
}

void Tracker::set_pushed(uint64_t end, uint32_t gap) {
  const MutexLock lock(mutex_);
  pushed_ = static_cast<int64_t>(end);
  gap_ = gap;
}

void Tracker::set_unseen_end(uint64_t from) {
  const MutexLock lock(mutex_);
  unseen_from_ = static_cast<int64_t>(from);
}

void Tracker::set_epoch(Epoch epoch) {
  const KnownEpoch& here = *epochs_.find(epoch);
  epoch_ = epoch;
  begin_ = here.begin;
  end_ = here.end();
  progress_.set_epoch_length(end_ - begin_);
}

bool Tracker::pushed_ahead() const {
  return pushed_ && *pushed_ > progress_.next();
}

// A reader that shows an open shows all of them, as long as nothing else was seen.
bool Tracker::shows_all(Access kind) const {
  return score_.every_open() || (kind == Access::open && score_.only_opens());
}

// Low enough to hear the reader when a stray access moved the high-water mark as far as it can.
Progress::Band Tracker::band(Access kind) const {
  int64_t unseen = kUnseen;
  if (pushed_ahead() && !shows_all(kind))
    unseen = std::max(std::min(*pushed_ - progress_.next(), 2 * gap_), kUnseen);
  return progress_.band(std::max(unseen, leap_));
}

// That a sample of the epoch lies in the band.
double Tracker::chance(Access kind) const {
  const Progress::Band in = band(kind);
  return static_cast<double>(in.high + 1 - in.low) / static_cast<double>(std::max<int64_t>(end_ - begin_, 1));
}

// The rest of an epoch may be dropped when the reader is known to be in the next.
int64_t Tracker::safe() const {
  return std::clamp(progress_.safe(), begin_, end_);
}

int64_t Tracker::next() const {
  return std::max(progress_.next(), begin_);
}

const Sighting* Tracker::seen_lately(std::span<const uint32_t> samples) const {
  const int64_t reach = static_cast<int64_t>(kRepeatSpan) + progress_.reorder_window();
  // A READ without an open may be the next use: a few samples come again soon, so it belongs to one of at
  // most half an epoch before. Where few READs are seen, the newest of them go back for epochs, so positions
  // count.
  const int64_t half = (end_ - begin_ + 1) / 2;
  const auto most_reads = std::min(kRepeatSpan, static_cast<size_t>(half));
  // Where the plan is suspended no position goes on, and no open of a short epoch would ever be news again.
  const size_t most_opens =
      state_ == TrackerState::suspended ? std::min(kSightings, static_cast<size_t>(half)) : kSightings;
  for (size_t age = 1; age <= lately_.size(); ++age) {
    const Sighting& seen = lately_[lately_.size() - age];
    const bool soon = age <= (seen.opened ? most_opens : most_reads);
    const int64_t since = progress_.next() - (seen.opened ? reach : std::min(reach, half));
    if (soon && seen.position >= since &&
        std::find(samples.begin(), samples.end(), seen.sample) != samples.end())
      return &seen;
  }
  return nullptr;
}

// The score has counted the observation already. Streams are read from front to back, so the likeliest sample
// of one is the one.
Sighting Tracker::note_distinct(std::span<const uint32_t> samples, int64_t position, Access kind) {
  Sighting sighting{samples.front(), score_.observations(), position, kind == Access::open};
  const auto others = samples.first(of_streams_ ? 1 : std::min(samples.size(), kMostPerRead)).subspan(1);
  sighting.others.assign(others.begin(), others.end());
  lately_.push_back(sighting);
  if (lately_.size() > kSightings) lately_.pop_front();
  if (state_ == TrackerState::suspended) departure_.note_after(sighting);
  return sighting;
}

// A position in the band that was not seen yet, in this epoch before the next; else one that was. Of several
// (links to one file, repetitions) the first that is due: taking a later one would move the high-water mark
// ahead of the reader, with every such sample a little more. At the end of an epoch whose samples went by
// unseen, and of a stream always, the one next to the high-water mark. A read soon after another access to
// the sample, and not far from it, belongs to it.
std::optional<Tracker::Match> Tracker::match(std::span<const uint32_t> samples, Access kind) const {
  const Progress::Band in = band(kind);
  const int64_t next = progress_.next();
  const Sighting* const piece_of = kind == Access::open ? nullptr : seen_lately(samples);
  const bool nearest = of_streams_ || (score_.observed_fraction() < 0.5 && next >= end_);
  std::optional<Match> fresh;
  std::optional<Match> again;
  const auto sooner = [due = next - progress_.reorder_window()](int64_t a, int64_t b) {
    return a >= due && b >= due ? a < b : a > b;  // what is overdue is the less likely the longer it is
  };
  for (const int64_t offset : {0, 1, -1}) {
    const KnownEpoch* const epoch = epochs_.find(epoch_.value + offset);
    if (epoch == nullptr || in.high < epoch->begin || in.low >= epoch->end()) continue;
    const bool earlier_epoch_has_it = fresh.has_value();
    for (const uint32_t sample : samples) {
      const std::span<const uint32_t> positions = epoch->order->of(sample);
      const auto first = static_cast<uint32_t>(std::max<int64_t>(in.low - epoch->begin, 0));
      for (auto at = std::lower_bound(positions.begin(), positions.end(), first);
           at != positions.end() && epoch->begin + *at <= in.high; ++at) {
        const Match here{epoch->sequence().epoch(), *at, epoch->begin + *at, sample, epoch->seen[*at]};
        if (here.repeated) {
          again = here;
        } else if (!fresh || (nearest ? std::abs(here.position - next) < std::abs(fresh->position - next)
                                      : !earlier_epoch_has_it && sooner(here.position, fresh->position))) {
          fresh = here;
        }
      }
    }
  }
  if (again && !fresh && kind == Access::open && reads_anew(samples)) return std::nullopt;
  if (piece_of == nullptr || !again) return fresh ? fresh : again;
  // The next epoch may begin with a sample that this one ended with.
  const bool begins_next = fresh && fresh->position == next && next >= end_ && !piece_of->opened;
  return begins_next ? fresh : again;
}

Tracker::Observation Tracker::observe(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  const MutexLock lock(mutex_);
  const Observation taken = take_or_wait(samples, kind, now);
  if (taken != Verdict::out_of_order) return taken;
  if (may_be_beyond()) {
    wait_for_next(samples, kind, now);
    return {Verdict::repeated};
  }
  judge_what_waited();  // was seen before this one
  return {reject(samples, kind)};
}

bool Tracker::may_be_beyond() const {
  return state_ == TrackerState::following && last_ != epoch_ && samples_waiting_ < kMostWaiting &&
         progress_.next() + progress_.reorder_window() >= end_ &&
         epochs_.find(int64_t{epoch_.value} + 1) == nullptr;
}

void Tracker::wait_for_next(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  waiting_.push_back({{samples.begin(), samples.end()}, kind, now});
  samples_waiting_ += samples.size();
}

// Of a reader that has left its plan the newest kSightings tell where it is: all would take milliseconds.
void Tracker::judge_what_waited() {
  const std::vector<Waiting> waited = std::exchange(waiting_, {});
  samples_waiting_ = 0;
  for (size_t i = 0; i < waited.size(); ++i) {
    if (state_ == TrackerState::suspended && i + kSightings < waited.size()) continue;
    const Waiting& access = waited[i];
    if (take(access.samples, access.kind, access.at) == Verdict::out_of_order)
      reject(access.samples, access.kind);
  }
}

Tracker::Observation Tracker::offer(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  const MutexLock lock(mutex_);
  return take_or_wait(samples, kind, now);
}

// The next epoch may begin with samples that this one ended with, as soon as nothing of this one is missing.
Tracker::Observation Tracker::take_or_wait(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  const Observation taken = take(samples, kind, now);
  if (taken == Verdict::repeated && kind == Access::open && may_be_beyond() && is_epoch_over())
    wait_for_next(samples, kind, now);
  return taken;
}

std::optional<uint64_t> Tracker::distance(std::span<const uint32_t> samples, Access kind) const {
  constexpr uint64_t kRepeated = uint64_t{1} << 32;  // no epoch is as long
  const MutexLock lock(mutex_);
  if (kind == Access::read_on && lies_behind_last(samples)) return 2 * kRepeated;
  const std::optional<Match> found = state_ == TrackerState::suspended ? std::nullopt : match(samples, kind);
  if (!found && seen_lately(samples) != nullptr) return 2 * kRepeated;
  if (!found) return std::nullopt;
  return static_cast<uint64_t>(std::abs(found->position - progress_.next())) +
         (found->repeated ? kRepeated : 0);
}

bool Tracker::knows(std::span<const uint32_t> samples) const {
  const MutexLock lock(mutex_);
  return epochs_.have(samples);
}

// Nothing that the reader asked for: where it is due, or in an order that goes through the file, it may have.
bool Tracker::lies_behind_last(std::span<const uint32_t> samples) const {
  if (epochs_.in_file_order(samples)) return false;
  const std::optional<Match> found = match(samples, Access::read_on);
  return !found ||
         (!found->repeated && std::abs(found->position - progress_.next()) > progress_.planned_slack());
}

Tracker::Observation Tracker::take(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  if (kind == Access::read_on && lies_behind_last(samples)) {
    ++totals_.repeated;
    return {Verdict::repeated};
  }
  if (state_ == TrackerState::suspended) {
    departure_.note_after(kind);
  } else {
    const std::optional<Match> found = match(samples, kind);
    if (found && kind != Access::open) note_read(found->position);  // also after its own open
    if (found && (found->repeated || (kind == Access::open && opened_again(*found)))) {
      ++totals_.repeated;
      if (found->repeated) return {Verdict::repeated, found->position};
      return {Verdict::repeated};
    }
    if (found) {
      accept(*found, kind, now);
      return {Verdict::in_order, found->position};
    }
  }
  if (seen_lately(samples) != nullptr) {
    ++totals_.repeated;
    return {Verdict::repeated};
  }
  return {};
}

void Tracker::accept(const Match& found, Access kind, TimePoint now) {
  const bool early = too_early(found, kind);
  stray_at_end_ = false;
  epochs_.mark_seen({found.epoch, found.in_epoch});
  if (score_.in_doubt()) departure_.note_in_order();
  score_.in_order(kind, chance(kind));
  relocator_.note_match(note_distinct({&found.sample, 1}, found.position, kind).tick);
  ++totals_.in_order;
  ++totals_.in_order_since;
  if (state_ == TrackerState::waiting) state_ = TrackerState::following;
  if (!score_.in_doubt()) departure_.note_no_doubt(totals_.in_order_since);

  const int64_t advanced = early ? 0 : progress_.note(found.position, now);
  in_next_ = found.epoch > epoch_ && !early ? in_next_ + 1 : 0;
  if (in_next_ > 0 && in_next_ >= std::min(kEnterNext, epochs_.find(found.epoch)->sequence().length()))
    enter_next();
  score_.passed(advanced);
  look_for_holes();
  if (last_ == epoch_ && progress_.next() > last_to_tell()) finish();
}

// Strays on the way to the end are none of who comes after it.
void Tracker::finish() {
  if (state_ != TrackerState::finished) score_.clear();
  state_ = TrackerState::finished;
}

// Whether an open that could be of the next epoch is one of several of this one: np.load(mmap_mode=) opens a
// file three times in a row. Of what was just opened the next epoch may have the beginning, as soon as
// nothing of this one is missing.
bool Tracker::opened_again(const Match& found) const {
  if (found.epoch <= epoch_ || !shows_all(Access::open) || !seen_in_epoch(found.sample)) return false;
  const int64_t most = std::clamp<int64_t>((end_ - begin_) / 4, 1, kInARow);
  const int64_t newest = std::min(most, static_cast<int64_t>(lately_.size()));
  const bool lately = std::any_of(lately_.end() - newest, lately_.end(), [&](const Sighting& seen) {
    return seen.opened && seen.sample == found.sample;
  });
  if (!lately) return false;
  return !is_epoch_over() || found.position >= progress_.next() + progress_.planned_slack();
}

// Whether an open of a sample that was opened before is of a reader that begins anew: the plan has ended, no
// worker is behind, and workers that open a file several times do so within a few opens.
bool Tracker::reads_anew(std::span<const uint32_t> samples) const {
  return state_ == TrackerState::finished && seen_lately(samples) == nullptr && is_epoch_over();
}

// Whether all of it was opened.
bool Tracker::is_epoch_over() const {
  const int64_t in_flight = end_ - 2 * progress_.reorder_window();
  return progress_.next() >= end_ && epochs_.unseen(std::max({in_flight, begin_, found_}), end_) == 0;
}

// Counts what is seen ahead in the next epoch. Whether that must not move the reader there yet: the epoch is
// not at its end, and had the sample already, which so was a stray access, or was opened once more. But a
// reader may leave the rest of its epoch out.
bool Tracker::too_early(const Match& found, Access kind) {
  const bool ahead = found.epoch > epoch_ && found.position >= progress_.next();
  early_ = ahead ? std::min(early_ + 1, kLeftRest) : std::max(early_ - kEarlyForgiven, 0.0);
  return ahead && early_ < kLeftRest && progress_.next() < end_ && shows_all(kind) &&
         seen_in_epoch(found.sample);
}

bool Tracker::seen_in_epoch(uint32_t sample) const {
  const KnownEpoch& here = *epochs_.find(epoch_);
  const std::span<const uint32_t> positions = here.order->of(sample);
  return std::any_of(positions.begin(), positions.end(),
                     [&here](uint32_t position) -> bool { return here.seen[position]; });
}

void Tracker::look_for_holes() {
  const auto left_out = score_.left_out(progress_.reorder_window());
  if (!left_out || state_ != TrackerState::following) return;
  if (!leaves_out()) return score_.doubt_left_out();
  departure_.begin_left_out(epochs_, epochs_.position_of(epoch_, next()), *left_out);
  relocator_.require_all();
  suspend("leaves out samples of the plan: is the job's world larger?");
}

// Whether too many samples are overdue: not seen though the reader was to open them before what it has
// opened.
bool Tracker::leaves_out() const {
  const int64_t most = progress_.reorder_window() + OrderScore::kLeftOut;
  const int64_t safe = progress_.safe();
  return 2 * epochs_.unseen(std::max(safe - kStretch * most, found_), safe) >= most;
}

void Tracker::note_read(int64_t position) {
  if (!pushed_ || position < begin_ || position >= *pushed_) return;
  if (reads_of_pushed_.size() < kSightings) reads_of_pushed_.push_back(static_cast<uint64_t>(position));
}

std::vector<uint64_t> Tracker::take_reads_of_pushed() {
  const MutexLock lock(mutex_);
  return std::exchange(reads_of_pushed_, {});
}

void Tracker::enter_next() {
  set_epoch(Epoch(epoch_.value + 1));
  progress_.enter_epoch(begin_);
  in_next_ = 0;
}

Tracker::Verdict Tracker::reject(std::span<const uint32_t> samples, Access kind) {
  const bool first = !score_.in_doubt();
  score_.out_of_order(kind);
  note_stray_at_end(samples);
  relocator_.note_stray(note_distinct(samples, progress_.next(), kind));
  ++totals_.out_of_order;
  // A reader of another order may come to the last sample early. It has not seen all of the end then.
  if (state_ == TrackerState::finished) past_end_ = !shows_all(kind) || is_epoch_over();
  const bool after_end = shown() == TrackerState::finished && past_end_;
  ++(after_end ? totals_.after_end : totals_.out_of_order_since);

  if (first) {
    const PlanPosition at = epochs_.position_of(epoch_, next());
    departure_.begin(epochs_, samples.front(), at, score_.observations());
  }
  departure_.note_out_of_order();
  const bool over =
      score_.fails(pushed_ahead(), progress_.reorder_window()) && state_ != TrackerState::suspended;
  if ((relocator_.is_due() || over) && realign()) return Verdict::in_order;
  if (over && state_ != TrackerState::suspended) suspend("matches no known order");
  return Verdict::out_of_order;
}

// Looks for the reader in all known epochs.
bool Tracker::realign() {
  const auto found = relocator_.find(epochs_, state_, {progress_.planned_slack(), gap_, next()});
  if (!found) return false;
  if (state_ == TrackerState::following && departure_.flutters(score_.observations())) {
    suspend("matches no known order");
    return false;
  }
  jump(*found);
  return true;
}

void Tracker::jump(const Found& found) {
  const auto& [epoch, chain] = found;
  departure_.note_found({epoch, chain.top}, describe_jump(found));
  ++totals_.realignments;
  totals_.in_order_since = totals_.out_of_order_since = 0;
  unseen_from_.reset();
  stray_at_end_ = false;
  set_epoch(epoch);
  progress_.jump(begin_ + chain.top, begin_ + chain.second);
  found_ = begin_ + chain.low;
  state_ = TrackerState::following;
  in_next_ = 0;
  early_ = 0;
  score_.clear();
  // What was seen before is read again after a restart.
  epochs_.forget_seen();
  for (const Sighting& stray : relocator_.strays()) {
    if (stray.tick < chain.since) continue;
    std::vector<uint32_t> samples = stray.others;
    samples.push_back(stray.sample);
    for (const uint32_t sample : samples) {
      for (const uint32_t position : epochs_.find(epoch)->order->of(sample)) {
        if (position >= chain.low && position <= chain.top) epochs_.mark_seen({epoch, position});
      }
    }
  }
  relocator_.clear();
}

// A plan that has finished still shows as that (shown()): its reader has lost nothing.
void Tracker::suspend(std::string hint) {
  was_finished_ = state_ == TrackerState::finished;
  state_ = TrackerState::suspended;
  if (!was_finished_) ++totals_.suspensions;
  departure_.note_suspended(std::move(hint), score_.observations(), lately_);
  score_.forget_holes();
}

// The position of the last sample of the epoch that can be seen.
int64_t Tracker::last_to_tell() const {
  return std::min(end_, unseen_from_.value_or(end_)) - 1;
}

void Tracker::note_stray_at_end(std::span<const uint32_t> samples) {
  const int64_t last = last_to_tell();
  silent_.reset();
  stray_at_end_ = false;
  if (last_ != epoch_ || state_ != TrackerState::following || last < begin_) return;
  if (!pushed_ || *pushed_ <= last) return;
  const SequencePositions& order = *epochs_.find(epoch_)->order;
  const auto in_epoch = static_cast<uint32_t>(last - begin_);
  stray_at_end_ = std::any_of(samples.begin(), samples.end(), [&order, in_epoch](uint32_t sample) {
    const std::span<const uint32_t> positions = order.of(sample);
    return std::find(positions.begin(), positions.end(), in_epoch) != positions.end();
  });
}

std::optional<Duration> Tracker::look_for_unseen_end(TimePoint now) {
  const MutexLock lock(mutex_);
  if (!stray_at_end_ || state_ != TrackerState::following) return std::nullopt;
  silent_ = silent_.value_or(now);
  const Duration left = kEndSilence - (now - *silent_);
  if (left > Duration::zero()) return left;
  stray_at_end_ = false;
  progress_.jump(last_to_tell(), last_to_tell());
  finish();
  return std::nullopt;
}

TrackerState Tracker::shown() const {
  const bool left_after_end = state_ == TrackerState::suspended && was_finished_;
  return left_after_end ? TrackerState::finished : state_;
}

TrackerState Tracker::state() const {
  const MutexLock lock(mutex_);
  return shown();
}

bool Tracker::is_left() const {
  const MutexLock lock(mutex_);
  return state_ == TrackerState::suspended;
}

bool Tracker::left_for_good(uint64_t samples) const {
  const MutexLock lock(mutex_);
  return shown() == TrackerState::suspended && departure_.for_good(samples, score_.observations());
}

bool Tracker::is_followed() const {
  const MutexLock lock(mutex_);
  return state_ == TrackerState::following && departure_.certain();
}

uint64_t Tracker::position() const {
  const MutexLock lock(mutex_);
  return static_cast<uint64_t>(safe());
}

uint64_t Tracker::high_water() const {
  const MutexLock lock(mutex_);
  return static_cast<uint64_t>(next());
}

Epoch Tracker::high_water_epoch() const {
  const MutexLock lock(mutex_);
  return epochs_.position_of(epoch_, next()).epoch;
}

bool Tracker::opened(uint64_t position) const {
  const MutexLock lock(mutex_);
  const auto at = static_cast<int64_t>(position);
  return at < found_ || epochs_.seen(at);
}

bool Tracker::seen_to_the_end() const {
  const MutexLock lock(mutex_);
  for (int64_t at = std::max({begin_, found_, end_ - progress_.reorder_window()}); at < end_; ++at) {
    if (!epochs_.seen(at)) return false;
  }
  return true;
}

std::vector<Sighting> Tracker::evidence() const {
  const MutexLock lock(mutex_);
  return departure_.evidence(lately_);
}

std::vector<Sighting> Tracker::around_suspension() const {
  const MutexLock lock(mutex_);
  return departure_.around_suspension();
}

bool Tracker::wants_diagnosis() const {
  const MutexLock lock(mutex_);
  return state_ == TrackerState::suspended && departure_.wants_diagnosis(score_.observations());
}

bool Tracker::set_hint(std::string hint) {
  const MutexLock lock(mutex_);
  return departure_.set_hint(std::move(hint));
}

}  // namespace clairfs
