// The io backend over io_uring: one ring, owned by one thread that submits and reaps.
#pragma once

#include <memory>

#include "cache/base/result.h"
#include "cache/io/backend.h"

namespace clairfs {

/// Errors: what io_uring_setup() said (EPERM, ENOSYS, ENOMEM, ...), ENOSYS too if the kernel lacks an
/// operation that is needed (all are there since Linux 5.6).
Result<std::unique_ptr<IoBackend>> make_ring_backend(const IoOptions& options);

}  // namespace clairfs
