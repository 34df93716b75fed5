// An image that another node has (a catalog, an index), fetched piece by piece as bulk transfers, a few at a
// time.
//
// Threads: pieces come and ticks are on the net thread; the rest is thread-safe. mutex_ is a leaf: not held
// while the transport or a call-back is called.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "net/transport/transfer_numbers.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

struct ImageFetchOptions {
  /// Pieces under way from one node: two keep the network busy while one is waited for.
  uint32_t window = 3;
  /// Bytes of a piece: enough for the full bandwidth of a network.
  uint32_t piece = wire::kMaxPiece;
  /// A request for a piece that has not come by then is repeated: it may have been lost. A giver that is only
  /// slow ignores that, so it costs a message a second.
  Duration repeat_after = std::chrono::seconds(1);
  /// A piece that has not come by then is asked for again: the request or the piece may be lost.
  Duration piece_patience = std::chrono::seconds(20);
};

/// Of a giver: the requests that it has answered, so that one that is repeated is not answered twice, which
/// would bring two transfers under one number. For one thread.
class AnsweredRequests {
 public:
  /// False if it is repeated.
  bool note(NodeId to, TransferNumber transfer);

 private:
  std::map<NodeId, std::deque<TransferNumber>> latest_;
};

/// It lives at least until the network does not use its memory any more. Memory that the network keeps
/// (EBUSY, see transport.h) is never given back.
class ImageFetch : public std::enable_shared_from_this<ImageFetch> {
 public:
  struct Deps {
    Transport& transport;
    TransferNumbers& numbers;
    const Clock& clock;
    NodeId giver;
    /// The message that asks for bytes of the image under a transfer number.
    std::function<wire::Message(uint64_t offset, uint32_t length, TransferNumber transfer)> request;
    /// state() has changed. On the net thread.
    std::function<void()> changed;
  };
  struct State {
    bool complete = false;
    unsigned percent = 0;
    TimePoint heard{};           ///< when the last piece came
    std::optional<Error> error;  ///< it will not be complete
  };

  /// Asks for nothing yet. Errors: ENOMEM.
  static Result<std::shared_ptr<ImageFetch>> make(Deps deps, const ImageFetchOptions& options,
                                                  uint64_t bytes);
  ~ImageFetch();

  /// Begins.
  void ask_for_more();
  /// Asks again for pieces that are late or could not be received.
  void tick(TimePoint now);
  State state() const;
  /// Those bytes of the image, if they have come.
  std::optional<std::vector<std::byte>> copy(uint64_t offset, uint32_t length) const;
  /// The image, of which there are copies all the same: its bytes stay until give_up(). REQUIRES: it is
  /// complete. Once.
  Mapping take();
  /// Nothing more is asked for, nor copied.
  void give_up();

 private:
  struct Piece {
    TransferNumber transfer = 0;
    TimePoint began{};
    TimePoint asked{};  ///< last
  };

  ImageFetch(Deps deps, const ImageFetchOptions& options, Mapping image);
  uint32_t length_at(uint64_t offset) const REQUIRES(mutex_);
  void piece_came(uint64_t offset, const Status& status);

  const Deps deps_;
  const ImageFetchOptions options_;

  mutable Mutex mutex_;
  Mapping image_ GUARDED_BY(mutex_);
  std::span<const std::byte> bytes_ GUARDED_BY(mutex_);  // of the image, also of one that was taken
  std::vector<bool> here_ GUARDED_BY(mutex_);            // by piece
  std::map<uint64_t, Piece> asked_ GUARDED_BY(mutex_);   // pieces under way, by offset
  std::deque<uint64_t> to_ask_ GUARDED_BY(mutex_);
  size_t pieces_ GUARDED_BY(mutex_);
  size_t missing_ GUARDED_BY(mutex_);
  TimePoint heard_ GUARDED_BY(mutex_);
  std::optional<Error> error_ GUARDED_BY(mutex_);
  bool memory_lost_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
