#include "cache/tasks/idle_thread.h"

#include <utility>

#include <pthread.h>
#include <sched.h>

namespace clairfs {
namespace {

void set_policy(pthread_t thread, int policy) {
  const sched_param none = {};
  ::pthread_setschedparam(thread, policy, &none);
}

}  // namespace

IdleThread::IdleThread(const std::string& name, std::function<void()> work, bool when_idle)
    : thread_(name, [state = state_, work = std::move(work), when_idle]() mutable {
        if (when_idle) set_policy(::pthread_self(), SCHED_IDLE);
        work();
        work = nullptr;
        const MutexLock lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
      }) {}

void IdleThread::hurry() {
  const MutexLock lock(state_->mutex);
  if (!state_->hurried && !state_->ended) set_policy(thread_.native_handle(), SCHED_OTHER);
  state_->hurried = true;
  state_->changed.notify_all();
}

bool IdleThread::is_over_within(Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(state_->mutex);
  while (!state_->ended && !state_->hurried) {
    if (state_->changed.wait_until(lock, deadline) == std::cv_status::timeout) break;
  }
  return state_->ended || state_->hurried;
}

bool IdleThread::wait(Duration patience) {
  if (waited_) return *waited_;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  MutexLock lock(state_->mutex);
  while (!state_->ended) {
    if (state_->hurried && !deadline) deadline = std::chrono::steady_clock::now() + patience;
    if (!deadline) {
      state_->changed.wait(lock);
    } else if (std::chrono::steady_clock::now() >= *deadline) {
      break;
    } else {
      state_->changed.wait_until(lock, *deadline);
    }
  }
  waited_ = state_->ended;
  state_->ended = true;  // the handle is not used again
  NamedThread thread = std::move(thread_);
  lock.unlock();
  if (*waited_) {
    thread.join();
  } else {
    thread.detach();
  }
  return *waited_;
}

}  // namespace clairfs
