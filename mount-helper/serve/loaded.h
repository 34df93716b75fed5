// The second phase of a mount: the dataset is known, and its cache could be read.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cache/base/fd.h"
#include "cache/catalog/file.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/io/backend.h"
#include "cache/nvme/store.h"
#include "cache/source/pfs_source.h"
#include "mount-helper/serve/job_node.h"
#include "mount-helper/serve/mount_point.h"
#include "plan/retention/next_use_policy.h"

namespace clairfs {

/// The NVMe directories of a mount.
struct NvmeTier {
  std::vector<std::unique_ptr<IoBackend>> io;  ///< one for each store
  std::vector<std::unique_ptr<NvmeStore>> stores;
};

/// The parts that a mount's cache is made of.
struct Dataset {
  /// `node` is null on a single node.
  Dataset(MountBase& base, JobNode* node, LoadedCatalog loaded_catalog, NvmeTier nvme_tier,
          std::unique_ptr<IoBackend> io, Fd root);

  const LoadedCatalog loaded;
  const Catalog& catalog;
  const NvmeTier nvme;
  const std::unique_ptr<IoBackend> pfs_io;
  PfsSource pfs;
  NextUsePolicy policy;
  std::optional<SharedSource> shared;  ///< none on a single node
};

/// Made by the main thread, which ends it too. The base and the node outlive it.
class Loaded {
 public:
  /// `node` is null on a single node. Errors: those of the scan, of JobNode::catalog(), of the tiers.
  static Result<std::unique_ptr<Loaded>> load(MountBase& base, JobNode* node);
  ~Loaded() { finish(); }

  Dataset& dataset() { return *dataset_; }
  ChunkCache& cache() { return *cache_; }

  /// Ends the mount, after the last read, so that everything may be destroyed: leaves the job and waits for
  /// the transfers under way. Later calls do nothing. Does not return if a filesystem below hangs.
  void finish();

 private:
  Loaded(MountBase& base, JobNode* node, std::unique_ptr<Dataset> dataset, std::unique_ptr<ChunkCache> cache);
  bool drain();

  MountBase& base_;
  JobNode* const node_;
  const std::unique_ptr<Dataset> dataset_;
  const std::unique_ptr<ChunkCache> cache_;
  bool finished_ = false;
};

}  // namespace clairfs
