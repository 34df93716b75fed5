#include "mount-helper/serve/signals.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace clairfs {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGINT, SIGHUP};

// Those of kSignals that are to end us: under nohup SIGHUP is ignored and must stay so.
sigset_t termination_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kSignals) sigaddset(&set, number);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler == SIG_IGN) sigdelset(&set, SIGHUP);
  return set;
}

}  // namespace

void ignore_warnings() {
  for (const int number : {SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ}) ::signal(number, SIG_IGN);
}

SignalWaiter::SignalWaiter() {
  const sigset_t set = termination_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  notification_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_ || !notification_)
    throw std::system_error(errno, std::generic_category(), "watch for signals");
}

SignalWaiter::~SignalWaiter() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) >
         0) {  // else a second Ctrl-C kills us while we clean up
  }
  const sigset_t set = termination_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

int SignalWaiter::wait() {
  for (;;) {
    std::array<pollfd, 2> events = {pollfd{signals_.get(), POLLIN, 0},
                                    pollfd{notification_.get(), POLLIN, 0}};
    if (::poll(events.data(), events.size(), -1) < 0) continue;  // EINTR: no other error is possible here
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) return static_cast<int>(info.ssi_signo);
    if (events[1].revents != 0) return 0;
  }
}

int SignalWaiter::pending() const {
  sigset_t set;
  sigpending(&set);
  for (int number : kSignals) {
    if (sigismember(&set, number) == 1) return number;
  }
  return 0;
}

void SignalWaiter::notify() {
  const uint64_t one = 1;
  // Only a full counter could fail, and then the event is there already.
  if (::write(notification_.get(), &one, sizeof(one)) < 0) return;
}

}  // namespace clairfs
