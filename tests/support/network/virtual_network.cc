#include "tests/support/network/virtual_network.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "cache/base/mutex.h"

namespace clairfs {
namespace {

class VirtualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(now_.load(std::memory_order_relaxed))); }
  void move_to(TimePoint time) { now_.store(time.time_since_epoch().count(), std::memory_order_relaxed); }

 private:
  // Not 0: some code takes that for "never".
  std::atomic<Duration::rep> now_{Duration(std::chrono::hours(1)).count()};
};

struct Event {
  TimePoint when;
  uint64_t order = 0;  // of what happens at one time
  std::function<void()> what;
  bool operator<(const Event& other) const {  // of the priority_queue: the last is the first
    return std::pair(when, order) > std::pair(other.when, other.order);
  }
};

}  // namespace

struct VirtualNetwork::Shared {
  explicit Shared(const VirtualNetworkOptions& its_options) : options(its_options) {}

  void post(TimePoint when, std::function<void()> what) {
    MutexLock lock(mutex);
    events.push({when, next_order++, std::move(what)});
  }
  /// The next of those until then.
  std::function<void()> take(TimePoint until) {
    MutexLock lock(mutex);
    if (events.empty() || events.top().when > until) return nullptr;
    clock.move_to(std::max(clock.now(), events.top().when));
    auto what = std::move(const_cast<Event&>(events.top()).what);  // which its order does not depend on
    events.pop();
    return what;
  }

  const VirtualNetworkOptions options;
  VirtualClock clock;
  std::vector<std::unique_ptr<Endpoint>> endpoints;  // constant after construction

  Mutex mutex;  // leaf
  std::priority_queue<Event> events GUARDED_BY(mutex);
  uint64_t next_order GUARDED_BY(mutex) = 0;

  // Of the caller's thread.
  uint32_t next_tick_of = 0;
  TimePoint next_tick = clock.now();
};

class VirtualNetwork::Endpoint final : public Transport {
 public:
  Endpoint(Shared& network, NodeId self, uint32_t nodes)
      : network_(network), self_(self), nodes_(nodes), rate_(network.options.bytes_per_second) {}
  ~Endpoint() override { Endpoint::stop({}); }

  NodeId self() const override { return self_; }
  uint32_t size() const override { return nodes_; }
  std::string network_text() const override { return "none"; }
  void start(Handlers handlers) override { handlers_ = std::move(handlers); }

  Status send(NodeId to, std::vector<std::byte> message) override {
    if (message.size() > kMaxMessage) return Error{EMSGSIZE, "the message is too long"};
    if (stopped_) return Error{ECANCELED, "the network is stopped"};
    {
      MutexLock lock(mutex_);
      ++sent_.messages;
      sent_.message_bytes += message.size();
    }
    const uint64_t bytes = message.size() + network_.options.message_overhead;
    leave(to, bytes, [&receiver = peer(to), from = self_, message = std::move(message)] {
      receiver.handlers_.message(from, message);
      if (receiver.network_.options.arrived) receiver.network_.options.arrived(from, receiver.self_, message);
    });
    return {};
  }

  void receive(NodeId from, TransferNumber number, std::vector<iovec> memory, ReceiveDone done) override {
    MutexLock lock(mutex_);
    receives_[{from, number}] = {std::move(memory), std::move(done)};
  }

  void cancel(NodeId from, TransferNumber number) override {
    network_.post(network_.clock.now(), [this, from, number] {
      if (const auto receive = take_receive(from, number))
        receive->done(Error{ECANCELED, "the transfer was cancelled"});
    });
  }

  void send_bulk(NodeId to, TransferNumber number, std::vector<iovec> memory, SendDone done) override {
    if (stopped_) return;
    uint64_t bytes = 0;
    for (const iovec& run : memory) bytes += run.iov_len;
    const auto id = std::make_shared<SendDone>(std::move(done));
    {
      MutexLock lock(mutex_);
      sent_.bulk_bytes += bytes;
      sends_.insert(id);
    }
    leave(to, bytes * network_.options.bulk_weight,
          [this, &receiver = peer(to), number, id, memory = std::move(memory), bytes] {
            receiver.bulk_arrives(self_, number, memory, bytes);
            end_send(id, {});
          });
  }

  void stop(Duration) override {
    if (stopped_.exchange(true)) return;
    std::map<std::pair<NodeId, TransferNumber>, Receive> receives;
    std::set<std::shared_ptr<SendDone>> sends;
    {
      MutexLock lock(mutex_);
      receives.swap(receives_);
      sends = sends_;
    }
    for (auto& [key, receive] : receives) receive.done(Error{ECANCELED, "the network is stopped"});
    for (const auto& id : sends) end_send(id, Error{ECANCELED, "the network is stopped"});
  }

  void tick(TimePoint now) {
    if (!dead_ && !hung_ && !stopped_ && handlers_.tick) handlers_.tick(now);
  }
  void kill() { dead_ = true; }
  void hang() { hung_ = true; }
  void wake() {
    hung_ = false;
    for (auto& what : std::exchange(held_, {})) network_.post(network_.clock.now(), std::move(what));
  }
  void slow_down(Duration delay, double rate) {
    delay_ = delay;
    rate_ = rate;
  }
  Traffic sent() const {
    MutexLock lock(mutex_);
    return sent_;
  }
  uint64_t received() const { return received_; }

 private:
  struct Receive {
    std::vector<iovec> memory;
    ReceiveDone done;
  };

  Endpoint& peer(NodeId node) const { return *network_.endpoints[node.index()]; }
  Duration time_for(uint64_t bytes) const {
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / rate_));
  }

  // First this node's card has it, then the other's, which may begin before this one has ended.
  void leave(NodeId to, uint64_t bytes, std::function<void()> arrives) {
    if (dead_) return;
    Endpoint& receiver = peer(to);
    TimePoint gone;
    {
      MutexLock lock(mutex_);
      gone = sends_until_ = std::max(sends_until_, network_.clock.now()) + time_for(bytes);
    }
    const TimePoint there = gone + network_.options.latency + delay_ + receiver.delay_;
    network_.post(there, [this, &receiver, bytes, there, arrives = std::move(arrives)]() mutable {
      const TimePoint whole = std::max(there, receiver.receives_until_ + receiver.time_for(bytes));
      receiver.receives_until_ = whole;
      if (dead_) return;
      network_.post(
          whole, [&receiver, arrives = std::move(arrives)]() mutable { receiver.take(std::move(arrives)); });
    });
  }

  void take(std::function<void()> arrives) {
    if (dead_ || stopped_) return;
    if (hung_) return held_.push_back([this, arrives = std::move(arrives)] { take(arrives); });
    arrives();
  }

  std::optional<Receive> take_receive(NodeId from, TransferNumber number) {
    MutexLock lock(mutex_);
    const auto found = receives_.find({from, number});
    if (found == receives_.end()) return std::nullopt;
    Receive receive = std::move(found->second);
    receives_.erase(found);
    return receive;
  }

  void bulk_arrives(NodeId from, TransferNumber number, const std::vector<iovec>& memory, uint64_t bytes) {
    const auto receive = take_receive(from, number);
    if (!receive) return;
    received_ += bytes;
    size_t run = 0;
    size_t within = 0;
    for (const iovec& source : memory) {
      for (size_t at = 0; at < source.iov_len && run < receive->memory.size();) {
        const iovec& target = receive->memory[run];
        const size_t length = std::min(source.iov_len - at, target.iov_len - within);
        std::memcpy(static_cast<char*>(target.iov_base) + within,
                    static_cast<const char*>(source.iov_base) + at, length);
        at += length;
        within += length;
        if (within < target.iov_len) continue;
        ++run;
        within = 0;
      }
    }
    receive->done({});
  }

  // Once: whoever finds it there.
  void end_send(const std::shared_ptr<SendDone>& id, const Status& status) {
    {
      MutexLock lock(mutex_);
      if (sends_.erase(id) == 0) return;
    }
    (*id)(status);
  }

  // Constant after start().
  Shared& network_;
  const NodeId self_;
  const uint32_t nodes_;
  Handlers handlers_;

  // Of the caller's thread.
  TimePoint receives_until_{};
  std::vector<std::function<void()>> held_;  // while it hangs
  uint64_t received_ = 0;
  bool hung_ = false;
  Duration delay_{};
  double rate_;

  std::atomic<bool> dead_{false};
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;  // leaf
  TimePoint sends_until_ GUARDED_BY(mutex_);
  Traffic sent_ GUARDED_BY(mutex_);
  std::map<std::pair<NodeId, TransferNumber>, Receive> receives_ GUARDED_BY(mutex_);
  std::set<std::shared_ptr<SendDone>> sends_ GUARDED_BY(mutex_);
};

VirtualNetwork::VirtualNetwork(uint32_t nodes, const VirtualNetworkOptions& options)
    : shared_(std::make_unique<Shared>(options)) {
  for (uint32_t node = 0; node < nodes; ++node)
    shared_->endpoints.push_back(std::make_unique<Endpoint>(*shared_, NodeId(node), nodes));
}

VirtualNetwork::~VirtualNetwork() {
  for (const auto& endpoint : shared_->endpoints) endpoint->stop({});
}

Transport& VirtualNetwork::endpoint(NodeId node) {
  return *shared_->endpoints[node.index()];
}
const Clock& VirtualNetwork::clock() const {
  return shared_->clock;
}

void VirtualNetwork::run_for(Duration duration) {
  run_until([] { return false; }, duration);
}

// The nodes have their ticks one after the other, as nodes do that did not begin at the same moment.
bool VirtualNetwork::run_until(const std::function<bool()>& over, Duration most) {
  Shared& net = *shared_;
  const TimePoint end = net.clock.now() + most;
  const auto nodes = static_cast<uint32_t>(net.endpoints.size());
  while (!over()) {
    const TimePoint until = std::min(end, net.next_tick);
    while (const auto what = net.take(until)) what();
    net.clock.move_to(until);
    if (until == end) return over();
    net.endpoints[net.next_tick_of]->tick(until);
    net.next_tick_of = (net.next_tick_of + 1) % nodes;
    net.next_tick += net.options.tick / nodes;
  }
  return true;
}

void VirtualNetwork::kill(NodeId node) {
  shared_->endpoints[node.index()]->kill();
}
void VirtualNetwork::hang(NodeId node) {
  shared_->endpoints[node.index()]->hang();
}
void VirtualNetwork::wake(NodeId node) {
  shared_->endpoints[node.index()]->wake();
}
void VirtualNetwork::slow_down(NodeId node, Duration delay, double bytes_per_second) {
  shared_->endpoints[node.index()]->slow_down(delay, bytes_per_second);
}
VirtualNetwork::Traffic VirtualNetwork::sent(NodeId node) const {
  return shared_->endpoints[node.index()]->sent();
}
uint64_t VirtualNetwork::bulk_bytes_received(NodeId node) const {
  return shared_->endpoints[node.index()]->received();
}

}  // namespace clairfs
