#include "tests/support/network/in_process_transport.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <unordered_set>

#include <fmt/format.h>

#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {
namespace {

// Well below the 20 ms that the contract allows, so that deadlines of tests can be short.
constexpr auto kTick = std::chrono::milliseconds(2);

// Messages that may wait for one that does not read: more than any test needs.
constexpr size_t kMostQueued = 10000;

uint64_t total(const std::vector<iovec>& memory) {
  uint64_t bytes = 0;
  for (const iovec& run : memory) bytes += run.iov_len;
  return bytes;
}

std::vector<std::byte> gather(const std::vector<iovec>& memory) {
  std::vector<std::byte> bytes(total(memory));
  size_t at = 0;
  for (const iovec& run : memory) {
    std::memcpy(bytes.data() + at, run.iov_base, run.iov_len);
    at += run.iov_len;
  }
  return bytes;
}

void scatter(const std::vector<std::byte>& bytes, const std::vector<iovec>& memory) {
  size_t at = 0;
  for (const iovec& run : memory) {
    const size_t length = std::min(run.iov_len, bytes.size() - at);
    std::memcpy(run.iov_base, bytes.data() + at, length);
    at += length;
  }
}

}  // namespace

// A transfer under way. Whoever finds `done` still set and takes it calls it.
struct InProcessNetwork::Bulk {
  NodeId from;
  TransferNumber number = 0;
  bool corrupt = false;
  bool stuck = false;
  bool failed = false;
  uint64_t flip = 0;  // which bit

  Mutex mutex;  // leaf
  std::vector<iovec> memory GUARDED_BY(mutex);
  std::optional<std::vector<std::byte>> copy
      GUARDED_BY(mutex);  // once the sender's memory is not read any more
  Transport::SendDone done GUARDED_BY(mutex);

  void take_copy() {
    MutexLock lock(mutex);
    if (!copy) copy = gather(memory);
  }
  Transport::SendDone take_done() {
    MutexLock lock(mutex);
    if (!copy) copy.emplace();  // the memory is the sender's again
    return std::exchange(done, nullptr);
  }
  std::vector<std::byte> bytes() {
    MutexLock lock(mutex);
    return copy ? *copy : gather(memory);
  }
};

struct InProcessNetwork::Shared {
  Mutex mutex;  // leaf
  NetworkFaults faults GUARDED_BY(mutex);
  SequencePoints points;
  std::vector<std::unique_ptr<Endpoint>> endpoints;  // constant after construction
};

class InProcessNetwork::Endpoint final : public Transport {
 public:
  Endpoint(Shared& network, NodeId self, uint32_t nodes, uint64_t seed)
      : network_(network), self_(self), nodes_(nodes), last_arrival_(nodes), queued_from_(nodes) {
    for (uint32_t to = 0; to < nodes; ++to) {
      std::seed_seq mix{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), self.value, to};
      random_.emplace_back(mix);
    }
  }
  ~Endpoint() override { Endpoint::stop({}); }

  NodeId self() const override { return self_; }
  uint32_t size() const override { return nodes_; }
  std::string network_text() const override { return "none"; }

  void start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    thread_ = NamedThread(fmt::format("net-{}", self_.value), [this] { run(); });
  }

  Status send(NodeId to, std::vector<std::byte> message) override {
    if (message.size() > kMaxMessage) return Error{EMSGSIZE, "the message is too long"};
    if (peer(to).waiting_from(self_) > kMostQueued)
      return Error{EAGAIN, fmt::format("node {} does not read its messages", to.value)};
    const bool accepted = post(std::chrono::steady_clock::now(),
                               [this, to, bytes = std::move(message)] { message_leaves(to, bytes); });
    return accepted ? Status{} : Error{ECANCELED, "the network is stopped"};
  }

  void receive(NodeId from, TransferNumber number, std::vector<iovec> memory, ReceiveDone done) override {
    MutexLock lock(mutex_);
    if (stopping_) return;
    receives_[{from, number}] = {std::move(memory), std::move(done), false};
  }

  void cancel(NodeId from, TransferNumber number) override {
    post(std::chrono::steady_clock::now(), [this, from, number] {
      std::optional<Receive> receive = take_receive(from, number);
      if (!receive) return;
      if (receive->stuck) haunted_.push_back(receive->memory);
      receive->done(Error{receive->stuck ? EBUSY : ECANCELED, "the transfer was cancelled"});
    });
  }

  void send_bulk(NodeId to, TransferNumber number, std::vector<iovec> memory, SendDone done) override {
    auto bulk = std::make_shared<Bulk>();
    bulk->from = self_;
    bulk->number = number;
    {
      MutexLock lock(bulk->mutex);
      bulk->memory = std::move(memory);
      bulk->done = std::move(done);
    }
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      sends_[to].insert(bulk);
    }
    if (peer(to).silent()) bulk->take_copy();
    post(std::chrono::steady_clock::now(), [this, to, bulk] { transfer_leaves(to, bulk); });
  }

  void stop(Duration patience) override {
    {
      MutexLock lock(mutex_);
      if (!stopping_) leave_until_ = std::chrono::steady_clock::now() + patience;
      stopping_ = true;
      hung_ = false;
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    give_up();
  }

  void kill() {
    dead_ = true;
    for (const auto& other : network_.endpoints) other->copy_sends_to(self_);
  }
  void hang() {
    {
      MutexLock lock(mutex_);
      hung_ = true;
    }
    for (const auto& other : network_.endpoints) other->copy_sends_to(self_);
  }
  void wake() {
    MutexLock lock(mutex_);
    hung_ = false;
    wake_.notify_all();
  }
  size_t queued() {
    MutexLock lock(mutex_);
    return std::accumulate(queued_from_.begin(), queued_from_.end(), size_t{0});
  }
  size_t stuck() {
    MutexLock lock(mutex_);
    return static_cast<size_t>(std::count_if(receives_.begin(), receives_.end(),
                                             [](const auto& entry) { return entry.second.stuck; }));
  }

 private:
  struct Receive {
    std::vector<iovec> memory;
    ReceiveDone done;
    bool stuck = false;
  };
  using Event = std::function<void()>;

  Endpoint& peer(NodeId node) const { return *network_.endpoints[node.index()]; }
  NetworkFaults faults() const {
    MutexLock lock(network_.mutex);
    return network_.faults;
  }
  bool silent() {
    MutexLock lock(mutex_);
    return hung_ || dead_;
  }
  size_t waiting_from(NodeId node) {
    MutexLock lock(mutex_);
    return queued_from_[node.index()];
  }
  // What a dead or hung node has not taken by now it may take much later or never: until then the sender may
  // have given its memory to others.
  void copy_sends_to(NodeId node) {
    MutexLock lock(mutex_);
    for (const auto& bulk : sends_[node]) bulk->take_copy();
  }

  bool post(TimePoint when, Event event) {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    events_.emplace(when, std::move(event));
    wake_.notify_all();
    return true;
  }

  std::optional<Receive> take_receive(NodeId from, TransferNumber number) {
    MutexLock lock(mutex_);
    const auto found = receives_.find({from, number});
    if (found == receives_.end()) return std::nullopt;
    Receive receive = std::move(found->second);
    receives_.erase(found);
    return receive;
  }

  // On the sender's thread.
  bool happens(NodeId to, double probability) {
    return std::uniform_real_distribution<double>()(random_[to.index()]) < probability;
  }
  TimePoint arrival(NodeId to, const NetworkFaults& faults) {
    std::uniform_int_distribution<Duration::rep> delay(
        faults.least_delay.count(), std::max(faults.least_delay, faults.most_delay).count());
    return std::chrono::steady_clock::now() + Duration(delay(random_[to.index()]));
  }

  void message_leaves(NodeId to, const std::vector<std::byte>& message) {
    const NetworkFaults now = faults();
    TimePoint& last = last_arrival_[to.index()];
    last = std::max(last, arrival(to, now));
    const bool lost = happens(to, now.lose_message);
    if (lost || dead_) return;
    Endpoint& receiver = peer(to);
    {
      MutexLock lock(receiver.mutex_);
      ++receiver.queued_from_[self_.index()];
    }
    if (receiver.post(last, [&receiver, from = self_, message] { receiver.message_arrives(from, message); }))
      return;
    MutexLock lock(receiver.mutex_);
    --receiver.queued_from_[self_.index()];
  }

  void transfer_leaves(NodeId to, const std::shared_ptr<Bulk>& bulk) {
    const NetworkFaults now = faults();
    const TimePoint when = arrival(to, now);
    const bool lost = happens(to, now.lose_transfer);
    bulk->corrupt = happens(to, now.corrupt_transfer);
    bulk->stuck = happens(to, now.stuck_transfer);
    bulk->failed = happens(to, now.fail_transfer);
    bulk->flip = random_[to.index()]();
    if (dead_) return;
    if (lost) return sent(to, bulk);
    peer(to).post(when,
                  [&receiver = peer(to), &sender = *this, bulk] { receiver.transfer_arrives(sender, bulk); });
  }

  void sent(NodeId to, const std::shared_ptr<Bulk>& bulk) {
    {
      MutexLock lock(mutex_);
      sends_[to].erase(bulk);
    }
    if (const SendDone done = bulk->take_done()) done({});
  }

  // On the receiver's thread.
  void message_arrives(NodeId from, const std::vector<std::byte>& message) {
    {
      MutexLock lock(mutex_);
      --queued_from_[from.index()];
    }
    if (!dead_) handlers_.message(from, message);
  }

  void transfer_arrives(Endpoint& sender, const std::shared_ptr<Bulk>& bulk) {
    if (dead_) return;
    if (bulk->stuck) {
      MutexLock lock(mutex_);
      const auto found = receives_.find({bulk->from, bulk->number});
      if (found != receives_.end()) found->second.stuck = true;
      return;
    }
    std::optional<Receive> receive = take_receive(bulk->from, bulk->number);
    Status status;
    if (receive) {
      std::vector<std::byte> bytes = bulk->bytes();
      if (bulk->corrupt && !bytes.empty())
        bytes[bulk->flip / 8 % bytes.size()] ^= static_cast<std::byte>(1U << bulk->flip % 8);
      if (bytes.size() != total(receive->memory)) status = Error{EMSGSIZE, "the peer sent another length"};
      if (bulk->failed) status = Error{ECANCELED, "the network cannot receive"};
      if (status) scatter(bytes, receive->memory);
    }
    sender.post(std::chrono::steady_clock::now(), [&sender, to = self_, bulk] { sender.sent(to, bulk); });
    if (receive) receive->done(status);
  }

  void run() {
    TimePoint next_tick{};
    MutexLock lock(mutex_);
    for (;;) {
      const TimePoint now = std::chrono::steady_clock::now();
      if (stopping_ && (events_.empty() || now >= leave_until_)) return;
      if (hung_) {
        wake_.wait(lock);
      } else if (now >= next_tick && !stopping_) {
        next_tick = now + kTick;
        lock.unlock();
        haunt();
        handlers_.tick(now);
        network_.points.pass();
        lock.lock();
      } else if (!events_.empty() && events_.begin()->first <= now) {
        const Event event = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        lock.unlock();
        event();
        network_.points.pass();
        lock.lock();
      } else {
        const TimePoint until = stopping_ ? leave_until_ : next_tick;
        wake_.wait_until(lock, events_.empty() ? until : std::min(until, events_.begin()->first));
      }
    }
  }

  // What a transfer that nobody could stop does to its memory.
  void haunt() {
    for (const auto& memory : haunted_) {
      for (const iovec& run : memory) std::memset(run.iov_base, 0xdb, run.iov_len);
    }
  }

  // After the thread has ended.
  void give_up() {
    std::map<std::pair<NodeId, TransferNumber>, Receive> receives;
    std::map<NodeId, std::unordered_set<std::shared_ptr<Bulk>>> sends;
    std::multimap<TimePoint, Event> events;
    {
      MutexLock lock(mutex_);
      receives.swap(receives_);
      sends.swap(sends_);
      events.swap(events_);
    }
    for (auto& [key, receive] : receives) receive.done(Error{ECANCELED, "the network is stopped"});
    for (auto& [to, bulks] : sends) {
      for (const auto& bulk : bulks) {
        if (const SendDone done = bulk->take_done()) done(Error{ECANCELED, "the network is stopped"});
      }
    }
  }

  // Constant after start().
  Shared& network_;
  const NodeId self_;
  const uint32_t nodes_;
  Handlers handlers_;

  // Of the net thread.
  std::vector<std::mt19937_64> random_;  // by receiver
  std::vector<TimePoint> last_arrival_;  // by receiver, of messages
  std::vector<std::vector<iovec>> haunted_;

  std::atomic<bool> dead_{false};
  Mutex mutex_;  // before that of a Bulk
  CondVar wake_;
  std::multimap<TimePoint, Event> events_ GUARDED_BY(mutex_);  // of one time: in order of their posting
  std::map<std::pair<NodeId, TransferNumber>, Receive> receives_ GUARDED_BY(mutex_);
  std::map<NodeId, std::unordered_set<std::shared_ptr<Bulk>>> sends_ GUARDED_BY(mutex_);  // by receiver
  std::vector<size_t> queued_from_ GUARDED_BY(mutex_);  // messages on their way here, by sender
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool hung_ GUARDED_BY(mutex_) = false;
  TimePoint leave_until_ GUARDED_BY(mutex_);
  NamedThread thread_;
};

InProcessNetwork::InProcessNetwork(uint32_t nodes, uint64_t seed, const NetworkFaults& faults)
    : shared_(std::make_unique<Shared>()) {
  set_faults(faults);
  for (uint32_t node = 0; node < nodes; ++node)
    shared_->endpoints.push_back(std::make_unique<Endpoint>(*shared_, NodeId(node), nodes, seed));
}

InProcessNetwork::~InProcessNetwork() {
  for (const auto& endpoint : shared_->endpoints) endpoint->stop({});
}

Transport& InProcessNetwork::endpoint(NodeId node) {
  return *shared_->endpoints[node.index()];
}

void InProcessNetwork::set_faults(const NetworkFaults& faults) {
  MutexLock lock(shared_->mutex);
  shared_->faults = faults;
}

void InProcessNetwork::kill(NodeId node) {
  shared_->endpoints[node.index()]->kill();
}
void InProcessNetwork::hang(NodeId node) {
  shared_->endpoints[node.index()]->hang();
}
void InProcessNetwork::wake(NodeId node) {
  shared_->endpoints[node.index()]->wake();
}
size_t InProcessNetwork::queued(NodeId node) const {
  return shared_->endpoints[node.index()]->queued();
}
size_t InProcessNetwork::stuck(NodeId node) const {
  return shared_->endpoints[node.index()]->stuck();
}
SequencePoints& InProcessNetwork::points() {
  return shared_->points;
}

}  // namespace clairfs
