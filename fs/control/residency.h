// Counts how much of a path is in the tiers of this node, and takes it out of them.
//
// Two commands of the control socket; paths are relative to the mount, "" is all of it:
//
//   where PATH    how many bytes are in which tier, and on which node each is at home, as JSON
//   evict PATH    drops the path's chunks from the tiers; answers as `where` does afterwards
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "plan/placement/placement_map.h"

namespace clairfs {

/// Of everything at or below one path. Bytes are those of the files, without padding.
struct Residency {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t ram = 0;
  uint64_t nvme = 0;
  std::map<uint32_t, uint64_t> homes;  ///< in a job with a plan: by node, the bytes that are at home there
  uint64_t homeless = 0;               ///< in a job with a plan: bytes that no node keeps
};

/// `placement`: null on a single node or without a plan.
Residency residency_of(const Catalog& catalog, const ChunkCache& cache, const PlacementMap* placement,
                       FileId top);

/// {files, bytes, ram, nvme, none} and, in a job with a plan, `homes` (an object, bytes by node) and
/// `homeless`.
std::string residency_json(const Residency& residency);

/// Carries out one of the commands above; nothing if `command` is none of them. Costs a look at every chunk
/// below the path. Errors: ENOENT when the dataset has no such path.
std::optional<Result<std::string>> run_residency_command(
    const Catalog& catalog, ChunkCache& cache,
    const std::function<std::shared_ptr<const PlacementMap>()>& placement, std::string_view command);

}  // namespace clairfs
