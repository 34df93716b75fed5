// The io backend that works everywhere: a bounded pool of threads that block in preadv and pwritev.
#pragma once

#include <memory>

#include "cache/io/backend.h"

namespace clairfs {

/// At most `options.depth` threads, started as the queue grows; requests are taken first in, first out.
/// Throws std::system_error if not even one thread can be started.
std::unique_ptr<IoBackend> make_thread_backend(const IoOptions& options);

}  // namespace clairfs
