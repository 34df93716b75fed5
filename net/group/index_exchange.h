// In a job one node makes the index of a packed file, the others get it from that one.
//
// A node that needs an index asks all others how far they are with it. It asks one of those that have the
// index to encode its image, and fetches that. It waits for a node that is making the index, and makes it
// itself when none is. Of nodes that begin at the same time the one with the lowest number makes it. No node
// waits for one that makes no progress.
//
// In a large job one network card would send a large image to all. There the nodes are a tree: each waits for
// the node above it as long as that gets on with the index, and gets the image from it. It turns to the next
// node up where that does not need the index, does not get on or does not send it, and in the end to any. All
// above a node have lower numbers, so nodes never wait in a circle.
//
// Threads: messages and ticks on the net thread; fetch() waits on the caller's; images are encoded by what
// `post` runs. mutex_ comes before those of the IndexStore and of an ImageFetch, and is not held while the
// transport is called.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "net/group/image_fetch.h"
#include "net/group/membership.h"
#include "net/transport/transfer_numbers.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"
#include "plan/formats/index/index_peers.h"
#include "plan/formats/index/index_store.h"

namespace clairfs {

struct IndexExchangeOptions : ImageFetchOptions {
  /// Between two questions to the same nodes, at least: too short a wait to be noticed.
  Duration ask_again = std::chrono::milliseconds(200);
  /// Longer in a large job, by so much for each node: where all wait, each has 500 questions a second to
  /// answer.
  Duration ask_each = std::chrono::milliseconds(2);
  /// For an answer, which takes a round trip.
  Duration answer_patience = std::chrono::seconds(2);
  /// For a node that makes or sends the index without getting on: as long as some reads of a slow PFS.
  Duration patience = std::chrono::seconds(20);
  /// Nodes that get the index from the same one above them, where a job has more: so many share its card.
  uint32_t branches = 8;
  /// An image up to that size goes to all nodes from the one that has it. A thousand of them take longer than
  /// the questions on the way down the tree.
  uint64_t direct_bytes = 4 << 20;
  /// An image that no node has asked for in that time is freed, and encoded again for the next request.
  Duration keep_image = std::chrono::seconds(30);

  /// Between two questions to the same nodes, in a job of `nodes`. Short enough that no node is given up
  /// after one question.
  Duration ask_period(uint32_t nodes) const {
    return std::max(ask_again, std::min(nodes * ask_each, answer_patience / 2));
  }
};

/// Destroyed after the transport was stopped.
class IndexExchange final : public IndexPeers {
 public:
  struct Deps {
    Transport& transport;
    TransferNumbers& numbers;
    const Membership& membership;
    const Clock& clock;
    /// Runs it on a thread that may take its time. May be dropped when the job ends.
    std::function<void(std::function<void()>)> post;
  };

  IndexExchange(Deps deps, const IndexExchangeOptions& options) : deps_(std::move(deps)), options_(options) {}

  /// From now on others get the store's indexes. It is used until the transport and `post` have ended.
  void serve(const IndexStore& store);
  /// Ends fetch().
  void stop();

  Result<Mapping> fetch(uint64_t index, IndexWork& work) override;

  // Of the net thread.
  void on_inquiry(NodeId from, const wire::IndexInquiry& inquiry);
  void on_state(NodeId from, const wire::IndexState& state);
  void on_request(NodeId from, const wire::IndexRequest& request);
  void tick(TimePoint now);

 private:
  struct Answer {
    wire::IndexState state;
    TimePoint got_on{};   ///< when it last said something new
    bool failed = false;  ///< its image could not be fetched
  };
  struct Search {
    TimePoint began{};
    std::map<NodeId, Answer> answers;
    std::shared_ptr<ImageFetch> image;
    bool over = false;  ///< this node has the index, or makes it
  };
  struct Image {
    std::shared_ptr<const std::vector<std::byte>> bytes;  ///< null: it is being encoded
    TimePoint used{};
  };
  enum class Next { make, wait, encode, fetch };
  struct Step {
    Next next = Next::make;
    NodeId giver;
    uint64_t bytes = 0;
  };

  Result<Mapping> search(uint64_t index, IndexWork& work);
  Step next_step(uint64_t index, IndexWork& work);
  Step step_above(const Search& search, TimePoint now) const REQUIRES(mutex_);
  Step step_with(const Search& search, NodeId node, TimePoint now) const REQUIRES(mutex_);
  std::vector<NodeId> above() const;
  void inquire(uint64_t index);
  Result<Mapping> fetch_from(const Step& step, uint64_t index, IndexWork& work);
  bool given_up(const Step& step, uint64_t index, const ImageFetch::State& state) const;
  bool ended(const IndexWork& work) const;
  std::vector<NodeId> others() const;
  wire::IndexState answer(NodeId from, uint64_t index);
  wire::IndexState answer_while_asking(NodeId from, uint64_t index) REQUIRES(mutex_);
  wire::IndexState image_state(uint64_t index) const REQUIRES(mutex_);
  void want_image(NodeId from, uint64_t index);
  void encode_for(NodeId from, uint64_t index);

  const Deps deps_;
  const IndexExchangeOptions options_;

  AnsweredRequests answered_;  // of the net thread

  mutable Mutex mutex_;
  CondVar changed_;
  const IndexStore* store_ GUARDED_BY(mutex_) = nullptr;
  std::map<uint64_t, Search> searches_ GUARDED_BY(mutex_);
  std::map<uint64_t, Image> images_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
