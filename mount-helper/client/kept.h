// Asks a mount how much of some paths its tiers have, and says it as `clairfs warmup` does.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "mount-helper/client/control_client.h"

namespace clairfs {

/// Sums over the paths; bytes.
struct KeptBytes {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t ram = 0;
  uint64_t nvme = 0;
  std::map<std::string, uint64_t> homes;  ///< by node of a job
  uint64_t homeless = 0;
  uint64_t ram_capacity = 0;
  uint64_t nvme_capacity = 0;
  bool moving = false;  ///< chunks are on their way to NVMe

  uint64_t kept() const { return ram + nvme; }
};

/// Asks the daemon `command` ("where" or "evict", fs/control/residency.h) for each path; `paths` are resolved
/// and below the mount. Errors: those of ask_mount(); EPROTO.
Result<KeptBytes> residency_of_paths(const ControlledMount& mount, const std::vector<std::string>& paths,
                                     const char* command);

/// The same for "where", asked again until nothing is on its way to NVMe or `patience` is over.
Result<KeptBytes> settled_residency(const ControlledMount& mount, const std::vector<std::string>& paths,
                                    std::chrono::milliseconds patience);

/// "kept 2.0 MiB of 9.8 MiB (20.4 %): RAM 2.0 MiB, NVMe 0 B", in a job with the nodes that keep the rest.
std::string kept_text(const KeptBytes& kept);

/// The tiers that would be needed to keep all of it; empty if it is kept, or other nodes keep the rest.
std::string tier_advice(const KeptBytes& kept);

}  // namespace clairfs
