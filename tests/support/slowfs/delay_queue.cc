#include "tests/support/slowfs/delay_queue.h"

#include <utility>

#include <sys/prctl.h>

namespace clairfs::slowfs {

DelayQueue::DelayQueue(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back("slowfs-worker", [this] { run(); });
}

DelayQueue::~DelayQueue() {
  MutexLock lock(mutex_);
  stopping_ = true;
  earlier_.notify_all();
  idle_.notify_all();
}

void DelayQueue::push(TimePoint due, Job job, uintptr_t held) {
  MutexLock lock(mutex_);
  const auto entry = queue_.emplace(due, Entry{.job = std::move(job), .held = held});
  if (entry == queue_.begin()) wake();
}

void DelayQueue::wake() {
  if (led_) {
    earlier_.notify_one();
  } else {
    idle_.notify_one();
  }
}

DelayQueue::Queue::iterator DelayQueue::make_due(Queue::iterator entry) {
  const auto next = std::next(entry);
  auto node = queue_.extract(entry);
  node.key() = TimePoint::min();
  node.mapped().held = 0;
  queue_.insert(std::move(node));
  return next;
}

void DelayQueue::release_held() {
  MutexLock lock(mutex_);
  for (auto entry = queue_.begin(); entry != queue_.end();) {
    entry = entry->second.held != 0 ? make_due(entry) : std::next(entry);
  }
  wake();
}

void DelayQueue::interrupt(uintptr_t held) {
  MutexLock lock(mutex_);
  for (auto entry = queue_.begin(); entry != queue_.end(); ++entry) {
    if (entry->second.held != held) continue;
    entry->second.outcome = Outcome::interrupted;
    make_due(entry);
    wake();
    return;
  }
}

void DelayQueue::run() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // ns; the default of 50 us would add to every latency
  MutexLock lock(mutex_);
  while (true) {
    if (!stopping_ && (led_ || queue_.empty())) {
      idle_.wait(lock);
      continue;
    }
    if (queue_.empty()) return;
    const TimePoint due = queue_.begin()->first;
    if (!stopping_ && due > SteadyClock().now()) {
      led_ = true;
      earlier_.wait_until(lock, due);
      led_ = false;
      continue;
    }
    Entry entry = std::move(queue_.extract(queue_.begin()).mapped());
    if (stopping_) entry.outcome = Outcome::shut_down;
    if (!queue_.empty()) idle_.notify_one();  // the next leader
    lock.unlock();
    entry.job(entry.outcome);
    lock.lock();
  }
}

}  // namespace clairfs::slowfs
