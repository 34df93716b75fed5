#include "cache/chunks/blocking_read.h"

#include <algorithm>
#include <cerrno>
#include <future>

#include "cache/io/memory.h"

namespace clairfs {

Result<std::string> read_bytes(ChunkCache& cache, const Catalog& catalog, FileId file, uint64_t offset,
                               uint64_t length) {
  const uint64_t size = catalog.stamp(file).size;
  offset = std::min(offset, size);
  length = std::min(length, size - offset);
  if (length == 0) return std::string();
  // Shared with the call-back, which may come after this function gave up.
  const auto promise = std::make_shared<std::promise<Result<std::string>>>();
  auto future = promise->get_future();
  cache.read(file, offset, length, [promise](const Result<ReadView>& view) {
    if (!view) return promise->set_value(view.error());
    promise->set_value(joined(view->memory));
  });
  if (future.wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
    return Error{ETIMEDOUT, "read " + catalog.path(file) + ": the source does not answer"};
  }
  return future.get();
}

}  // namespace clairfs
