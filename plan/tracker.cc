#include "plan/tracker.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace clairfs {
namespace {

// Score at which a plan is suspended. With sentinels alone, hundreds of samples pass between two observations
// in order (the workers reach theirs together), and strays of 5 % among them must not add up.
constexpr double kSparseLimit = 40;
// With every open seen, 5 % of strays are outweighed at once: the score passes 12 once in 10^14 opens.
constexpr double kOpenLimit = 12;
// What an observation in order takes away if every open is seen; strays of 5 %, and a folder that somebody
// reads meanwhile, must not add up, and a reader that has half of its samples in common with the plan (half
// the world size) must.
constexpr double kCredit = 0.5;

// Positions over which visibility is measured, and observations after which the kind of them tells whether
// every open is seen.
constexpr double kVisibilitySpan = 256;
constexpr double kEveryOpen = 16;

// Samples that may go unseen although every open is seen: links that lead out of the dataset, repetitions.
constexpr int64_t kUnseen = 8;

// With every open seen, positions passed over beyond slack that mean that the reader leaves samples out
// (twice the world size); one in ten observations forgives one.
constexpr double kHoles = 32;
constexpr double kForgiven = 0.1;

// Distinct observations after a suspension, when all of kSightings are from after the pages of what was
// pushed were dropped: that takes milliseconds.
constexpr uint64_t kSeenWhole = 2 * kSightings;

// Opens in a row from before position() that show the front to have been a stray access, not the reader.
constexpr uint32_t kRetreat = 8;
// Late opens, less a quarter for every one that is not, from which on they are ranks that have drifted apart.
constexpr double kDrift = 3;

// Observations in a row that lie in the next epoch and mean that the reader is there. Fewer may be strays, or
// samples of this epoch's end that come early in the next one, too.
constexpr uint32_t kEnterNext = 3;

// A piece of a file read by one of some tens of workers counts as the same observation.
constexpr size_t kRepeatSpan = 32;

// Searches for the reader come once in so many observations out of order.
constexpr uint64_t kSearchEvery = 4;

// The rate is averaged over about so many samples; a pause counts as at most kPause times what they took.
constexpr double kRateSamples = 256;
constexpr double kPause = 8;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

std::string_view to_string(TrackerState state) {
  switch (state) {
    case TrackerState::waiting:
      return "waiting";
    case TrackerState::following:
      return "following";
    case TrackerState::suspended:
      return "suspended";
    case TrackerState::finished:
      return "finished";
  }
  return "unknown";
}

Tracker::Tracker(uint64_t slack, std::optional<Epoch> last)
    : plain_slack_(std::max<int64_t>(static_cast<int64_t>(slack), 1)), last_(last), slack_(plain_slack_) {}

void Tracker::add_epoch(std::shared_ptr<const SequencePositions> epoch) {
  const MutexLock lock(mutex_);
  const Epoch number = epoch->sequence().epoch();
  if (epochs_.empty()) {
    epoch_ = number;
    front_ = confirmed_ = int64_t{epoch->sequence().first_position()} - 1;
  }
  const uint32_t length = epoch->sequence().length();
  epochs_.try_emplace(number, Known{std::move(epoch), std::vector<bool>(length)});
  if (state_ == TrackerState::suspended) realign();
}

void Tracker::drop_epoch(Epoch epoch) {
  const MutexLock lock(mutex_);
  if (epoch != epoch_) epochs_.erase(epoch);
}

void Tracker::set_pushed(PlanPosition end, uint32_t gap) {
  const MutexLock lock(mutex_);
  pushed_ = end;
  gap_ = gap;
}

int64_t Tracker::length() const {
  const auto at = epochs_.find(epoch_);
  return at == epochs_.end() ? 0 : at->second.order->sequence().length();
}

// The current epoch (0), the one before (-1) or the next (1), if it is known.
Tracker::Known* Tracker::known(int64_t offset) {
  const int64_t number = int64_t{epoch_.value} + offset;
  const auto at = number < 0 ? epochs_.end() : epochs_.find(Epoch(static_cast<uint32_t>(number)));
  return at == epochs_.end() ? nullptr : &at->second;
}

int64_t Tracker::pushed_ahead() const {
  if (!pushed_) return 0;
  int64_t end = pushed_->position;
  if (pushed_->epoch < epoch_) return 0;
  if (pushed_->epoch > epoch_) {
    end += length();
    for (uint32_t e = epoch_.value + 1; e < pushed_->epoch.value; ++e) {
      const auto at = epochs_.find(Epoch(e));
      if (at == epochs_.end()) break;
      end += at->second.order->sequence().length();
    }
  }
  return std::max<int64_t>(end - (front_ + 1), 0);
}

// With the ioctl of an open, each access in order begins with one.
bool Tracker::every_open() const {
  if (recent_seen_ >= kEveryOpen) return recent_opens_ >= 0.9 * recent_seen_;
  return tick_ >= static_cast<uint64_t>(kEveryOpen) && first_opens_ >= 0.9 * static_cast<double>(tick_);
}

// Low enough to hear the reader when a stray access moved the front as far as it can.
Tracker::Band Tracker::band() const {
  const int64_t unseen = every_open() ? kUnseen : std::max(std::min(pushed_ahead(), 2 * gap_), kUnseen);
  const int64_t leap = plain_slack_ + unseen;
  return {front_ + 1 - slack_ - leap, front_ + leap};
}

bool Tracker::seen_lately(std::span<const uint32_t> samples) const {
  const auto newest = lately_.end() - static_cast<std::ptrdiff_t>(std::min(lately_.size(), kRepeatSpan));
  return std::any_of(newest, lately_.end(), [&](const Sighting& seen) {
    return std::find(samples.begin(), samples.end(), seen.sample) != samples.end();
  });
}

void Tracker::note_distinct(uint32_t sample, Access kind) {
  ++tick_;
  if (kind == Access::open) first_opens_ += 1;
  lately_.push_back({sample, tick_});
  if (lately_.size() > kSightings) lately_.pop_front();
}

int64_t Tracker::safe_position() const {
  return confirmed_ + 1 - slack_;
}

PlanPosition Tracker::place(int64_t position) const {
  const int64_t end = length();
  if (position >= end && epochs_.contains(Epoch(epoch_.value + 1))) {
    return {Epoch(epoch_.value + 1), static_cast<uint32_t>(position - end)};
  }
  return {epoch_, static_cast<uint32_t>(std::clamp<int64_t>(position, 0, end))};
}

// A position in the band that was not seen yet, in this epoch before the next; else one that was. Of several
// (links to one file, repetitions) the first that is due: taking a later one would move the front ahead of
// the reader, with every such sample a little more. At the end of an epoch whose samples went by unseen the
// one next to the front. A read soon after another access to the sample, and not far from it, belongs to it.
std::optional<Tracker::Match> Tracker::match(std::span<const uint32_t> samples, Access kind) {
  const Band in = band();
  const bool piece = kind == Access::read && seen_lately(samples);
  std::optional<Match> fresh;
  std::optional<Match> again;
  const bool at_end = visible() < 0.5 && front_ + 1 >= length();
  const auto distance = [next = front_ + 1](int64_t position) { return std::abs(position - next); };
  const auto sooner = [due = front_ + 1 - slack_](int64_t a, int64_t b) {
    return a >= due && b >= due ? a < b : a > b;  // what is overdue is the less likely the longer it is
  };
  for (const int64_t offset : {0, 1, -1}) {
    const Known* const epoch = known(offset);
    if (epoch == nullptr) continue;
    const int64_t size = epoch->order->sequence().length();
    const int64_t start = offset == 0 ? 0 : offset > 0 ? length() : -size;
    const bool earlier_epoch_has_it = fresh.has_value();
    if (in.high < start || in.low >= start + size) continue;
    for (const uint32_t sample : samples) {
      const std::span<const uint32_t> positions = epoch->order->of(sample);
      const auto first = static_cast<uint32_t>(std::max<int64_t>(in.low - start, 0));
      for (auto at = std::lower_bound(positions.begin(), positions.end(), first);
           at != positions.end() && start + *at <= in.high; ++at) {
        const int64_t position = start + *at;
        if (epoch->seen[*at]) {
          again = Match{position, sample, true};
        } else if (!fresh || (at_end ? distance(position) < distance(fresh->position)
                                     : !earlier_epoch_has_it && sooner(position, fresh->position))) {
          fresh = Match{position, sample, false};
        }
      }
    }
  }
  return fresh && !(piece && again) ? fresh : again;
}

Tracker::Verdict Tracker::observe(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  const MutexLock lock(mutex_);
  const Verdict verdict = take(samples, kind, now);
  return verdict == Verdict::out_of_order ? reject(samples.front(), kind) : verdict;
}

Tracker::Verdict Tracker::offer(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  const MutexLock lock(mutex_);
  return take(samples, kind, now);
}

Tracker::Verdict Tracker::take(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  if (state_ != TrackerState::suspended) {
    const std::optional<Match> found = match(samples, kind);
    if (found && kind == Access::read) note_read(found->position);  // also after its own open
    if (found && found->repeated) {
      ++totals_.repeated;
      return Verdict::repeated;
    }
    if (found) {
      accept(*found, kind, now);
      return Verdict::in_order;
    }
  }
  if (seen_lately(samples)) {
    ++totals_.repeated;
    return Verdict::repeated;
  }
  return Verdict::out_of_order;
}

void Tracker::accept(const Match& found, Access kind, TimePoint now) {
  const int64_t position = found.position;
  const int64_t end = length();
  const int64_t offset = position < 0 ? -1 : position >= end ? 1 : 0;
  Known& epoch = *known(offset);
  const int64_t start = offset == 0 ? 0 : offset > 0 ? end : -int64_t{epoch.order->sequence().length()};
  epoch.seen[static_cast<size_t>(position - start)] = true;

  note_distinct(found.sample, kind);
  ++totals_.in_order;
  matched_ticks_.push_back(tick_);
  if (matched_ticks_.size() > kSightings) matched_ticks_.pop_front();
  recent_seen_ += 1;
  if (kind == Access::open) recent_opens_ += 1;
  if (state_ == TrackerState::waiting) state_ = TrackerState::following;

  if (score_ > 0) {
    ++run_.in_order;
    score_ = std::max(score_ - credit(), 0.0);
  }
  note_late(position);
  const int64_t passed = std::max<int64_t>(position - front_, 0);
  if (position > front_) {
    note_advance(position - front_, now);
    confirmed_ = front_;
    front_ = position;
  } else {
    confirmed_ = std::max(confirmed_, position);
  }
  in_next_ = offset > 0 ? in_next_ + 1 : 0;
  if (offset > 0 && in_next_ >= std::min(kEnterNext, epoch.order->sequence().length())) enter_next();
  note_holes(passed);
  if (last_ == epoch_ && front_ + 1 >= length()) state_ = TrackerState::finished;
}

void Tracker::note_read(int64_t position) {
  if (!pushed_ || position < 0 || place(position) >= *pushed_) return;
  if (reads_of_pushed_.size() < kSightings) reads_of_pushed_.push_back(place(position));
}

std::vector<PlanPosition> Tracker::take_reads_of_pushed() {
  const MutexLock lock(mutex_);
  return std::exchange(reads_of_pushed_, {});
}

// Tells ranks that drifted apart (late opens among others) from a front that never was (late opens alone).
void Tracker::note_late(int64_t position) {
  totals_.longest_stray =
      std::max(totals_.longest_stray, static_cast<uint64_t>(std::max<int64_t>(front_ - position, 0)));
  if (position > front_ - slack_) {
    if (late_score_ >= kDrift) slack_ = std::max(slack_, front_ + 1 - late_low_);
    late_score_ = std::max(late_score_ - 0.25, 0.0);
    late_in_a_row_ = 0;
    return;
  }
  late_low_ = late_score_ == 0 ? position : std::min(late_low_, position);
  late_top_ = late_in_a_row_ == 0 ? position : std::max(late_top_, position);
  late_score_ += 1;
  if (++late_in_a_row_ < kRetreat) return;
  front_ = confirmed_ = late_top_;
  late_in_a_row_ = 0;
  late_score_ = 0;
}

void Tracker::note_advance(int64_t positions, TimePoint now) {
  const auto count = static_cast<double>(positions);
  totals_.passed += static_cast<uint64_t>(positions);
  recent_passed_ += count;
  if (recent_passed_ > kVisibilitySpan) {
    const double keep = kVisibilitySpan / 2 / recent_passed_;
    recent_passed_ *= keep;
    recent_seen_ *= keep;
    recent_opens_ *= keep;
  }
  if (advanced_at_ && now > *advanced_at_) {
    double each = seconds(now - *advanced_at_) / count;
    if (seconds_per_sample_ > 0) {
      each = std::min(each, kPause * seconds_per_sample_);
      const double weight = 1 - std::exp(-count / kRateSamples);
      seconds_per_sample_ += weight * (each - seconds_per_sample_);
    } else {
      seconds_per_sample_ = each;
    }
  }
  advanced_at_ = now;
}

void Tracker::enter_next() {
  const int64_t end = length();
  epoch_ = Epoch(epoch_.value + 1);
  front_ -= end;
  confirmed_ = std::max<int64_t>(confirmed_ - end, -1);
  slack_ = plain_slack_ + (slack_ - plain_slack_) / 2;
  late_low_ -= end;
  late_top_ -= end;
  in_next_ = 0;
}

double Tracker::visible() const {
  return std::min((recent_seen_ + 1) / (recent_passed_ + 1), 1.0);
}

double Tracker::credit() const {
  return std::min(kCredit / visible(), kSparseLimit);
}

double Tracker::limit() const {
  // With nothing pushed reads are as good.
  const bool every_read = pushed_ahead() == 0 && recent_seen_ >= kEveryOpen &&
                          2 * recent_seen_ + static_cast<double>(slack_) >= recent_passed_;
  return every_open() || every_read ? kOpenLimit : kSparseLimit;
}

void Tracker::begin_run(uint32_t sample) {
  run_ = Divergence();
  run_since_ = tick_;
  run_.at = place(front_ + 1);
  run_.seen = sample;
  const auto at = epochs_.find(run_.at.epoch);
  if (at != epochs_.end() && run_.at.position < at->second.order->sequence().length()) {
    run_.expected = at->second.order->sequence().sample_at(run_.at.position);
  }
}

// A correct reader comes back to what it passed over.
void Tracker::note_holes(int64_t passed) {
  holes_ = every_open() ? std::max(holes_ + static_cast<double>(passed) - 1 - kForgiven, 0.0) : 0;
  if (holes_ <= static_cast<double>(slack_) + kHoles || state_ != TrackerState::following) return;
  begin_run(0);
  run_.seen = run_.expected;
  run_since_ = 0;
  thinned_ = true;
  suspend("leaves out samples of the plan: is the job's world larger?");
}

Tracker::Verdict Tracker::reject(uint32_t sample, Access kind) {
  note_distinct(sample, kind);
  sightings_.push_back({sample, tick_});
  if (sightings_.size() > kSightings) sightings_.pop_front();
  ++totals_.out_of_order;

  if (score_ == 0) begin_run(sample);
  if (!totals_.first_difference) totals_.first_difference = run_;
  score_ += 1;
  ++run_.out_of_order;
  const bool over = score_ >= limit() && state_ != TrackerState::suspended;
  if (++since_search_ >= kSearchEvery || over) {
    since_search_ = 0;
    if (realign()) return Verdict::in_order;
  }
  if (over && state_ != TrackerState::finished) suspend("matches no known order");
  return Verdict::out_of_order;
}

// Whether nothing is left out where opens stray no more: slack inside the stretch that was seen.
bool Tracker::reads_all(const SequencePositions& order, const Chain& chain) const {
  constexpr int64_t kEnough = 8;
  std::vector<int64_t> seen;
  for (const Sighting& sighting : sightings_) {
    for (const uint32_t position : order.of(sighting.sample)) {
      if (position <= chain.top &&
          position + 2 * kSightings + 2 * static_cast<uint64_t>(plain_slack_) > chain.top) {
        seen.push_back(position);
      }
    }
  }
  if (seen.empty()) return false;
  const int64_t low = *std::min_element(seen.begin(), seen.end()) + plain_slack_;
  const int64_t high = int64_t{chain.top} - plain_slack_;
  const auto inside =
      std::count_if(seen.begin(), seen.end(), [&](int64_t p) { return p >= low && p <= high; });
  return high - low >= kEnough && 4 * inside >= 3 * (high - low + 1);
}

// Looks for the reader in all known epochs.
bool Tracker::realign() {
  const std::vector<Sighting> seen(sightings_.begin(), sightings_.end());
  std::optional<Chain> best;
  Epoch where;
  for (const auto& [number, epoch] : epochs_) {
    const auto positions_of = [&order = *epoch.order](uint32_t sample, std::vector<uint32_t>& positions) {
      const std::span<const uint32_t> found = order.of(sample);
      positions.insert(positions.end(), found.begin(), found.end());
    };
    for (const int64_t reach : {int64_t{1}, gap_}) {
      if (reach == 0) continue;
      const ChainStep step{static_cast<uint64_t>(plain_slack_), static_cast<uint64_t>(reach)};
      const auto chain = find_chain(seen, positions_of, epoch.order->sequence().length(), step);
      if (!chain || (best && best->length >= chain->length)) continue;
      best = chain;
      where = number;
    }
  }
  if (!best) return false;
  // While the plan is suspended nothing is pushed, and everything the reader opens is seen.
  if (state_ == TrackerState::suspended && best->length < kExplained * best->among) return false;
  if (thinned_ && !reads_all(*epochs_.at(where).order, *best)) return false;
  // Another reader on the same files, while ours goes on as planned.
  const auto meanwhile = std::count_if(matched_ticks_.begin(), matched_ticks_.end(),
                                       [&](uint64_t tick) { return tick > best->since; });
  if (state_ == TrackerState::following && meanwhile >= best->length) return false;
  jump(where, *best);
  return true;
}

void Tracker::jump(Epoch epoch, const Chain& chain) {
  run_.found = PlanPosition{epoch, chain.top};
  run_.hint = describe_jump(epoch, chain);
  totals_.divergence = run_;
  ++totals_.realignments;
  epoch_ = epoch;
  front_ = chain.top;
  confirmed_ = chain.second;
  found_ = {epoch, chain.low};
  slack_ = plain_slack_;
  state_ = TrackerState::following;
  in_next_ = late_in_a_row_ = 0;
  late_score_ = score_ = holes_ = 0;
  thinned_ = false;
  // What was seen before is read again after a restart.
  for (auto& [number, known] : epochs_) std::fill(known.seen.begin(), known.seen.end(), false);
  const SequencePositions& order = *epochs_.at(epoch).order;
  for (const Sighting& sighting : sightings_) {
    if (sighting.tick < chain.since) continue;
    for (const uint32_t position : order.of(sighting.sample)) {
      if (position >= chain.low && position <= chain.top) epochs_.at(epoch).seen[position] = true;
    }
  }
  sightings_.clear();
  matched_ticks_.clear();
  advanced_at_.reset();
}

std::string Tracker::describe_jump(Epoch epoch, const Chain& chain) const {
  const PlanPosition from = run_.at;
  const bool at_start =
      chain.low < static_cast<uint32_t>(3 * plain_slack_ + static_cast<int64_t>(kSightings));
  if (state_ == TrackerState::waiting) {
    return fmt::format("started at epoch {} position {}", epoch.value, chain.low);
  }
  if (epoch == from.epoch) {
    if (at_start && chain.top < from.position) return fmt::format("epoch {} was restarted", epoch.value);
    return fmt::format("{} within epoch {}", chain.top < from.position ? "went back" : "skipped ahead",
                       epoch.value);
  }
  if (epoch.value == from.epoch.value + 1 && at_start) {
    return fmt::format("epoch {} began before the end of epoch {}", epoch.value, from.epoch.value);
  }
  const bool boundary = from.position <= 3 * plain_slack_ || from.position == length();
  if (epoch <= from.epoch && at_start && boundary) {
    return fmt::format("matches epoch {} again: set_epoch is not called", epoch.value);
  }
  return fmt::format("matches epoch {} (expected epoch {}): is set_epoch called?", epoch.value,
                     from.epoch.value);
}

void Tracker::suspend(std::string hint) {
  state_ = TrackerState::suspended;
  ++totals_.suspensions;
  totals_.divergence = run_;
  totals_.divergence->hint = std::move(hint);
  holes_ = 0;
  diagnosed_ = false;
  diagnoses_left_ = every_open() ? 1 : 2;
  diagnose_at_ = tick_;
}

TrackerState Tracker::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

PlanPosition Tracker::position() const {
  const MutexLock lock(mutex_);
  // The rest of an epoch may be dropped when the reader is known to be in the next.
  return place(std::min(safe_position(), length()));
}

PlanPosition Tracker::front() const {
  const MutexLock lock(mutex_);
  return place(front_ + 1);
}

bool Tracker::opened(PlanPosition place) const {
  const MutexLock lock(mutex_);
  if (place < found_) return true;
  const auto at = epochs_.find(place.epoch);
  return at != epochs_.end() && place.position < at->second.seen.size() && at->second.seen[place.position];
}

TrackerStatus Tracker::status() const {
  const MutexLock lock(mutex_);
  TrackerStatus status = totals_;
  status.state = state_;
  status.position = place(std::min(safe_position(), length()));
  status.front = place(front_ + 1);
  status.samples_per_second = seconds_per_sample_ > 0 ? 1 / seconds_per_sample_ : 0;
  status.slack = static_cast<uint64_t>(slack_);
  return status;
}

std::vector<Sighting> Tracker::evidence() const {
  const MutexLock lock(mutex_);
  const auto first = std::find_if(lately_.begin(), lately_.end(),
                                  [since = run_since_](const Sighting& seen) { return seen.tick >= since; });
  return {first, lately_.end()};
}

bool Tracker::wants_diagnosis() const {
  const MutexLock lock(mutex_);
  return state_ == TrackerState::suspended && diagnoses_left_ > 0 && tick_ >= diagnose_at_;
}

bool Tracker::set_hint(std::string hint) {
  const MutexLock lock(mutex_);
  const bool first = !std::exchange(diagnosed_, true);
  if (diagnoses_left_ > 0) --diagnoses_left_;
  diagnose_at_ += kSeenWhole;
  if (!totals_.divergence) return false;
  const std::string before = std::exchange(totals_.divergence->hint, std::move(hint));
  return first || before != totals_.divergence->hint;
}

}  // namespace clairfs
