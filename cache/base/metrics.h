// Every number that clairfs counts, with its name, unit and meaning in one table.
//
// `kMetrics` is what `.clairfs/stats.json` and `.clairfs/metrics` (Prometheus) are made from: a number that
// is not in the table does not exist. Names are stable; a dot nests in JSON. fs/control/prometheus.h derives
// the names for Prometheus ("pfs.bytes" -> clairfs_pfs_bytes_total).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <variant>

namespace clairfs {

/// Only goes up. Thread-safe; relaxed, since no decision rests on its order with other memory.
class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// Goes up and down. Thread-safe.
class Gauge {
 public:
  void set(int64_t v) { value_.store(v, std::memory_order_relaxed); }
  void add(int64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

/// Durations in buckets that double from 1 us to over half a minute. Thread-safe.
class Histogram {
 public:
  /// Bucket i holds durations of at most 2^i microseconds; the last one holds all that is longer.
  static constexpr size_t kBuckets = 26;

  void record(std::chrono::nanoseconds duration);
  uint64_t count() const;
  double sum_seconds() const { return static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9; }
  uint64_t bucket(size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }
  /// Upper bound in seconds of the bucket that holds the q-quantile (0 <= q <= 1); 0 when empty.
  double quantile_seconds(double q) const;

 private:
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> sum_ns_{0};
};

/// The numbers of one mount. Owned by the composition root; outlives everything that counts in it.
struct Metrics {
  // FUSE requests, by operation.
  Counter fuse_lookup, fuse_getattr, fuse_readlink, fuse_open, fuse_read, fuse_opendir, fuse_readdir,
      fuse_statfs, fuse_getxattr, fuse_listxattr, fuse_ioctl, fuse_forget, fuse_write, fuse_setattr,
      fuse_setxattr, fuse_refused, fuse_dirty_writes;
  // Where READs were answered from, and how many bytes.
  Counter reads_ram, reads_nvme, reads_pfs, reads_peer, reads_joined, reads_failed, reads_refused;
  Counter bytes_ram, bytes_nvme, bytes_pfs, bytes_peer;
  // Time that READs waited for data that was not resident.
  Counter stall_ns;
  // The PFS.
  Counter pfs_opens, pfs_reads, pfs_bytes, pfs_errors, pfs_stale_files;
  Gauge pfs_in_flight, pfs_concurrency, pfs_silent;
  Histogram pfs_latency;
  // Tiers.
  Gauge ram_bytes, ram_capacity, ram_chunks, transit_bytes, transit_capacity;
  Gauge nvme_bytes, nvme_capacity, nvme_chunks, nvme_copies, nvme_copy_bytes, nvme_warm_bytes, nvme_disabled,
      nvme_full, nvme_cut_short, nvme_silent;
  Counter ram_evictions, nvme_evictions;
  Counter nvme_reads, nvme_read_bytes, nvme_writes, nvme_write_bytes, nvme_writes_skipped;
  Counter nvme_errors, nvme_checksum_failures;
  Histogram nvme_read_latency, nvme_write_latency;
  // Other nodes: what was asked of them, and what they asked for.
  Gauge peers_alive, peers_dead, peers_outstanding_bytes;
  Counter peers_requested, peers_received, peers_bytes_in, peers_late, peers_not_here, peers_failed,
      peers_corrupt;
  Counter peers_served, peers_bytes_out, peers_refused;
  Histogram peers_latency;
  // Staging into the kernel's page cache.
  Gauge staging_bytes, staging_capacity, staging_kept;
  Counter staging_pushed, staging_pushed_bytes, staging_push_failures, staging_sentinels, staging_dropped,
      staging_lookups, staging_repaired;
  Gauge plans_active;
  Counter plan_observations_in_order, plan_observations_out_of_order;
  // The catalog.
  Gauge catalog_files, catalog_directories, catalog_bytes, catalog_memory_bytes, catalog_skipped,
      catalog_unreadable;
};

enum class MetricUnit { count, bytes, nanoseconds };

/// One row of the table. `path` is unique. The member pointer's kind tells whether it is a counter, gauge or
/// histogram.
struct MetricInfo {
  const char* path;
  MetricUnit unit;
  const char* help;
  std::variant<Counter Metrics::*, Gauge Metrics::*, Histogram Metrics::*> member;
};

/// All of them, in the order in which they are shown.
std::span<const MetricInfo> metric_table();

}  // namespace clairfs
