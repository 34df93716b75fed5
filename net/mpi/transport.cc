#include "net/mpi/transport.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/mpi/library.h"
#include "net/mpi/loop.h"
#include "net/mpi/network_choice.h"
#include "net/mpi/wind_up.h"

namespace clairfs {
namespace {

// What a queued message costs besides its bytes: request, closure, allocation.
constexpr size_t kMessageOverhead = 256;

// How often a caller that waits for the other ranks is asked whether it still wants to: as a person notices.
constexpr auto kWaitingPeriod = std::chrono::milliseconds(100);

// An unmount may be under way, which takes a second or so for the log. One that hangs is left to its guard.
constexpr auto kAbortPatience = std::chrono::seconds(10);

// Whoever has given up on MPI ends the process, by then in any case.
constexpr auto kGivenUpPatience = std::chrono::minutes(1);

// Catches MPI's way of reporting a fatal error, which is to call exit() on our net thread. Lives as long as
// the process, as exit handlers do.
struct AbortGuard {
  std::atomic<std::thread::id> net_thread;
  LastCall& before_abort;  // of the transport, which is there as long as its thread is

  static void at_exit(int /*status*/, void* self) {
    auto& guard = *static_cast<AbortGuard*>(self);
    if (std::this_thread::get_id() != guard.net_thread.load()) return;
    if (!guard.before_abort.make()) std::this_thread::sleep_for(kGivenUpPatience);
    ::_exit(1);
  }
};

}  // namespace

Result<std::unique_ptr<MpiTransport>> MpiTransport::connect(const JobPlace& place, MpiOptions options,
                                                            Logger& log) {
  Fd waker(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!waker) return system_error(errno, "eventfd");
  std::string network = choose_network(options.network, log);
  std::unique_ptr<MpiTransport> transport(new MpiTransport(place, std::move(options), std::move(waker), log));
  transport->network_ = std::move(network);
  const Status connected = transport->wait_connected();
  if (connected) {
    transport->launch_ = MpiLaunch::take_over();
    return transport;
  }
  if (!transport->init_ended()) {
    // The net thread is within MPI_Init and cannot be called back. MPI may still end the process from there,
    // when what was to be called before that is gone.
    if (!transport->before_abort_.call_off(kAbortPatience)) ::_exit(1);
    static_cast<void>(transport.release());
  }
  return connected.error();
}

MpiTransport::MpiTransport(const JobPlace& place, MpiOptions options, Fd waker, Logger& log)
    : place_(place),
      options_(std::move(options)),
      log_(log),
      before_abort_([this] {
        log_.critical("MPI gave up and ends this process; its own message is on the standard error output");
        if (options_.before_abort) options_.before_abort();
      }),
      network_sleep_(std::move(waker), clock_),
      unreachable_(place.size),
      queued_bytes_(place.size),
      thread_("net", [this] { run(); }) {}

MpiTransport::~MpiTransport() {
  MpiTransport::stop(Duration::zero());
}

Status MpiTransport::wait_connected() {
  const TimePoint deadline = steady_now() + options_.connect_patience;
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!connected_) changed_.wait_until(lock, std::min(deadline, steady_now() + kWaitingPeriod));
      if (connected_) return *connected_;
    }
    if (steady_now() >= deadline) {
      return Error{ETIMEDOUT, fmt::format("MPI_Init: not all {} nodes of the job have come", place_.size)};
    }
    if (options_.waiting) options_.waiting();
    if (options_.hindrance) {
      if (Status hindered = options_.hindrance(); !hindered) return hindered;
    }
  }
}

bool MpiTransport::init_ended() {
  MutexLock lock(mutex_);
  return connected_.has_value();
}

std::string MpiTransport::network_text() const {
  const std::string taken = network_taken();
  return taken.empty() ? network_ : fmt::format("{}; UCX says it took {}", network_, taken);
}

void MpiTransport::run() {
  // First: exit handlers run in reverse order, and the guard's must come before those that MPI brings along.
  const auto& library = loaded_mpi();
  auto* guard = new AbortGuard{std::this_thread::get_id(), before_abort_};
  ::on_exit(AbortGuard::at_exit, guard);
  if (library) watch_network(log_);
  const bool hears_network = library && takes_tcp_alone();  // now: connect() changes the environment later
  const auto world = library ? init_mpi(place_) : library.error();
  {
    MutexLock lock(mutex_);
    connected_ = world ? Status() : world.error();
  }
  changed_.notify_all();
  if (world) {
    if (hears_network) network_sleep_.listen_to(event_sets());
    MpiLoop loop(*world, place_);
    serve(loop);
  }
  forget_log();
  guard->net_thread =
      std::thread::id();  // exit() from another thread that happens to get this id is no abort
}

void MpiTransport::serve(MpiLoop& loop) {
  for (;;) {
    run_commands(loop, loop.turn());
    std::optional<TimePoint> stop_by;
    {
      MutexLock lock(mutex_);
      stop_by = stop_by_;
    }
    if (stop_by) return wind_up(loop, *stop_by);
  }
}

void MpiTransport::run_commands(MpiLoop& loop, Duration sleep) {
  std::vector<Command> commands;
  {
    MutexLock lock(mutex_);
    if (commands_.empty() && !stop_by_ && sleep > Duration::zero()) {
      asleep_ = true;
      lock.unlock();
      network_sleep_.sleep(sleep);
      lock.lock();
      asleep_ = false;
    }
    commands.swap(commands_);
  }
  for (auto& command : commands) command(loop);
  if (commands.empty() && sleep == Duration::zero()) {
    std::this_thread::yield();  // where ranks outnumber cores, whoever we wait for needs this one
  }
}

void MpiTransport::wind_up(MpiLoop& loop, TimePoint stop_by) {
  const auto all_left = [this] {
    MutexLock lock(mutex_);
    return commands_.empty() && queued_messages_ == 0;
  };
  WindUp last(stop_by);
  while (last.sends_on(steady_now(), all_left())) run_commands(loop, loop.turn());
  loop.bulk.cancel_all();
  while (last.lingers_on(steady_now(), loop.bulk.receiving() > 0)) run_commands(loop, loop.turn());
  loop.bulk.abandon_all();
  launch_.leave();
}

void MpiTransport::push(Command command) {
  commands_.push_back(std::move(command));
  rouse();
}

void MpiTransport::rouse() {
  if (std::exchange(asleep_, false)) network_sleep_.wake();
}

void MpiTransport::post(Command command) {
  MutexLock lock(mutex_);
  if (stop_by_) return;
  push([command = std::move(command)](MpiLoop& loop) {
    loop.pace.activity(steady_now());
    command(loop);
  });
}

void MpiTransport::start(Handlers handlers) {
  post([handlers = std::move(handlers)](MpiLoop& loop) { loop.handlers = handlers; });
}

Status MpiTransport::send(NodeId to, std::vector<std::byte> message) {
  if (message.size() > kMaxMessage) {
    return Error{EMSGSIZE, fmt::format("a message of {} bytes; at most {} go", message.size(), kMaxMessage)};
  }
  const size_t cost = std::max(message.size(), kMessageOverhead);
  MutexLock lock(mutex_);
  if (stop_by_) return Error{ECANCELED, "the transport was stopped"};
  if (queued_bytes_[to.index()] + cost > options_.queued_bytes_per_peer) {
    return Error{EAGAIN, fmt::format("node {} does not read: too much is queued for it", to.value)};
  }
  queued_bytes_[to.index()] += cost;
  ++queued_messages_;
  push([this, to, cost, message = std::move(message)](MpiLoop& loop) mutable {
    const auto& stands_alone = loop.handlers.stands_alone;
    if (!stands_alone || !stands_alone(message)) loop.pace.activity(steady_now());
    loop.messages.send(to, std::move(message),
                       [this, to, cost](int error) { message_left(to, cost, error); });
  });
  return {};
}

void MpiTransport::message_left(NodeId to, size_t cost, int error) {
  if (error != MPI_SUCCESS && !unreachable_[to.index()]) {
    unreachable_[to.index()] = true;
    log_.warn("node {} cannot be reached any more: {}", to.value, mpi_error_text(error));
  }
  MutexLock lock(mutex_);
  queued_bytes_[to.index()] -= cost;
  --queued_messages_;
}

void MpiTransport::receive(NodeId from, TransferNumber number, std::vector<iovec> memory, ReceiveDone done) {
  post([from, number, memory = std::move(memory), done = std::move(done)](MpiLoop& loop) mutable {
    loop.bulk.receive(from, number, memory, std::move(done));
  });
}

void MpiTransport::cancel(NodeId from, TransferNumber number) {
  post([from, number](MpiLoop& loop) { loop.bulk.cancel(from, number); });
}

void MpiTransport::send_bulk(NodeId to, TransferNumber number, std::vector<iovec> memory, SendDone done) {
  post([to, number, memory = std::move(memory), done = std::move(done)](MpiLoop& loop) mutable {
    loop.bulk.send(to, number, memory, std::move(done));
  });
}

void MpiTransport::stop(Duration patience) {
  {
    MutexLock lock(mutex_);
    if (!stop_by_) stop_by_ = steady_now() + patience;
    rouse();
  }
  MutexLock lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace clairfs
