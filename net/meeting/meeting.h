// A job without a launcher: the nodes meet at node 0's address, then each lets its MPI believe in a launcher.
//
// gather() returns when all nodes have come, so that a missing or wrong one is named before MPI is touched:
// MPI_Init waits without end and without a word. During MPI_Init the thread "pmi-relay" speaks PMI-1 with
// this process's MPI over a socket pair (PMI_FD) and exchanges with the others through node 0
// (net/meeting/host.h). When MPI is initialised on all nodes the meeting is over: connections and threads
// end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"
#include "cache/base/types.h"
#include "net/meeting/host.h"
#include "net/meeting/host_port.h"
#include "net/meeting/line_socket.h"

namespace clairfs {

struct MeetingOptions {
  HostPort at;         ///< where node 0 listens, as all nodes can reach it
  std::string secret;  ///< the same on all nodes; empty: none
  /// How long to wait for the others. Nodes may start minutes apart under a busy scheduler.
  Duration patience = std::chrono::minutes(2);
  /// Called several times a second meanwhile; may end the process.
  std::function<void()> waiting{};
};

class Meeting {
 public:
  /// Waits for all nodes; node 0 listens meanwhile. `log` outlives the meeting. Errors, each with its cause:
  /// ETIMEDOUT when the patience ends (which nodes are missing, or that node 0 does not answer); EPERM when
  /// node 0 refuses this node or shows no knowledge of the secret; ECANCELED when it gives up; EADDRINUSE and
  /// others when it cannot listen.
  static Result<std::unique_ptr<Meeting>> gather(const JobPlace& place, MeetingOptions options, Logger& log);
  /// Unless done() was called the meeting has failed: the other nodes are told so, and MPI's line to us stays
  /// open, since MPI ends the process when that is closed.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Puts into the environment what MPI_Init is to find there, in the place of what a launcher has put there.
  /// Once. REQUIRES: no other thread reads or writes the environment meanwhile. Errors: those of
  /// socketpair(2).
  Status serve_mpi();
  /// Why MPI_Init will not end, as far as is known. Thread-safe.
  Status failure() const;
  /// MPI is initialised: the destructor ends the meeting in peace. REQUIRES: serve_mpi(), whose thread says
  /// goodbye to node 0, also where a transport has nothing to put: node 0 takes a node that goes without for
  /// dead.
  void done();

 private:
  Meeting(const JobPlace& place, MeetingOptions options);
  enum class Try { formed, again, failed };
  Status meet(TimePoint deadline);
  Try attempt(TimePoint deadline);
  bool connect(TimePoint deadline);
  bool introduce(TimePoint deadline);
  Try await_others(TimePoint deadline);
  std::optional<std::string> await_line(TimePoint until);
  Try give_up(int code, std::string why);
  std::string timeout_text() const;
  void relay();
  void fail(const std::string& why);

  const JobPlace place_;
  const MeetingOptions options_;
  const std::string where_;

  std::unique_ptr<MeetingHost> host_;  // on node 0
  LineSocket to_host_;                 // of gather(), then of the relay's thread
  LineSocket to_mpi_;                  // of the relay's thread
  Fd wake_;

  // Of gather().
  Status outcome_;       // once it has failed
  std::string trouble_;  // why the last try came to nothing
  std::string missing_;  // the last such line; empty before this node has joined

  mutable Mutex mutex_;  // leaf; guards what follows
  Status failure_ GUARDED_BY(mutex_);
  bool done_ GUARDED_BY(mutex_) = false;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
