// NetworkSleep: how the thread that polls the network sleeps between two looks.
//
// MPI has nothing to sleep on. UCX over TCP has: it asks the kernel by an event set (epoll) for each network
// interface which of its sockets are ready. Such a set is ready itself while one of its sockets is. Another
// thread may wait for it, too, and takes nothing away from UCX by that. So a peer's message ends a sleep,
// though neither MPI nor UCX was asked.
//
// That is a hint only. Other networks have no such sets; what is ready need not be a message, nor need UCX
// take it off the socket at once. So every sleep ends by itself, too, and the network ends only some of them.
// Where it can end none, all of them are short.
#pragma once

#include <chrono>
#include <vector>

#include <poll.h>

#include "cache/base/clock.h"
#include "cache/base/fd.h"

namespace clairfs {

/// The event sets (epoll) of this process; none where /proc does not tell.
std::vector<int> event_sets();

/// Of the thread that sleeps, but for wake().
class NetworkSleep {
 public:
  /// `waker` is an eventfd that does not block. `clock` outlives this.
  NetworkSleep(Fd waker, const Clock& clock);

  /// From now on sleeps also end when one of these is ready. They belong to others: one that is found closed,
  /// or hung up and empty, is let go.
  void listen_to(const std::vector<int>& descriptors);
  /// Sleeps for `most` at most, and for kLeast at most where there is nothing to listen to. True if the
  /// network ended it; for kDeaf after that it does not listen.
  bool sleep(Duration most);
  /// Ends the sleep under way; where there is none, the next one. Thread-safe.
  void wake();

  // The network ends no shorter sleep: while a transfer is under way every packet would end one. Where it can
  // end none this is what a request to a quiet node waits at most.
  static constexpr Duration kLeast = std::chrono::milliseconds(5);
  // After anything but a hello the pauses are shorter than kLeast, so this delays only what comes soon after
  // a hello, and what was not whole when it ended a sleep: by two pauses of kLeast at most. The hellos of a
  // large job (63 a second with 64 nodes), and what stays ready since UCX does not take it, thus cost no more
  // than 200 looks a second, as such pauses do.
  static constexpr Duration kDeaf = std::chrono::milliseconds(10);

 private:
  const Fd waker_;
  const Clock& clock_;
  std::vector<pollfd> events_;  // the first is that of waker_
  TimePoint listen_again_{};
};

}  // namespace clairfs
