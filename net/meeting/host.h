// Node 0's side of a meeting: takes the nodes of a job in, and exchanges what their MPIs put
// (net/meeting/words.h).
//
// One thread, "job-host", serves all connections. A client that is no node of this job is told why, or
// dropped; the nodes never notice. The thread waits without end: each node has its own deadline (meeting.h).
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"
#include "net/meeting/host_port.h"
#include "net/meeting/line_socket.h"
#include "net/meeting/words.h"

namespace clairfs {

struct MeetingHostOptions {
  uint32_t nodes = 1;
  std::string secret;  ///< empty: any client without a secret may join
  /// How long a client may take to introduce itself; a node does in milliseconds.
  Duration stranger_patience = std::chrono::seconds(10);
};

class MeetingHost {
 public:
  /// Listens on the port. On `at.host` alone where that is an address of this machine; else on all, since its
  /// name may mean another one here than elsewhere (Debian's own is 127.0.1.1). `log` outlives it. Errors:
  /// EADDRINUSE, and what socket(2) says.
  static Result<std::unique_ptr<MeetingHost>> open(const HostPort& at, MeetingHostOptions options,
                                                   Logger& log);
  /// Ends the meeting. If give_up() was called, nodes that have come and not said bye are told `why`. Takes a
  /// second at most.
  ~MeetingHost();
  /// Once, before the destructor.
  void give_up(const std::string& why);

 private:
  struct Guest {
    LineSocket line;
    std::string from;
    std::string nonce;
    TimePoint came;
    std::optional<NodeId> rank{};  // has joined
    bool in_barrier = false;
    bool bye = false;
    bool leaving = false;  // dropped when all is sent, or overdue
    size_t put_bytes = 0;  // of this round
  };
  using Guests = std::list<Guest>;

  MeetingHost(Fd listener, Fd wake, const HostPort& at, MeetingHostOptions options, Logger& log);
  void run();
  void wait_for_events();
  void take_in();
  void admit(Fd socket, const std::string& from);
  void hear(Guest& guest);
  void hear_join(Guest& guest, const std::string& line);
  std::string reason_to_refuse(const Guest& guest, const std::vector<std::string_view>& words) const;
  void hear_node(Guest& guest, const std::string& line);
  void refuse(Guest& guest, const std::string& why);
  void lose(const Guest& guest);
  void drop_the_overdue();
  void fail(const std::string& why);
  void tell_nodes(std::string text);
  void tell_soon();
  void all_have_come();
  void end_round();
  void say_goodbye();
  std::vector<NodeId> missing() const;
  bool is_there(NodeId rank) const { return seats_[rank.index()]; }
  size_t strangers() const;

  // Constant after construction.
  const Fd listener_;
  const Fd wake_;
  const std::string where_;
  const MeetingHostOptions options_;
  Logger& log_;

  // Of the thread.
  Guests guests_;
  std::vector<bool> seats_;
  bool formed_ = false;
  bool failed_ = false;
  std::string puts_;  // of this round
  uint32_t in_barrier_ = 0;
  unsigned refusals_ = 0;
  TimePoint last_telling_{};
  TimePoint next_telling_;
  TimePoint accept_again_;

  Mutex mutex_;  // leaf; guards what follows
  bool ending_ GUARDED_BY(mutex_) = false;
  std::string why_ GUARDED_BY(mutex_);
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
