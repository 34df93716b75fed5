#include "plan/inference/watched/access_recorder.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace clairfs {
namespace {

constexpr uint64_t kNoPlace = UINT64_MAX;  // the catalog never has that many entries

// Nobody pauses that long within an epoch but for a model that is compiled; then its order is found from
// where the reader is.
constexpr auto kPause = std::chrono::minutes(2);

// Opens in order after which what was seen before was a stray, and not the beginning of another order.
constexpr uint32_t kGoesOn = 32;

}  // namespace

AccessRecorder::AccessRecorder(std::function<void()> wake) : wake_(std::move(wake)) {
  newest_.fill(kNoPlace);
}

void AccessRecorder::forget() {
  opens_.clear();
  ++beginnings_;
  newest_.fill(kNoPlace);
  count_ = 0;
  strays_ = 0;
  in_order_ = 0;
  look_at_ = kFirstLook;
}

void AccessRecorder::restart(bool on) {
  const MutexLock lock(mutex_);
  forget();
  if (!on) opens_.shrink_to_fit();
  on_ = on;
}

template <typename Of>
void AccessRecorder::forget_if(const Of& of) {
  strays_ = in_order_ = 0;
  if (std::erase_if(opens_, of) == 0) return;
  if (opens_.empty()) return forget();
  ++beginnings_;
  count_ = opens_.size();
  look_at_ = std::max(kFirstLook, opens_.size() + opens_.size() / 2);
}

std::vector<SeenOpen> AccessRecorder::forget(const std::unordered_set<uint32_t>& threads) {
  const auto is_theirs = [&](const SeenOpen& open) { return threads.contains(open.thread.value); };
  std::vector<SeenOpen> theirs;
  const MutexLock lock(mutex_);
  std::copy_if(opens_.begin(), opens_.end(), std::back_inserter(theirs), is_theirs);
  forget_if(is_theirs);
  for (SeenOpen& open : opens_) open.planned = false;
  on_ = true;
  return theirs;
}

std::vector<SeenOpen> AccessRecorder::forget_all() {
  const MutexLock lock(mutex_);
  std::vector<SeenOpen> all(opens_.begin(), opens_.end());
  forget();
  on_ = true;
  return all;
}

void AccessRecorder::forget_files(const std::unordered_set<uint32_t>& files) {
  const MutexLock lock(mutex_);
  forget_if([&](const SeenOpen& open) { return files.contains(open.file.value); });
  on_ = true;
}

void AccessRecorder::look_at(size_t count) {
  const MutexLock lock(mutex_);
  look_at_ = count;
  if (opens_.size() >= look_at_) wake_();
}

bool AccessRecorder::note(ThreadId thread, FileId file, Access kind, TimePoint now, bool planned,
                          ReadPages pages) {
  const uint64_t place = (uint64_t{file.value} << 32) | pages.first;
  const MutexLock lock(mutex_);
  if (!on_) return false;
  if (now - last_ > kPause && !opens_.empty()) forget();
  last_ = now;
  if (planned) in_order_ = 0;
  if (std::find(newest_.begin(), newest_.end(), place) != newest_.end()) return false;
  newest_[next_newest_++ % newest_.size()] = place;
  opens_.push_back({file, thread, kind, planned, pages.count, pages.first});
  if (planned) ++strays_;
  count_ = opens_.size();
  if (opens_.size() >= kMost) on_ = false;
  // The look that is woken sees that nothing more comes, and begins anew after a rest.
  if (!on_ || opens_.size() == look_at_) wake_();
  return true;
}

void AccessRecorder::note_in_order() {
  if (count() == 0) return;
  const MutexLock lock(mutex_);
  if (++in_order_ < kGoesOn || strays_ == 0) return;
  forget_if([](const SeenOpen& open) { return open.planned; });
}

std::vector<SeenOpen> AccessRecorder::opens(size_t most) const {
  const MutexLock lock(mutex_);
  const size_t count = std::min(most, opens_.size());
  return {opens_.begin(), opens_.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace clairfs
