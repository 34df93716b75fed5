// An NvmeStore in memory.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/memory/ram_arena.h"
#include "cache/nvme/store.h"
#include "cache/tasks/task_thread.h"
#include "tests/support/eventually.h"

namespace clairfs {

/// Slots of 4 KiB, and nothing else that would take capacity. A thread of its own completes transfers;
/// refusals are answered within the call, as the contract allows. Thread-safe.
class FakeStore final : public NvmeStore {
 public:
  explicit FakeStore(uint64_t capacity) : capacity_(capacity) {}

  uint32_t length_of(const ChunkKey& key) const override {
    MutexLock lock(mutex_);
    const auto found = chunks_.find(key);
    return found == chunks_.end() ? 0 : static_cast<uint32_t>(found->second.size());
  }
  void read(const ChunkKey& key, std::vector<iovec> memory, std::function<void(Status)> done) override {
    std::string bytes;
    {
      MutexLock lock(mutex_);
      const auto found = chunks_.find(key);
      if (found != chunks_.end()) bytes = found->second;
    }
    if (bytes.empty()) return done(Error{ENOENT, "not here"});
    for (const iovec& piece : memory) {
      const bool aligned = (reinterpret_cast<uintptr_t>(piece.iov_base) | piece.iov_len) % kPageSize == 0;
      if (!aligned) return done(Error{EINVAL, "not in whole pages"});
    }
    const auto read = [=] {
      size_t at = 0;
      for (const iovec& piece : memory)
        at += bytes.copy(static_cast<char*>(piece.iov_base), piece.iov_len, at);
      done({});
    };
    {
      MutexLock lock(mutex_);
      if (hold_reads_) return held_reads_.push_back(read);
    }
    transfer(read);
  }
  /// Reads wait from now on; or all that wait are made.
  void hold_reads(bool hold) {
    std::vector<std::function<void()>> held;
    {
      MutexLock lock(mutex_);
      hold_reads_ = hold;
      if (!hold) held.swap(held_reads_);
    }
    for (const auto& read : held) read();
  }
  /// How many wait.
  size_t reads_held() const {
    MutexLock lock(mutex_);
    return held_reads_.size();
  }
  void write(const ChunkKey& key, std::vector<iovec> memory, uint32_t length, uint64_t,
             std::function<void(Status)> done) override {
    bool waits = false;
    bool room = false;
    {
      MutexLock lock(mutex_);
      room = used_ + round_to_pages(length) <= capacity_;
      if (room) used_ += round_to_pages(length);  // from now on
      waits = room && slow_;
      if (waits) held_.push_back([=, this] { write_now(key, memory, length, done); });
    }
    points_.pass();
    if (waits) return;
    if (!room) return done(Error{ENOSPC, "full"});
    transfer([=, this] { write_now(key, memory, length, done); });
  }
  /// Waits for all transfers but held writes, and for what they begin. Whether there was any since the last
  /// call.
  bool settle() {
    MutexLock lock(mutex_);
    while (transfers_ > 0) idle_.wait(lock);
    return std::exchange(any_, false);
  }
  /// Writes wait from now on, or all that wait are done, those that follow too, and later ones at once.
  void set_slow(bool slow) {
    std::vector<std::function<void()>> held;
    {
      MutexLock lock(mutex_);
      slow_ = slow;
      if (!slow) held.swap(held_);
    }
    for (const auto& write : held) write();
    settle();
  }
  /// The oldest `count` of the writes that wait are done.
  void write_some(size_t count) {
    std::vector<std::function<void()>> first;
    {
      MutexLock lock(mutex_);
      const auto middle = held_.begin() + static_cast<std::ptrdiff_t>(std::min(count, held_.size()));
      first.assign(std::make_move_iterator(held_.begin()), std::make_move_iterator(middle));
      held_.erase(held_.begin(), middle);
    }
    for (const auto& write : first) write();
  }
  /// Writes that wait.
  size_t held() const {
    MutexLock lock(mutex_);
    return held_.size();
  }
  /// Waits until there are so many of them.
  bool await_held(size_t count) {
    return points_.wait_until([&] { return held() >= count; });
  }
  /// Writes fail from now on, though there is room.
  void set_failing(bool failing) {
    MutexLock lock(mutex_);
    failing_ = failing;
  }
  /// Runs `work` once, within the next available() that finds room, after that has looked: as another thread
  /// might.
  void set_meanwhile(std::function<void()> work) {
    MutexLock lock(mutex_);
    meanwhile_ = std::move(work);
  }
  /// It has to grow for the next write, and cannot until it is let_grow().
  void hold_growth() {
    MutexLock lock(mutex_);
    must_grow_ = growth_held_ = true;
  }
  void let_grow() {
    MutexLock lock(mutex_);
    growth_held_ = false;
    let_grow_.notify_all();
  }
  /// The most that it was to have room for in one run.
  uint64_t grown_for() const {
    MutexLock lock(mutex_);
    return grown_for_;
  }
  bool grows_for(uint64_t) const override {
    MutexLock lock(mutex_);
    return must_grow_;
  }
  void grow_for(uint64_t bytes) override {
    MutexLock lock(mutex_);
    grown_for_ = std::max(grown_for_, bytes);
    while (growth_held_) let_grow_.wait(lock);
    must_grow_ = false;
  }
  void drop(const ChunkKey& key) override {
    MutexLock lock(mutex_);
    const auto found = chunks_.find(key);
    if (found == chunks_.end()) return;
    used_ -= round_to_pages(found->second.size());
    chunks_.erase(found);
  }
  void drop_unless(const std::function<bool(const ChunkKey&)>&) override {}
  uint64_t available() const override {
    uint64_t room = 0;
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      room = capacity_ - used_;
      if (room > 0) work.swap(meanwhile_);
    }
    if (work) work();
    return room;
  }
  bool writable() const override { return true; }
  uint64_t bytes() const override {
    MutexLock lock(mutex_);
    return used_;
  }
  uint64_t chunks() const override {
    MutexLock lock(mutex_);
    return chunks_.size();
  }
  const std::string& directory() const override { return directory_; }

 private:
  void transfer(std::function<void()> work) {
    {
      MutexLock lock(mutex_);
      ++transfers_;
      any_ = true;
    }
    thread_.post([this, work = std::move(work)](const std::atomic<bool>&) {
      work();
      MutexLock lock(mutex_);
      if (--transfers_ == 0) idle_.notify_all();
    });
  }
  void write_now(const ChunkKey& key, const std::vector<iovec>& memory, uint32_t length,
                 const std::function<void(Status)>& done) {
    std::string bytes;
    for (const iovec& piece : memory) bytes.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
    bytes.resize(length);
    bool failed = false;
    {
      MutexLock lock(mutex_);
      failed = failing_;
      if (failed || chunks_.contains(key)) used_ -= round_to_pages(length);
      if (!failed) chunks_[key] = std::move(bytes);
    }
    done(failed ? Status(Error{EIO, "failing"}) : Status());
  }

  const uint64_t capacity_;
  const std::string directory_ = "memory";
  SequencePoints points_;  // passed by each write
  mutable Mutex mutex_;
  std::unordered_map<ChunkKey, std::string> chunks_ GUARDED_BY(mutex_);
  uint64_t used_ GUARDED_BY(mutex_) = 0;
  bool slow_ GUARDED_BY(mutex_) = false;
  bool failing_ GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> held_ GUARDED_BY(mutex_);
  mutable std::function<void()> meanwhile_ GUARDED_BY(mutex_);
  bool hold_reads_ GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> held_reads_ GUARDED_BY(mutex_);
  bool must_grow_ GUARDED_BY(mutex_) = false;
  bool growth_held_ GUARDED_BY(mutex_) = false;
  uint64_t grown_for_ GUARDED_BY(mutex_) = 0;
  CondVar let_grow_;
  CondVar idle_;
  size_t transfers_ GUARDED_BY(mutex_) = 0;
  bool any_ GUARDED_BY(mutex_) = false;  // since settle()
  TaskThread thread_{"fake-store"};      // last: uses all of the above
};

}  // namespace clairfs
