// The transport over MPI (MPICH).
//
// Every call of MPI, from MPI_Init on, is made by one thread, "net"; the public calls queue closures for it.
// That thread also loads the library, after UCX was told what to use: UCX reads some of it while it is
// loaded. MPI has nothing to sleep on, so the thread polls: see poll_pace.h. A queued closure wakes it at
// once, and over TCP so does what UCX is about to find in its sockets: see network_sleep.h.
//
// MPI_Finalize is never called: it is a barrier over all ranks, dead ones included, and one rank's unmount
// must neither wait for the others nor end them. The process just ends; see README.md for what was measured.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"
#include "cache/base/types.h"
#include "cache/tasks/last_call.h"
#include "net/mpi/launch.h"
#include "net/transport/network_sleep.h"
#include "net/transport/transport.h"

namespace clairfs {

struct MpiLoop;

struct MpiOptions {
  /// How long connect() waits for all ranks of the job. Nodes may start minutes apart under a busy scheduler.
  Duration connect_patience = std::chrono::minutes(2);
  /// Called several times a second meanwhile, by connect()'s thread, which may end the process there.
  std::function<void()> waiting{};
  /// Asked as often meanwhile, by the same thread: an error says that the ranks will never all come, and ends
  /// the wait.
  std::function<Status()> hindrance{};
  /// See choose_network().
  std::string network{};
  /// Bytes of messages queued for one peer beyond which send() says EAGAIN; each counts as at least 256 for
  /// what it costs besides. 16 of the largest.
  size_t queued_bytes_per_peer = 16 * kMaxMessage;
  /// MPI_Init never fails: it ends the process. This is called just before, from the net thread, within
  /// exit(): the last occasion to unmount. The process then ends by _exit(1). Not called any more once
  /// connect() has returned an error.
  std::function<void()> before_abort{};
};

/// Thread-safe. At most one in the life of a process (MPI can be initialised once). Once there was one, the
/// process is to end by _exit(): UCX leaves a thread behind that may still run when exit() takes its
/// libraries down.
class MpiTransport final : public Transport {
 public:
  /// Loads and initialises MPI and waits for all ranks. `place` is what the launcher or a meeting says; `log`
  /// outlives the transport. REQUIRES: no other thread reads or writes the environment meanwhile: UCX and
  /// MPICH are told what to use where the user has not (UCX_TLS and others), and what the launcher put there
  /// is removed; SIGUSR1 does not end the process: mpiexec sends it to all ranks when one has died. Errors:
  /// those of load_mpi(); ETIMEDOUT when not all ranks came, and what options.hindrance says (MPI cannot be
  /// left any more then: end the process with _exit); EPROTO when MPI sees another job than the environment
  /// tells of (mpiexec of another MPI); ENOTSUP when this MPI's tags are too small; those of eventfd(2).
  static Result<std::unique_ptr<MpiTransport>> connect(const JobPlace& place, MpiOptions options,
                                                       Logger& log);
  /// Stops without patience.
  ~MpiTransport() override;

  NodeId self() const override { return place_.self; }
  uint32_t size() const override { return place_.size; }
  /// The networks that MPI may take, and those it took, for people.
  std::string network_text() const override;
  void start(Handlers handlers) override;
  Status send(NodeId to, std::vector<std::byte> message) override;
  void receive(NodeId from, TransferNumber number, std::vector<iovec> memory, ReceiveDone done) override;
  void cancel(NodeId from, TransferNumber number) override;
  void send_bulk(NodeId to, TransferNumber number, std::vector<iovec> memory, SendDone done) override;
  /// A receive that MPI still holds gets EBUSY instead of ECANCELED. Takes up to 100 ms more than `patience`,
  /// not counting the time in which the net thread gets no processor.
  void stop(Duration patience) override;

 private:
  using Command = std::function<void(MpiLoop&)>;

  MpiTransport(const JobPlace& place, MpiOptions options, Fd waker, Logger& log);
  void run();
  void serve(MpiLoop& loop);
  void wind_up(MpiLoop& loop, TimePoint stop_by);

  Status wait_connected();
  bool init_ended();
  /// Ends the net thread's sleep, if it sleeps.
  void rouse() REQUIRES(mutex_);
  /// Queues for the net thread, and wakes it.
  void push(Command command) REQUIRES(mutex_);
  /// The same, unless stopped.
  void post(Command command);
  /// Runs what is queued; sleeps before if nothing is.
  void run_commands(MpiLoop& loop, Duration sleep);
  void message_left(NodeId to, size_t cost, int error);

  const JobPlace place_;
  const MpiOptions options_;
  Logger& log_;
  LastCall before_abort_;
  const SteadyClock clock_{};
  NetworkSleep network_sleep_;     // net thread; others wake it
  std::string network_;            // constant once connected
  MpiLaunch launch_;               // written before stop() may be called; then net thread only
  std::vector<bool> unreachable_;  // net thread only: what the log was told already

  Mutex mutex_;  // leaf; guards what follows
  CondVar changed_;
  std::optional<Status> connected_ GUARDED_BY(mutex_);
  std::vector<Command> commands_ GUARDED_BY(mutex_);
  bool asleep_ GUARDED_BY(mutex_) = false;  // and was not woken yet
  std::optional<TimePoint> stop_by_ GUARDED_BY(mutex_);
  std::vector<size_t> queued_bytes_ GUARDED_BY(mutex_);  // by rank
  size_t queued_messages_ GUARDED_BY(mutex_) = 0;

  Mutex join_mutex_;                            // before mutex_: one thread joins, others wait for it
  NamedThread thread_ GUARDED_BY(join_mutex_);  // last: uses all of the above
};

}  // namespace clairfs
