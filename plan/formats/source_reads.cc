#include "plan/formats/source_reads.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <utility>

#include "cache/base/mutex.h"

namespace clairfs {
namespace {

constexpr auto kReadPatience = std::chrono::minutes(1);

/// Shared with the call-backs, which may come after the one who waits gave up. The bytes of a piece are its
/// fetch's alone until that is done.
struct Pieces {
  std::vector<std::string> bytes;
  Mutex mutex;
  CondVar wake;
  size_t missing GUARDED_BY(mutex) = 0;
  Status status GUARDED_BY(mutex);
};

void fetch(ChunkSource& source, const std::shared_ptr<Pieces>& pieces, size_t i, const ByteRange& piece) {
  std::string& bytes = pieces->bytes[i];
  bytes.resize(piece.length);
  FetchRequest request;
  request.file = piece.file;
  request.offset = piece.offset;
  request.length = piece.length;
  request.memory = {{bytes.data(), bytes.size()}};
  request.demand = std::make_shared<Demand>(Urgency{});
  request.scope = FetchScope::local_or_pfs;
  request.done = [pieces](const Result<Origin>& origin) {
    MutexLock lock(pieces->mutex);
    --pieces->missing;
    if (!origin && pieces->status) pieces->status = origin.error();
    pieces->wake.notify_one();
  };
  source.start(std::move(request));
}

}  // namespace

Result<std::vector<std::string>> read_pieces(ChunkSource& source, std::span<const ByteRange> pieces) {
  const auto shared = std::make_shared<Pieces>();
  shared->bytes.resize(pieces.size());
  {
    MutexLock lock(shared->mutex);
    shared->missing = pieces.size();
  }
  for (size_t i = 0; i < pieces.size(); ++i) fetch(source, shared, i, pieces[i]);
  MutexLock lock(shared->mutex);
  while (shared->missing != 0) {
    const size_t before = shared->missing;
    const auto woken = shared->wake.wait_for(lock, kReadPatience);
    if (woken == std::cv_status::timeout && shared->missing == before)
      return Error{ETIMEDOUT, "plan: the source does not answer"};
  }
  if (!shared->status) return shared->status.error();
  return std::move(shared->bytes);
}

}  // namespace clairfs
