#include "fs/session/loop.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <pthread.h>

namespace clairfs {

void FuseLoop::start(fuse_session* session, const std::string& name, unsigned threads,
                     std::function<void()> on_end) {
  session_ = session;
  on_end_ = std::move(on_end);
  // A signal without effect, so that a thread blocked in read() can be made to look at `stopping_`.
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &nothing, nullptr);
  serving_ = threads;
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads &&
           add_thread(threads_, fmt::format("{}-{}", name, threads_.size()), [this] { serve(); })) {
    }
  } catch (const std::system_error&) {
    serving_ = 0;
    throw;
  }
  for (size_t missing = threads_.size(); missing < threads; ++missing) leave();
}

void FuseLoop::leave() {
  if (serving_.fetch_sub(1) == 1 && !stopping_ && on_end_) on_end_();
}

void FuseLoop::serve() {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
  fuse_buf buffer{};
  while (!stopping_ && !fuse_session_exited(session_)) {
    const int got = fuse_session_receive_buf(session_, &buffer);
    if (got == -EINTR) continue;
    if (got <= 0) break;  // 0: unmounted
    fuse_session_process_buf(session_, &buffer);
  }
  ::free(buffer.mem);
  leave();
}

void FuseLoop::stop() {
  stopping_ = true;
  while (serving_ > 0) {
    for (NamedThread& thread : threads_) {
      if (thread.joinable()) pthread_kill(thread.native_handle(), SIGUSR1);
    }
    // Again until it worked: the signal may arrive just before a thread blocks in read().
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  threads_.clear();
}

}  // namespace clairfs
