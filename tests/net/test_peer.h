// A rank of a test job: serves made-up bytes to who asks for them, asks others for theirs, and checks them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "cache/base/mutex.h"
#include "net/transport/transport.h"

namespace clairfs {

/// Byte `offset` of transfer `number` from one rank to another is a function of these: see fill().
struct Content {
  NodeId from;
  NodeId to;
  TransferNumber number = 0;
};
void fill(const Content& content, std::span<std::byte> memory);

/// `memory` cut into up to `parts` pieces of unequal length.
std::vector<iovec> scattered(std::span<std::byte> memory, unsigned parts);

/// A bulk receive and what came of it.
struct Fetch {
  Content content;
  std::vector<std::byte> memory;
  std::optional<Status> status;  // once over
  int calls = 0;                 // of the call-back
  bool right() const;            // memory holds the content
};
using Fetched = std::shared_ptr<Fetch>;

/// Thread-safe.
class TestPeer {
 public:
  struct Request {
    TransferNumber number;
    uint64_t size;  // bytes to send, whatever the receiver expects
    uint32_t parts;
  };

  explicit TestPeer(Transport& transport);
  void start();

  /// Posts the receive.
  Fetched expect(NodeId from, TransferNumber number, size_t size, unsigned parts);
  /// Asks the peer to send `number`, tried again for as long as too much is queued.
  void request(NodeId from, const Request& request);
  /// Both.
  Fetched fetch(NodeId from, TransferNumber number, size_t size, unsigned parts);

  /// Waits for its end; false at the deadline.
  bool wait(const Fetched& fetch, std::chrono::milliseconds patience);

  /// A message of `size` bytes that the other side checks for content and order. False when too much is
  /// queued.
  bool chat(NodeId to, size_t size);
  /// From now on nothing follows upon such messages (Transport::Handlers::stands_alone).
  void let_chats_stand_alone() { chats_stand_alone_ = true; }
  /// Messages of the kind above that came from `from`.
  uint64_t heard(NodeId from);

  /// Tells all of `ranks` that we have come to `phase`, and waits until they have. False at the deadline.
  bool meet(uint32_t phase, const std::set<NodeId>& ranks, std::chrono::milliseconds patience);

  uint64_t ticks();
  /// Longest time between two ticks.
  Duration longest_gap();
  /// Bulk sends that have not ended.
  int sending();
  uint64_t mistakes();  // wrong content or order in messages

 private:
  void on_message(NodeId from, std::span<const std::byte> message);
  void on_chat(NodeId from, std::span<const std::byte> body);
  void serve(NodeId to, const Request& request);
  bool send(NodeId to, std::vector<std::byte> message, std::chrono::milliseconds patience);

  Transport& transport_;
  std::atomic<bool> chats_stand_alone_{false};
  Mutex mutex_;
  CondVar changed_;
  std::map<NodeId, uint64_t> said_ GUARDED_BY(mutex_);
  std::map<NodeId, uint64_t> heard_ GUARDED_BY(mutex_);
  std::map<uint32_t, std::set<NodeId>> arrived_ GUARDED_BY(mutex_);
  uint64_t mistakes_ GUARDED_BY(mutex_) = 0;
  uint64_t ticks_ GUARDED_BY(mutex_) = 0;
  TimePoint last_tick_ GUARDED_BY(mutex_);
  Duration longest_gap_ GUARDED_BY(mutex_){};
  int sending_ GUARDED_BY(mutex_) = 0;
};

}  // namespace clairfs
