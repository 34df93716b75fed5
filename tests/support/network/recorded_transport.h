// A transport that sends nothing: tests see what was asked of it, and say what arrives.
#pragma once

#include <cerrno>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"
#include "tests/support/eventually.h"

namespace clairfs {

/// Of node `self`. Thread-safe, but for the call-backs, which are made by whoever ends a receive.
class RecordedTransport final : public Transport {
 public:
  RecordedTransport(NodeId self, uint32_t nodes) : self_(self), nodes_(nodes) {}

  NodeId self() const override { return self_; }
  uint32_t size() const override { return nodes_; }
  std::string network_text() const override { return "none"; }
  void start(Handlers) override {}
  Status send(NodeId to, std::vector<std::byte> message) override {
    {
      MutexLock lock(mutex_);
      sent_.emplace_back(to, *wire::decode(message));
    }
    points_.pass();
    return {};
  }
  void receive(NodeId, TransferNumber number, std::vector<iovec> memory, ReceiveDone done) override {
    {
      MutexLock lock(mutex_);
      receives_.push_back({number, memory.front(), std::move(done)});
    }
    points_.pass();
  }
  /// Without effect until end().
  void cancel(NodeId, TransferNumber number) override {
    MutexLock lock(mutex_);
    cancelled_.push_back(number);
  }
  void send_bulk(NodeId, TransferNumber number, std::vector<iovec>, SendDone) override {
    MutexLock lock(mutex_);
    bulks_.push_back(number);
  }
  void stop(Duration) override {}

  /// All messages since the last call, of this or of take_sent().
  std::vector<std::pair<NodeId, wire::Message>> take_all() {
    MutexLock lock(mutex_);
    return std::exchange(sent_, {});
  }
  /// Those of them of a kind.
  template <class Kind>
  std::vector<Kind> take_sent() {
    std::vector<Kind> list;
    for (const auto& [to, message] : take_all()) {
      if (const auto* kind = std::get_if<Kind>(&message)) list.push_back(*kind);
    }
    return list;
  }
  std::vector<TransferNumber> take_bulks() {
    MutexLock lock(mutex_);
    return std::exchange(bulks_, {});
  }
  std::vector<TransferNumber> take_cancelled() {
    MutexLock lock(mutex_);
    return std::exchange(cancelled_, {});
  }
  /// Where the receives that have not ended write to.
  std::vector<iovec> memory() {
    MutexLock lock(mutex_);
    std::vector<iovec> list;
    for (const Receive& receive : receives_) list.push_back(receive.memory);
    return list;
  }
  /// One is passed after each send() and receive().
  SequencePoints& points() { return points_; }
  /// Ends the receives.
  void end(const Status& status) {
    std::vector<Receive> ended;
    {
      MutexLock lock(mutex_);
      ended.swap(receives_);
    }
    for (const Receive& receive : ended) receive.done(status);
  }

 private:
  struct Receive {
    TransferNumber number;
    iovec memory;
    ReceiveDone done;
  };
  const NodeId self_;
  const uint32_t nodes_;
  SequencePoints points_;
  Mutex mutex_;  // leaf
  std::vector<std::pair<NodeId, wire::Message>> sent_ GUARDED_BY(mutex_);
  std::vector<Receive> receives_ GUARDED_BY(mutex_);
  std::vector<TransferNumber> cancelled_ GUARDED_BY(mutex_);
  std::vector<TransferNumber> bulks_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
