// The logger that everything is handed. One line an event, the path and the cause in it.
#pragma once

#include <spdlog/logger.h>

namespace clairfs {

/// Thread-safe. Owned by the composition root (or a test) and outlives what it is handed to.
using Logger = spdlog::logger;

}  // namespace clairfs
