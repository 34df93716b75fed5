#include "mount-helper/serve/loaded.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "mount-helper/options/defaults.h"
#include "mount-helper/serve/bench_switches.h"

namespace clairfs {
namespace {

// For what the RAM tier has and NVMe has not: enough for what was fetched in the last seconds, and short
// against the 30 s that batch systems leave between their signals.
constexpr auto kCopyPatience = std::chrono::seconds(5);

// NVMe devices reach their full rate with a few dozen operations in flight.
constexpr unsigned kNvmeDepth = 32;

Result<LoadedCatalog> load_or_scan(MountBase& base, const ScanProgress& progress) {
  const MountOptions& options = base.options;
  CatalogOptions catalog;
  catalog.scan.chunk_size = static_cast<uint32_t>(options.chunk);
  catalog.scan.record_chunks = options.record_chunks;
  catalog.scan.most_memory = available_memory(this_machine());
  catalog.directory = options.catalog_dir;
  catalog.check = options.check == "directories" ? CatalogCheck::directories : CatalogCheck::full;
  return load_or_scan_catalog(options.source, catalog, base.log, [&](uint64_t entries) {
    base.end_on_signal();
    base.events.progress(
        fmt::format("scanning {}: {}", options.source, pluralize(entries, "entry", "entries")));
    if (progress) progress(entries);
  });
}

Result<LoadedCatalog> load_catalog(MountBase& base, JobNode* node) {
  const auto load = [&](const ScanProgress& progress) { return load_or_scan(base, progress); };
  auto loaded = node != nullptr ? node->catalog(load) : load({});
  if (!loaded) return loaded;
  const Catalog& c = *loaded->catalog;
  base.metrics.catalog_files.set(c.count(Catalog::Kind::file));
  base.metrics.catalog_directories.set(c.count(Catalog::Kind::directory));
  base.metrics.catalog_bytes.set(static_cast<int64_t>(c.total_bytes()));
  base.metrics.catalog_memory_bytes.set(static_cast<int64_t>(c.memory_bytes()));
  base.metrics.catalog_skipped.set(static_cast<int64_t>(c.skipped_special()));
  base.metrics.catalog_unreadable.set(static_cast<int64_t>(c.unreadable()));
  return loaded;
}

Result<NvmeTier> open_nvme(MountBase& base, const Catalog& catalog) {
  NvmeTier tier;
  if (base.options.nvme.empty()) return tier;
  const uint64_t mean_chunk = round_to_pages(mean_chunk_bytes(catalog));
  for (const NvmeDir& directory : base.options.nvme) {
    if (directory.share != 0) {
      base.log.info("NVMe directory {}: {} % of what is free there, {}", directory.directory, directory.share,
                    format_size(directory.capacity));
    }
    // Of its own: operations of a disk that hangs may be all that there can be at once.
    auto io = make_io_backend({base.options.io, kNvmeDepth, "nvme-io"}, base.log);
    if (!io) return io.error();
    tier.io.push_back(std::move(*io));
    auto store = NvmeStore::open({directory.directory, directory.capacity, mean_chunk, base.options.source},
                                 *tier.io.back(), base.clock, base.log, base.metrics);
    if (!store) return store.error();
    tier.stores.push_back(std::move(*store));
  }
  return tier;
}

Result<std::unique_ptr<Dataset>> open_dataset(MountBase& base, JobNode* node) {
  auto loaded = load_catalog(base, node);
  if (!loaded) return loaded.error();
  auto nvme = open_nvme(base, *loaded->catalog);
  if (!nvme) return nvme.error();
  auto io = make_io_backend({base.options.io, base.options.pfs_concurrency + PfsSource::kOpenFiles, "pfs-io"},
                            base.log);
  if (!io) return io.error();
  Fd root(::open(base.options.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return system_error(errno, "open " + base.options.source);
  return std::make_unique<Dataset>(base, node, std::move(*loaded), std::move(*nvme), std::move(*io),
                                   std::move(root));
}

PfsOptions pfs_options(const MountOptions& options) {
  PfsOptions pfs;
  pfs.most_concurrency = options.pfs_concurrency;
  pfs.merge = at_work("merge");
  return pfs;
}

}  // namespace

// The saved catalog is wrong about a file that turns out changed: the next mount scans anew.
Dataset::Dataset(MountBase& base, JobNode* node, LoadedCatalog loaded_catalog, NvmeTier nvme_tier,
                 std::unique_ptr<IoBackend> io, Fd root)
    : loaded(std::move(loaded_catalog)),
      catalog(*loaded.catalog),
      nvme(std::move(nvme_tier)),
      pfs_io(std::move(io)),
      pfs(catalog, std::move(root), *pfs_io, pfs_options(base.options), base.clock, base.metrics, base.log,
          [this, &log = base.log](FileId) {
            if (const Status gone = invalidate_saved_catalog(loaded.saved_file); !gone)
              log.warn("{}", gone.error().message);
          }),
      policy(catalog) {
  if (node != nullptr) shared.emplace(*node, catalog, pfs, policy);
}

Result<std::unique_ptr<Loaded>> Loaded::load(MountBase& base, JobNode* node) {
  auto dataset = open_dataset(base, node);
  if (!dataset) return dataset.error();
  Dataset& d = **dataset;
  ChunkSource* source = &d.pfs;
  TierPolicy* policy = &d.policy;
  if (d.shared) {
    source = &d.shared->source;
    policy = &d.shared->policy;
  }
  ChunkCache::Deps deps{d.catalog, *source, {}, *policy, base.metrics, base.log};
  for (const auto& store : d.nvme.stores) deps.stores.push_back(store.get());
  deps.verify_warm_files = (d.loaded.reloaded || d.loaded.received) && base.options.check == "directories";
  auto cache = ChunkCache::create(deps, base.options.ram);
  if (!cache) return cache.error();
  return std::unique_ptr<Loaded>(new Loaded(base, node, std::move(*dataset), std::move(*cache)));
}

Loaded::Loaded(MountBase& base, JobNode* node, std::unique_ptr<Dataset> dataset,
               std::unique_ptr<ChunkCache> cache)
    : base_(base), node_(node), dataset_(std::move(dataset)), cache_(std::move(cache)) {
  cache_->ram_backup().start();
}

// A peer may still be sent what lies in the cache: the job ends after the transfers and before their memory.
void Loaded::finish() {
  if (std::exchange(finished_, true)) return;
  base_.mount_point.stop();
  if (node_ != nullptr) node_->leave();
  const bool at_rest = drain();
  if (node_ != nullptr) node_->stop();
  base_.mount_point.finish(at_rest);
}

// Nobody reads any more. Both together take no longer than a drain alone.
bool Loaded::drain() {
  const auto deadline = base_.clock.now() + kDrainPatience;
  if (!cache_->ram_backup().flush(kCopyPatience))
    base_.log.info("not all of the RAM tier was copied to NVMe in time; the next mount reads the rest again");
  return cache_->stop(deadline - base_.clock.now());
}

}  // namespace clairfs
