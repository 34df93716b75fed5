// One node scans the dataset, the others get the catalog from it, most of them by way of others.
//
// Node 0 says how far it is, then offers the image to all. The nodes are a tree: each fetches the image piece
// by piece from the node above it, and passes every piece on as soon as it has come. So no node sends the
// image more than twice, and the last node has it a few pieces later than the first, however many there are.
//
// A giver that is asked again for a piece that it has not got says that it waits, too. A node that for a
// while neither hears that nor gets a piece asks the next node up, then node 0; one that got a damaged image
// asks node 0 at once. All of these have lower numbers, so that nodes never wait in a circle. A node waits
// until nothing has come for the whole of its patience.
//
// Threads: messages and ticks on the net thread; await() waits on the caller's. mutex_ comes before that of
// the ImageFetch, and is not held while the transport is called.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/memory_limit.h"
#include "net/group/image_fetch.h"
#include "net/group/membership.h"
#include "net/transport/transfer_numbers.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

struct CatalogExchangeOptions : ImageFetchOptions {
  /// Silence of the giver after which a node gives up. Scans and checks tell how far they are ten times a
  /// second; what is silent is a source that hangs, and the save of a large catalog.
  Duration patience = std::chrono::minutes(10);
  /// Silence of a giver that is not node 0, after which another is asked: several times what the pieces of a
  /// window take on the slowest network that a job runs on.
  Duration giver_patience = std::chrono::seconds(5);
  /// Bytes that the catalog may take.
  uint64_t most_memory = kNoMemoryLimit;
};

/// Destroyed after the transport was stopped.
class CatalogExchange {
 public:
  /// The node that scans.
  static constexpr NodeId kScanner{0};
  /// The node above. REQUIRES: not that of the scanner.
  static NodeId giver_of(NodeId node) { return NodeId((node.value - 1) / kBranches); }

  struct Deps {
    Transport& transport;
    TransferNumbers& numbers;
    const Membership& membership;
    const Clock& clock;
  };

  CatalogExchange(const Deps& deps, const CatalogExchangeOptions& options);
  ~CatalogExchange();

  // Of the giver.
  void tell_progress(uint64_t entries);
  void publish(std::shared_ptr<const Catalog> catalog);

  // Of the others.
  /// Waits for the catalog; `progress` is called on this thread with the entries that the giver has scanned.
  /// Errors: ETIMEDOUT; EBADMSG; ENOMEM, before any of it is fetched, where there is no memory for it; what
  /// was given to fail().
  Result<std::shared_ptr<const Catalog>> await(const std::function<void(uint64_t entries)>& progress);
  /// Ends await().
  void fail(const Error& error);

  // Of the net thread.
  void on_progress(NodeId from, const wire::CatalogProgress& progress);
  void on_offer(NodeId from, const wire::CatalogOffer& offer);
  void on_request(NodeId from, const wire::CatalogRequest& request);
  /// `from` has no catalog yet.
  void on_hello_without(NodeId from);
  void tick(TimePoint now);

 private:
  // One is a chain, whose length is that of the job; with more each sends longer. With two a thousand nodes
  // take little more than twice the time that the image takes between two of them.
  static constexpr uint32_t kBranches = 2;

  std::optional<wire::CatalogOffer> offer() const;
  bool give(NodeId to, const wire::CatalogRequest& request);
  void give_what_came();
  bool is_here(NodeId node) const;
  bool giver_fails(TimePoint now) const REQUIRES(mutex_);
  NodeId next_giver() const REQUIRES(mutex_);
  std::shared_ptr<ImageFetch> fetch_from(NodeId giver) REQUIRES(mutex_);
  std::shared_ptr<ImageFetch> fetch() const;
  void end_fetch();
  bool take_over(const std::shared_ptr<const Catalog>& catalog);
  Result<Mapping> await_image(const std::function<void(uint64_t entries)>& progress);

  // Constant after construction.
  const Deps deps_;
  const CatalogExchangeOptions options_;

  // Of the net thread.
  AnsweredRequests answered_;
  std::map<NodeId, std::map<TransferNumber, wire::CatalogRequest>> waiting_;  // for what is not here yet

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<const Catalog> published_ GUARDED_BY(mutex_);
  std::optional<wire::CatalogOffer> taken_ GUARDED_BY(mutex_);  // the offer that is being fetched
  NodeId giver_ GUARDED_BY(mutex_) = kScanner;                  // from whom
  TimePoint giver_heard_ GUARDED_BY(mutex_);                    // its last word that it waits, too
  std::shared_ptr<ImageFetch> fetch_ GUARDED_BY(mutex_);
  uint64_t entries_ GUARDED_BY(mutex_) = 0;
  TimePoint heard_ GUARDED_BY(mutex_);  // of the scan, and the offer that was taken; not of what came since
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
