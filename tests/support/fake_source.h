// A ChunkSource under a test's control: fetches wait until the test lets them complete, or are answered by a
// thread of its own. Never from within start(), as the contract says.
#pragma once

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/source/source.h"
#include "cache/tasks/task_thread.h"
#include "tests/support/eventually.h"

namespace clairfs {

/// The byte at `offset` of a file in a FakeSource.
inline unsigned char fake_byte(FileId file, uint64_t offset) {
  return static_cast<unsigned char>(file.value * 31 + offset / 4096 * 7 + offset);
}

/// Serves made-up bytes. Thread-safe.
class FakeSource final : public ChunkSource {
 public:
  enum class Answers : uint8_t { when_told, at_once };
  explicit FakeSource(Answers answers = Answers::when_told) {
    if (answers == Answers::at_once) thread_.emplace("fake-source");
  }

  void start(FetchRequest request) override {
    MutexLock lock(mutex_);
    ++fetches;
    bytes += request.length;
    if (request.with_next) ++with_next;
    if (has_peers && request.scope == FetchScope::anywhere) ++peer_fetches;
    files_.push_back(request.file);
    const Priority priority = request.demand->now();
    if (priority.kind == Priority::Kind::prefetch) deadlines_.push_back(priority.deadline);
    if (priority.is_background() && !request.rest) fills_.push_back(request.offset);
    if (gathering_) ++gathered_.back();
    if (stopped_) {
      lock.unlock();
      request.done(Error{ECANCELED, "stopped"});
      lock.lock();
      return;
    }
    pending_.push_back(std::move(request));
    if (thread_) thread_->post([this](const std::atomic<bool>&) { complete_one(); });
    points_.pass();
  }
  void gather() override {
    MutexLock lock(mutex_);
    if (!std::exchange(gathering_, true)) gathered_.push_back(0);
  }
  void gathered() override {
    MutexLock lock(mutex_);
    gathering_ = false;
  }
  bool may_wait_for_others(FileId, uint64_t) const override { return has_peers; }
  void demand_changed(const Demand&) override { ++raised; }
  void stop() override {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
    }
    complete_all(ECANCELED);
  }

  /// Completes the oldest fetch, with success or an errno. False if there is none.
  bool complete_one(int error = 0) { return complete_at(0, error); }
  /// Ends the oldest fetch as one whose memory a network keeps.
  bool lose_one() { return complete_at(0, EIO, FetchFailure::memory_lost); }
  /// As complete_one(), for the one at `which`, modulo how many wait, from the oldest.
  bool complete_at(size_t which, int error = 0, FetchFailure failure = FetchFailure::ordinary) {
    FetchRequest request;
    {
      MutexLock lock(mutex_);
      if (pending_.empty()) return false;
      const auto at = pending_.begin() + static_cast<std::ptrdiff_t>(which % pending_.size());
      request = std::move(*at);
      pending_.erase(at);
    }
    if (error == 0 && fail_files.contains(request.file)) error = EIO;
    if (error != 0) {
      request.done({Error{error, "injected"}, failure});
      return true;
    }
    uint64_t at = request.offset;
    for (const iovec& part : request.memory) {
      auto* out = static_cast<unsigned char*>(part.iov_base);
      for (size_t i = 0; i < part.iov_len; ++i) out[i] = fake_byte(request.file, at++);
    }
    request.done(has_peers && request.scope == FetchScope::anywhere ? Origin::peer : Origin::pfs);
    return true;
  }
  /// Completes the newest `count` fetches and leaves those before them.
  void complete_last(size_t count) {
    std::deque<FetchRequest> older;
    {
      MutexLock lock(mutex_);
      const auto middle = pending_.end() - static_cast<std::ptrdiff_t>(count);
      older.assign(std::make_move_iterator(pending_.begin()), std::make_move_iterator(middle));
      pending_.erase(pending_.begin(), middle);
    }
    while (count-- > 0) complete_one();
    MutexLock lock(mutex_);
    pending_.insert(pending_.begin(), std::make_move_iterator(older.begin()),
                    std::make_move_iterator(older.end()));
  }
  /// False if there was none.
  bool complete_all(int error = 0) {
    bool any = false;
    while (complete_one(error)) any = true;
    return any;
  }
  /// Completes all, and what begins because of that, until `done`; false if that does not come.
  bool complete_until(const std::function<bool()>& done) {
    return eventually([&] {
      complete_all();
      return done();
    });
  }
  /// One is passed by each fetch that begins.
  SequencePoints& points() { return points_; }
  /// The memory of the oldest fetch.
  std::vector<iovec> oldest_memory() {
    MutexLock lock(mutex_);
    return pending_.front().memory;
  }
  /// Of the prefetches, in the order in which they were asked for.
  std::vector<uint64_t> deadlines() {
    MutexLock lock(mutex_);
    return deadlines_;
  }
  /// Where in their files the fetches begin that fill tiers, in the order in which they were asked for.
  std::vector<uint64_t> fills() {
    MutexLock lock(mutex_);
    return fills_;
  }
  /// Of all fetches, in the order in which they were asked for.
  std::vector<FileId> files() {
    MutexLock lock(mutex_);
    return files_;
  }
  /// How many fetches came between each first gather() and gathered().
  std::vector<uint64_t> gatherings() {
    MutexLock lock(mutex_);
    return gathered_;
  }
  size_t pending() {
    MutexLock lock(mutex_);
    return pending_.size();
  }

  std::atomic<uint64_t> fetches{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> peer_fetches{0};  // of fetches
  std::atomic<uint64_t> with_next{0};     // of fetches: may be read with the one after them
  std::atomic<bool> has_peers{false};     // fetches come from another node where they may
  std::set<FileId> fail_files;
  std::atomic<uint64_t> raised{0};  // times that a demand changed

 private:
  SequencePoints points_;
  Mutex mutex_;
  std::deque<FetchRequest> pending_ GUARDED_BY(mutex_);
  std::vector<FileId> files_ GUARDED_BY(mutex_);
  std::vector<uint64_t> deadlines_ GUARDED_BY(mutex_);
  std::vector<uint64_t> fills_ GUARDED_BY(mutex_);
  std::vector<uint64_t> gathered_ GUARDED_BY(mutex_);
  bool gathering_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::optional<TaskThread> thread_;  // last: uses the others
};

}  // namespace clairfs
