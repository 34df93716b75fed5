#include "net/transport/network_sleep.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/mpi/poll_pace.h"
#include "tests/support/catch.h"
#include "tests/support/moved_clock.h"

using namespace clairfs;
using namespace std::chrono_literals;

// A sleep of an hour that does not end at once is found by the time limit of the whole test.

namespace {

Fd new_eventfd() {
  return Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

/// A network, as UCX sees one.
struct OneSocket {
  OneSocket() {
    epoll_event readable{};
    readable.events = EPOLLIN;
    REQUIRE(::epoll_ctl(set.get(), EPOLL_CTL_ADD, socket.get(), &readable) == 0);
  }
  /// Stays there until somebody reads it, and nobody does.
  void arrive() const { REQUIRE(::eventfd_write(socket.get(), 1) == 0); }

  Fd socket = new_eventfd();
  Fd set{::epoll_create1(EPOLL_CLOEXEC)};
};

}  // namespace

TEST_CASE("what arrives from the network ends a sleep") {
  const OneSocket one;
  const OneSocket other;
  MovedClock clock;
  NetworkSleep network(new_eventfd(), clock);
  network.listen_to({one.set.get(), other.set.get()});
  CHECK(!network.sleep(5ms));
  other.arrive();
  CHECK(network.sleep(1h));
}

TEST_CASE("the network ends no short sleep, and none soon after another") {
  const OneSocket one;
  MovedClock clock;
  NetworkSleep network(new_eventfd(), clock);
  network.listen_to({one.set.get()});
  one.arrive();
  CHECK(!network.sleep(1ms));
  CHECK(network.sleep(1h));
  CHECK(!network.sleep(1h));  // not even that long: it is to listen again soon
  clock.time += NetworkSleep::kDeaf;
  CHECK(network.sleep(1h));
}

TEST_CASE("what comes soon after a hello waits no longer than two pauses that the network does not end") {
  CHECK(NetworkSleep::kDeaf <= 2 * PollPace::kLongPause);
}

TEST_CASE("a sleep ends when it is woken, before it begins or later") {
  const OneSocket one;
  MovedClock clock;
  NetworkSleep network(new_eventfd(), clock);
  network.listen_to({one.set.get()});
  network.wake();
  CHECK(!network.sleep(1h));
  std::thread waker([&network] { network.wake(); });
  CHECK(!network.sleep(1h));
  waker.join();
}

TEST_CASE("a descriptor of the network that was closed is let go") {
  OneSocket gone;
  const OneSocket another;
  another.arrive();
  MovedClock clock;
  NetworkSleep network(new_eventfd(), clock);
  network.listen_to({gone.set.get()});
  const int number = gone.set.release();
  ::close(number);
  CHECK(!network.sleep(1h));
  REQUIRE(::dup2(another.set.get(), number) == number);  // something else gets its number
  const Fd in_its_place(number);
  CHECK(!network.sleep(1h));  // and there is nothing else to listen to
}

TEST_CASE("a descriptor of the network that has become a pipe without a writer is let go") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const Fd hung_up(ends[0]);
  ::close(ends[1]);
  const OneSocket another;
  another.arrive();
  MovedClock clock;
  NetworkSleep network(new_eventfd(), clock);
  network.listen_to({hung_up.get()});
  CHECK(!network.sleep(1h));
  REQUIRE(::dup2(another.set.get(), hung_up.get()) == hung_up.get());
  CHECK(!network.sleep(1h));  // it is not listened to any more
}

TEST_CASE("where the network can end no sleep, none is long") {
  MovedClock clock;
  NetworkSleep network(new_eventfd(), clock);
  CHECK(!network.sleep(1h));
  network.listen_to({});
  CHECK(!network.sleep(1h));
}

TEST_CASE("the event sets of the process are found") {
  const OneSocket one;
  const std::vector<int> sets = event_sets();
  CHECK(std::ranges::count(sets, one.set.get()) == 1);
  CHECK(std::ranges::count(sets, one.socket.get()) == 0);
}
