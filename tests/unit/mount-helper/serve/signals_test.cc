#include "mount-helper/serve/signals.h"

#include <csignal>

#include <unistd.h>

#include "cache/base/thread.h"
#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a termination signal ends the wait and is named") {
  const int number = GENERATE(SIGTERM, SIGINT, SIGHUP);
  SignalWaiter waiter;
  CHECK(waiter.pending() == 0);
  ::kill(::getpid(), number);
  CHECK(waiter.pending() == number);
  CHECK(waiter.wait() == number);
  CHECK(waiter.pending() == 0);
}

TEST_CASE("a notification from another thread ends the wait, before and after it began") {
  SignalWaiter waiter;
  const NamedThread thread("notifier", [&] { waiter.notify(); });
  CHECK(waiter.wait() == 0);
  CHECK(waiter.wait() == 0);
}

TEST_CASE("a signal goes before a notification, and what comes late is dropped with the waiter") {
  {
    SignalWaiter waiter;
    waiter.notify();
    ::kill(::getpid(), SIGTERM);
    CHECK(waiter.wait() == SIGTERM);
    ::kill(::getpid(), SIGINT);  // would end this test if it were left pending
  }
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  CHECK(sigismember(&blocked, SIGTERM) == 0);
}

TEST_CASE("warnings of batch systems end nothing") {
  const int number = GENERATE(SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGURG, SIGCONT);
  const auto before = ::signal(number, SIG_DFL);
  ignore_warnings();
  CHECK(::raise(number) == 0);
  ::signal(number, before);
}

TEST_CASE("an ignored hang-up stays ignored, as nohup wants it") {
  ::signal(SIGHUP, SIG_IGN);
  SignalWaiter waiter;
  ::kill(::getpid(), SIGHUP);
  ::kill(::getpid(), SIGTERM);
  CHECK(waiter.wait() == SIGTERM);
  ::signal(SIGHUP, SIG_DFL);
}
