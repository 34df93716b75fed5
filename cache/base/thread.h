// A thread that has a name (seen in top -H and gdb), an owner, and is joined.
#pragma once

#include <csignal>
#include <ctime>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "cache/base/clock.h"
#include "cache/base/result.h"

namespace clairfs {

/// Processor time that the calling thread has used.
inline Duration thread_cpu_time() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Runs `body` on a new thread; the destructor joins it. The thread blocks signals, so that they reach the
/// main thread, the only one that handles them. It does not block the signals of its own faults, whose
/// handlers would not be called then. `name`: at most 15 characters (kernel limit). Throws std::system_error
/// if the system grants no more threads; who makes one after start-up takes it as no_thread().
class NamedThread {
 public:
  NamedThread() = default;
  template <class Body>
  NamedThread(const std::string& name, Body&& body) {
    sigset_t all;
    sigset_t previous;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    try {
      thread_ = std::jthread(std::forward<Body>(body));
    } catch (const std::system_error&) {
      pthread_sigmask(SIG_SETMASK, &previous, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }

  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }
  /// The thread is not joined any more.
  void detach() { thread_.detach(); }
  pthread_t native_handle() { return thread_.native_handle(); }

 private:
  std::jthread thread_;
};

/// One more of several that do the same. False: the system grants none, but there are some. Throws as
/// NamedThread does if there are none.
template <class Body>
bool add_thread(std::vector<NamedThread>& threads, const std::string& name, Body&& body) try {
  threads.emplace_back(name, std::forward<Body>(body));
  return true;
} catch (const std::system_error&) {
  if (threads.empty()) throw;
  return false;
}

inline Error no_thread(const std::system_error& refused) {
  return system_error(refused.code().value(),
                      "start a thread (pids.max of the control group and ulimit -u limit them)");
}

}  // namespace clairfs
