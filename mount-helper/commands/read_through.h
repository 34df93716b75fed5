// `clairfs warmup`: reading a mounted dataset through, so that its chunks reach the cache's tiers. (What the
// nodes of a job fetch ahead of need is plan/retention/home_prefill.h.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mount-helper/commands/progress_bar.h"

namespace clairfs {

struct WarmupOptions {
  unsigned jobs = 8;  ///< threads; each has one read under way, which is what a PFS needs to get busy
  bool keep_page_cache = false;  ///< otherwise pages are given back as soon as they were read
};

struct WarmupOutcome {
  TransferProgress done;
  uint64_t errors = 0;
  std::vector<std::string> first_errors;  ///< at most 5, one line each
};

/// Reads every regular file at or below `paths`. Symlinks are followed only where they are a path themselves.
/// `on_progress` is called from this thread about ten times a second with how far it is; while the tree is
/// still being listed, from the first file on, totals equal what was found so far and nothing is done yet.
WarmupOutcome warm_up(const std::vector<std::string>& paths, const WarmupOptions& options,
                      const std::function<void(const TransferProgress&)>& on_progress);

/// Gives the pages of every regular file at or below `paths` back to the kernel. Files that cannot be opened
/// are left out.
void drop_pages(const std::vector<std::string>& paths);

}  // namespace clairfs
