// One node scans the dataset, the others get the catalog from it.
//
// Node 0 says how far it is, then offers the image; each other node fetches it piece by piece. Whoever waits
// does so until the giver has been silent for the whole of its patience.
//
// Threads: messages and ticks on the net thread; await() waits on the caller's. mutex_ comes before that of
// the ImageFetch, and is not held while the transport is called.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "net/group/image_fetch.h"
#include "net/transport/transfer_numbers.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

struct CatalogExchangeOptions : ImageFetchOptions {
  /// Silence of the giver after which a node gives up. Scans and checks tell how far they are ten times a
  /// second; what is silent is a source that hangs, and the save of a large catalog.
  Duration patience = std::chrono::minutes(10);
};

/// Destroyed after the transport was stopped.
class CatalogExchange {
 public:
  /// The node that scans.
  static constexpr NodeId kScanner{0};

  CatalogExchange(Transport& transport, TransferNumbers& numbers, const Clock& clock,
                  const CatalogExchangeOptions& options);
  ~CatalogExchange();

  // Of the giver.
  void tell_progress(uint64_t entries);
  void publish(std::shared_ptr<const Catalog> catalog);

  // Of the others.
  /// Waits for the catalog; `progress` is called on this thread with the entries that the giver has scanned.
  /// Errors: ETIMEDOUT; EBADMSG; what was given to fail().
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
  std::optional<wire::CatalogOffer> offer() const;
  void take(const wire::CatalogOffer& offer) REQUIRES(mutex_);
  std::shared_ptr<ImageFetch> fetch() const;
  void end_fetch();
  Result<Mapping> await_image(const std::function<void(uint64_t entries)>& progress);

  // Constant after construction.
  Transport& transport_;
  TransferNumbers& numbers_;
  const Clock& clock_;
  const CatalogExchangeOptions options_;

  AnsweredRequests answered_;  // of the net thread

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<const Catalog> published_ GUARDED_BY(mutex_);
  std::optional<wire::CatalogOffer> taken_ GUARDED_BY(mutex_);  // the offer that is being fetched
  std::shared_ptr<ImageFetch> fetch_ GUARDED_BY(mutex_);
  uint64_t entries_ GUARDED_BY(mutex_) = 0;
  TimePoint heard_ GUARDED_BY(mutex_);  // of the scan, and the offer that was taken; not of what came since
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
