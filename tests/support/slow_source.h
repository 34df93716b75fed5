// A ChunkSource that takes its time, as a PFS does, and counts what was read of each file.
#pragma once

#include <cerrno>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/source/source.h"
#include "tests/support/fake_source.h"

namespace clairfs {

/// Serves the bytes of fake_byte(), each fetch after a random delay, from a thread of its own; none while it
/// is held. Thread-safe.
class SlowSource final : public ChunkSource {
 public:
  SlowSource(uint32_t files, uint64_t seed, Duration most_delay)
      : bytes_of_(files), random_(seed), most_delay_(most_delay) {
    thread_ = NamedThread("slow-source", [this] { run(); });
  }
  ~SlowSource() override {
    {
      MutexLock lock(mutex_);
      ending_ = true;
      held_ = false;
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void start(FetchRequest request) override {
    bool accepted = false;
    {
      MutexLock lock(mutex_);
      accepted = !stopped_;
      if (accepted) {
        asked_.emplace_back(request.file, request.demand);
        bytes_of_[request.file.index()] += request.length;
        const auto delay =
            Duration(std::uniform_int_distribution<Duration::rep>(0, most_delay_.count())(random_));
        due_.emplace(std::chrono::steady_clock::now() + delay, std::move(request));
        wake_.notify_all();
      }
    }
    if (!accepted) request.done(Error{ECANCELED, "stopped"});
  }
  void demand_changed(const Demand&) override {}
  void stop() override {
    MutexLock lock(mutex_);
    stopped_ = true;
  }

  void hold(bool held) {
    MutexLock lock(mutex_);
    held_ = held;
    wake_.notify_all();
  }
  /// How urgent the fetches of a file have become so far; none before the first.
  std::optional<Priority> priority_of(FileId file) {
    MutexLock lock(mutex_);
    std::optional<Priority> most;
    for (const auto& [asked, demand] : asked_) {
      if (asked == file) most = std::min(most.value_or(demand->now()), demand->now());
    }
    return most;
  }
  /// Bytes read of each file so far, and being read.
  std::vector<uint64_t> bytes_of_files() {
    MutexLock lock(mutex_);
    return bytes_of_;
  }

 private:
  void run() {
    MutexLock lock(mutex_);
    while (!ending_ || !due_.empty()) {
      if (due_.empty() || held_) {
        wake_.wait(lock);
        continue;
      }
      const TimePoint next = due_.begin()->first;
      if (next > std::chrono::steady_clock::now()) {
        wake_.wait_until(lock, next);
        continue;
      }
      const FetchRequest request = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      lock.unlock();
      uint64_t at = request.offset;
      for (const iovec& part : request.memory) {
        auto* out = static_cast<unsigned char*>(part.iov_base);
        for (size_t i = 0; i < part.iov_len; ++i) out[i] = fake_byte(request.file, at++);
      }
      request.done(Origin::pfs);
      lock.lock();
    }
  }

  Mutex mutex_;
  CondVar wake_;
  std::multimap<TimePoint, FetchRequest> due_ GUARDED_BY(mutex_);
  std::vector<uint64_t> bytes_of_ GUARDED_BY(mutex_);
  std::vector<std::pair<FileId, std::shared_ptr<const Demand>>> asked_ GUARDED_BY(mutex_);
  bool held_ GUARDED_BY(mutex_) = false;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  const Duration most_delay_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

}  // namespace clairfs
