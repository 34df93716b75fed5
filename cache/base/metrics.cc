#include "cache/base/metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace clairfs {
namespace {

using M = Metrics;
constexpr auto kCount = MetricUnit::count;
constexpr auto kBytes = MetricUnit::bytes;

constexpr MetricInfo kMetrics[] = {
    {"fuse.requests.lookup", kCount, "LOOKUP requests from the kernel", &M::fuse_lookup},
    {"fuse.requests.getattr", kCount, "GETATTR requests", &M::fuse_getattr},
    {"fuse.requests.readlink", kCount, "READLINK requests", &M::fuse_readlink},
    {"fuse.requests.open", kCount, "OPEN requests (one a mount where zero-message open works)",
     &M::fuse_open},
    {"fuse.requests.read", kCount, "READ requests", &M::fuse_read},
    {"fuse.requests.opendir", kCount, "OPENDIR requests (one a mount where zero-message opendir works)",
     &M::fuse_opendir},
    {"fuse.requests.readdir", kCount, "READDIR and READDIRPLUS requests", &M::fuse_readdir},
    {"fuse.requests.statfs", kCount, "STATFS requests", &M::fuse_statfs},
    {"fuse.requests.getxattr", kCount, "GETXATTR requests", &M::fuse_getxattr},
    {"fuse.requests.listxattr", kCount, "LISTXATTR requests", &M::fuse_listxattr},
    {"fuse.requests.ioctl", kCount, "IOCTL requests (CPython before 3.14 sends one an open())",
     &M::fuse_ioctl},
    {"fuse.requests.forget", kCount, "inodes that the kernel forgot", &M::fuse_forget},
    {"fuse.requests.write", kCount, "WRITE requests (control files only)", &M::fuse_write},
    {"fuse.requests.setattr", kCount, "SETATTR requests (truncation of control files only)",
     &M::fuse_setattr},
    {"fuse.requests.setxattr", kCount, "SETXATTR requests", &M::fuse_setxattr},
    {"fuse.requests.refused", kCount, "requests that would change something, answered EROFS",
     &M::fuse_refused},
    {"fuse.requests.dirty_writes", kCount,
     "WRITE requests to dataset files, refused and their pages dropped: others may have read these",
     &M::fuse_dirty_writes},
    {"reads.ram", kCount,
     "READs answered from memory: the RAM tier, or what is in transit or held back for a sentinel",
     &M::reads_ram},
    {"reads.nvme", kCount, "READs answered from the NVMe tier", &M::reads_nvme},
    {"reads.peer", kCount, "READs answered from another node", &M::reads_peer},
    {"reads.pfs", kCount, "READs answered from the source", &M::reads_pfs},
    {"reads.joined", kCount, "READs that joined a fetch already in flight", &M::reads_joined},
    {"reads.failed", kCount, "READs answered with an error", &M::reads_failed},
    {"reads.refused", kCount, "of these, READs of files that changed since the scan (ESTALE)",
     &M::reads_refused},
    {"bytes.ram", kBytes, "bytes of READs answered from memory (see reads.ram)", &M::bytes_ram},
    {"bytes.nvme", kBytes, "bytes of READs answered from the NVMe tier", &M::bytes_nvme},
    {"bytes.peer", kBytes, "bytes of READs answered from another node", &M::bytes_peer},
    {"bytes.pfs", kBytes, "bytes of READs answered from the source", &M::bytes_pfs},
    {"stall", MetricUnit::nanoseconds, "time that READs waited for data that was not resident", &M::stall_ns},
    {"pfs.opens", kCount, "files opened on the source", &M::pfs_opens},
    {"pfs.reads", kCount, "read operations on the source", &M::pfs_reads},
    {"pfs.bytes", kBytes, "bytes read from the source", &M::pfs_bytes},
    {"pfs.errors", kCount, "operations on the source that failed", &M::pfs_errors},
    {"pfs.stale_files", kCount, "reads refused because the source file changed after the scan",
     &M::pfs_stale_files},
    {"pfs.in_flight", kCount, "operations on the source under way now", &M::pfs_in_flight},
    {"pfs.concurrency", kCount, "operations on the source allowed at once now", &M::pfs_concurrency},
    {"pfs.silent", kCount, "operations on the source that have had no answer for longer than any should take",
     &M::pfs_silent},
    {"pfs.latency", MetricUnit::nanoseconds, "duration of a fetch from the source", &M::pfs_latency},
    {"tiers.ram.bytes", kBytes, "bytes resident in the RAM tier", &M::ram_bytes},
    {"tiers.ram.capacity", kBytes, "capacity of the RAM tier", &M::ram_capacity},
    {"tiers.ram.chunks", kCount, "chunks resident in the RAM tier", &M::ram_chunks},
    {"tiers.ram.evictions", kCount, "chunks dropped from the RAM tier", &M::ram_evictions},
    {"tiers.transit.bytes", kBytes, "bytes of chunks on their way (fetches, writes to NVMe, reads from it)",
     &M::transit_bytes},
    {"tiers.transit.capacity", kBytes, "most bytes that may be on their way", &M::transit_capacity},
    {"tiers.nvme.bytes", kBytes, "bytes resident in the NVMe tier", &M::nvme_bytes},
    {"tiers.nvme.capacity", kBytes, "capacity of the NVMe tier", &M::nvme_capacity},
    {"tiers.nvme.chunks", kCount, "chunks resident in the NVMe tier", &M::nvme_chunks},
    {"tiers.nvme.copies", kCount, "of these chunks, copies of chunks in the RAM tier, for a restart",
     &M::nvme_copies},
    {"tiers.nvme.copy_bytes", kBytes, "of the bytes resident in the NVMe tier, those of such copies",
     &M::nvme_copy_bytes},
    {"tiers.nvme.warm_bytes", kBytes,
     "bytes of this dataset that the NVMe tier held when the mount was made, from an earlier one",
     &M::nvme_warm_bytes},
    {"tiers.nvme.evictions", kCount, "chunks dropped from the NVMe tier", &M::nvme_evictions},
    {"tiers.nvme.disabled", kCount, "NVMe directories switched off after an error", &M::nvme_disabled},
    {"tiers.nvme.full", kCount, "NVMe directories whose disk is full before they have their capacity",
     &M::nvme_full},
    {"tiers.nvme.cut_short", kCount,
     "NVMe directories that cannot grow to their capacity for another reason than a full disk",
     &M::nvme_cut_short},
    {"tiers.nvme.silent", kCount,
     "NVMe directories whose disk has not answered for longer than any should take", &M::nvme_silent},
    {"nvme.reads", kCount, "chunks read from NVMe", &M::nvme_reads},
    {"nvme.read_bytes", kBytes, "bytes read from NVMe", &M::nvme_read_bytes},
    {"nvme.writes", kCount, "chunks written to NVMe", &M::nvme_writes},
    {"nvme.write_bytes", kBytes, "bytes written to NVMe", &M::nvme_write_bytes},
    {"nvme.writes_skipped", kCount,
     "chunks that were not kept, or dropped from RAM for others, because NVMe had no time to write them",
     &M::nvme_writes_skipped},
    {"nvme.errors", kCount, "operations on NVMe that failed", &M::nvme_errors},
    {"nvme.checksum_failures", kCount, "chunks on NVMe whose checksum was wrong (dropped, fetched again)",
     &M::nvme_checksum_failures},
    {"nvme.read_latency", MetricUnit::nanoseconds, "duration of a chunk read from NVMe",
     &M::nvme_read_latency},
    {"nvme.write_latency", MetricUnit::nanoseconds, "duration of a chunk write to NVMe",
     &M::nvme_write_latency},
    {"peers.alive", kCount, "other nodes of the job that are there", &M::peers_alive},
    {"peers.dead", kCount, "other nodes of the job that are taken for dead", &M::peers_dead},
    {"peers.outstanding_bytes", kBytes, "bytes asked of other nodes and not yet here",
     &M::peers_outstanding_bytes},
    {"peers.requested", kCount, "chunks asked of other nodes", &M::peers_requested},
    {"peers.received", kCount, "chunks that came from other nodes", &M::peers_received},
    {"peers.bytes_in", kBytes, "bytes that came from other nodes", &M::peers_bytes_in},
    {"peers.late", kCount, "requests to other nodes given up because no answer came", &M::peers_late},
    {"peers.not_here", kCount, "requests that the other node answered with: not here", &M::peers_not_here},
    {"peers.failed", kCount, "requests that the other node could not serve", &M::peers_failed},
    {"peers.corrupt", kCount, "chunks from other nodes whose checksum was wrong (fetched again)",
     &M::peers_corrupt},
    {"peers.latency", MetricUnit::nanoseconds, "duration of a fetch from another node", &M::peers_latency},
    {"peers.served", kCount, "chunks sent to other nodes", &M::peers_served},
    {"peers.bytes_out", kBytes, "bytes sent to other nodes", &M::peers_bytes_out},
    {"peers.refused", kCount, "requests of other nodes for what is not here", &M::peers_refused},
    {"staging.bytes", kBytes, "bytes of samples between the readers and the last one fetched",
     &M::staging_bytes},
    {"staging.capacity", kBytes, "most bytes that may be pushed ahead of the readers", &M::staging_capacity},
    {"staging.kept", kBytes, "bytes that stay in the page cache of plans that do not fit there",
     &M::staging_kept},
    {"staging.pushed", kCount, "samples pushed into the page cache", &M::staging_pushed},
    {"staging.pushed_bytes", kBytes, "bytes pushed into the page cache", &M::staging_pushed_bytes},
    {"staging.push_failures", kCount, "pushes that the kernel refused", &M::staging_push_failures},
    {"staging.sentinels", kCount, "samples left without their last page, to see the reader pass",
     &M::staging_sentinels},
    {"staging.dropped", kCount, "samples dropped from the page cache after they were read",
     &M::staging_dropped},
    {"staging.lookups", kCount, "inodes that the kernel did not know when their pages were pushed",
     &M::staging_lookups},
    {"staging.repaired", kCount, "samples pushed again because the kernel had taken pages of them back",
     &M::staging_repaired},
    {"plans.active", kCount, "plans in force", &M::plans_active},
    {"plans.observations_in_order", kCount, "accesses seen where the plan expected them",
     &M::plan_observations_in_order},
    {"plans.observations_out_of_order", kCount, "accesses to planned samples seen elsewhere",
     &M::plan_observations_out_of_order},
    {"catalog.files", kCount, "regular files in the catalog", &M::catalog_files},
    {"catalog.directories", kCount, "directories in the catalog", &M::catalog_directories},
    {"catalog.bytes", kBytes, "bytes of all files of the dataset", &M::catalog_bytes},
    {"catalog.memory_bytes", kBytes, "memory that the catalog takes", &M::catalog_memory_bytes},
    {"catalog.skipped", kCount, "special files (sockets, pipes, devices) left out", &M::catalog_skipped},
    {"catalog.unreadable", kCount, "entries that could not be read during the scan", &M::catalog_unreadable},
};

}  // namespace

std::span<const MetricInfo> metric_table() {
  return kMetrics;
}

void Histogram::record(std::chrono::nanoseconds duration) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0));
  const uint64_t us = ns / 1000;
  const size_t i = std::min<size_t>(us <= 1 ? 0 : static_cast<size_t>(std::bit_width(us - 1)), kBuckets - 1);
  buckets_[i].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (const auto& b : buckets_) total += b.load(std::memory_order_relaxed);
  return total;
}

double Histogram::quantile_seconds(double q) const {
  const uint64_t total = count();
  if (total == 0) return 0;
  const auto wanted = static_cast<uint64_t>(std::ceil(q * static_cast<double>(total)));
  uint64_t seen = 0;
  size_t i = 0;
  while (i + 1 < kBuckets && (seen += bucket(i)) < wanted) ++i;
  return std::ldexp(1e-6, static_cast<int>(i));
}

}  // namespace clairfs
