#include "plan/tracker.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace clairfs {
namespace {

// Score at which a plan is suspended. With sentinels alone, hundreds of samples pass between two observations
// in order (the workers reach theirs together), and strays of 5 % among them must not add up.
constexpr double kSparseLimit = 40;
// With every open seen, 5 % of strays are outweighed at once.
constexpr double kOpenLimit = 20;

// Positions over which visibility is measured; less than half as many say nothing yet.
constexpr double kVisibilitySpan = 512;

// Opens in a row from before position() that show the front to have been a stray access, not the reader.
constexpr uint32_t kRetreat = 8;
// Late opens, less a quarter for every one that is not, from which on they are ranks that have drifted apart.
constexpr double kDrift = 3;

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

Tracker::Band Tracker::band() const {
  return {front_ + 1 - slack_ - plain_slack_, front_ + plain_slack_ + std::min(pushed_ahead(), 2 * gap_)};
}

int64_t Tracker::safe_position() const {
  return confirmed_ + 1 - slack_;
}

PlanPosition Tracker::place(int64_t position) const {
  const int64_t end = length();
  if (position > end && epochs_.contains(Epoch(epoch_.value + 1))) {
    return {Epoch(epoch_.value + 1), static_cast<uint32_t>(position - end)};
  }
  return {epoch_, static_cast<uint32_t>(std::clamp<int64_t>(position, 0, end))};
}

// The first position in the band that was not seen yet, of any of the samples, in this epoch before the next;
// else one that was.
std::optional<Tracker::Match> Tracker::match(std::span<const uint32_t> samples) {
  const Band in = band();
  std::optional<Match> again;
  for (const int64_t offset : {0, 1, -1}) {
    const Known* const epoch = known(offset);
    if (epoch == nullptr) continue;
    const int64_t size = epoch->order->sequence().length();
    const int64_t start = offset == 0 ? 0 : offset > 0 ? length() : -size;
    if (in.high < start || in.low >= start + size) continue;
    for (const uint32_t sample : samples) {
      const std::span<const uint32_t> positions = epoch->order->of(sample);
      const auto first = static_cast<uint32_t>(std::max<int64_t>(in.low - start, 0));
      for (auto at = std::lower_bound(positions.begin(), positions.end(), first);
           at != positions.end() && start + *at <= in.high; ++at) {
        if (!epoch->seen[*at]) return Match{start + *at, false};
        if (!again) again = Match{start + *at, true};
      }
    }
  }
  return again;
}

Tracker::Verdict Tracker::observe(std::span<const uint32_t> samples, Access kind, TimePoint now) {
  const MutexLock lock(mutex_);
  if (state_ != TrackerState::suspended) {
    const std::optional<Match> found = match(samples);
    if (found && found->repeated) {
      ++totals_.repeated;
      return Verdict::repeated;
    }
    if (found) {
      accept(found->position, kind, now);
      return Verdict::in_order;
    }
  }
  return reject(samples.front());
}

void Tracker::accept(int64_t position, Access kind, TimePoint now) {
  const int64_t end = length();
  const int64_t offset = position < 0 ? -1 : position >= end ? 1 : 0;
  Known& epoch = *known(offset);
  const int64_t start = offset == 0 ? 0 : offset > 0 ? end : -int64_t{epoch.order->sequence().length()};
  epoch.seen[static_cast<size_t>(position - start)] = true;

  ++tick_;
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
  if (position > front_) {
    note_advance(position - front_, now);
    confirmed_ = front_;
    front_ = position;
  } else {
    confirmed_ = std::max(confirmed_, position);
  }
  in_next_ = offset > 0 ? in_next_ + 1 : 0;
  // One alone may be a stray access.
  if (in_next_ >= 2) enter_next();
  if (last_ == epoch_ && front_ + 1 >= length()) state_ = TrackerState::finished;
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

double Tracker::credit() const {
  const Band in = band();
  const double size = std::max<double>(static_cast<double>(length()), 1);
  // Beyond a half nothing can be told, and strays must still be outweighed.
  const double share = std::min(static_cast<double>(in.high - in.low + 1) / size, 0.5);
  const double visible = std::clamp((recent_seen_ + 1) / (recent_passed_ + 1), 1.0 / 1024, 1.0);
  return std::min((1 - share) / (4 * share * visible), kSparseLimit);
}

double Tracker::limit() const {
  const bool every_open = recent_passed_ >= kVisibilitySpan / 8 && recent_opens_ >= recent_passed_ / 2;
  return every_open ? kOpenLimit : kSparseLimit;
}

Tracker::Verdict Tracker::reject(uint32_t sample) {
  const size_t recent = std::min(sightings_.size(), kRepeatSpan);
  const auto newest = sightings_.end() - static_cast<std::ptrdiff_t>(recent);
  if (std::any_of(newest, sightings_.end(), [&](const Sighting& s) { return s.sample == sample; })) {
    ++totals_.repeated;
    return Verdict::repeated;
  }
  sightings_.push_back({sample, ++tick_});
  if (sightings_.size() > kSightings) sightings_.pop_front();
  ++totals_.out_of_order;

  if (score_ == 0) {
    run_ = Divergence();
    run_.at = place(front_ + 1);
    const auto at = epochs_.find(run_.at.epoch);
    if (at != epochs_.end() && run_.at.position < at->second.order->sequence().length()) {
      run_.expected = at->second.order->sequence().sample_at(run_.at.position);
    }
    run_.seen = sample;
    if (!totals_.first_difference) totals_.first_difference = run_;
  }
  score_ += 1;
  ++run_.out_of_order;
  const bool over = score_ >= limit() && state_ != TrackerState::suspended;
  if (++since_search_ >= kSearchEvery || over) {
    since_search_ = 0;
    if (realign()) return Verdict::in_order;
  }
  if (over && state_ != TrackerState::finished) suspend();
  return Verdict::out_of_order;
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
  slack_ = plain_slack_;
  state_ = TrackerState::following;
  in_next_ = late_in_a_row_ = 0;
  late_score_ = score_ = 0;
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
  const bool boundary = from.position == length() || (from.position <= 3 * plain_slack_ && at_start);
  if (epoch <= from.epoch && at_start && boundary) {
    return fmt::format("matches epoch {} again: set_epoch is not called", epoch.value);
  }
  return fmt::format("matches epoch {} (expected epoch {}): is set_epoch called?", epoch.value,
                     from.epoch.value);
}

void Tracker::suspend() {
  state_ = TrackerState::suspended;
  ++totals_.suspensions;
  totals_.divergence = run_;
  totals_.divergence->hint = "matches no known order";
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

TrackerStatus Tracker::status() const {
  const MutexLock lock(mutex_);
  TrackerStatus status = totals_;
  status.state = state_;
  status.position = place(std::min(safe_position(), length()));
  status.front = place(front_ + 1);
  status.ahead = static_cast<uint64_t>(pushed_ahead());
  status.samples_per_second = seconds_per_sample_ > 0 ? 1 / seconds_per_sample_ : 0;
  status.slack = static_cast<uint64_t>(slack_);
  return status;
}

std::vector<Sighting> Tracker::evidence() const {
  const MutexLock lock(mutex_);
  return {sightings_.begin(), sightings_.end()};
}

void Tracker::set_hint(std::string hint) {
  const MutexLock lock(mutex_);
  if (totals_.divergence) totals_.divergence->hint = std::move(hint);
}

}  // namespace clairfs
