#include "cache/io/backend.h"

#include <cerrno>

#include "cache/io/ring.h"
#include "cache/io/threads.h"

namespace clairfs {

Result<std::unique_ptr<IoBackend>> make_io_backend(const IoOptions& options, Logger& log) {
  if (options.kind == IoKind::threads) return make_thread_backend(options);
  auto ring = make_ring_backend(options);
  if (ring) return ring;
  if (options.kind == IoKind::uring) {
    return Error{
        ring.error().code,
        ring.error().message + " (forbidden or too old a kernel? --io=threads does without io_uring)"};
  }
  log.info("io: io_uring is not available ({}); {} uses threads", ring.error().message, options.name);
  return make_thread_backend(options);
}

}  // namespace clairfs
