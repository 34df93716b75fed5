// The options of one mount: a plain struct, filled from the option table and checked before anything runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/catalog/record_chunks.h"
#include "cache/io/backend.h"
#include "net/meeting/host_port.h"

namespace clairfs {

/// A directory on a fast local disk, and how much of it the NVMe tier may take.
struct NvmeDir {
  std::string directory;
  uint64_t capacity = 0;  ///< bytes; 0 until resolve_paths() replaces it with a share of the free space
  uint64_t asked = 0;     ///< bytes, if resolve_paths() lowered the capacity to what the disk has; else 0
  unsigned share = 0;     ///< per cent of the free space that the capacity is; 0: it was given in bytes, or
                          ///< neither was given and resolve_paths() has not chosen yet
  bool operator==(const NvmeDir&) const = default;
};

/// Defaults that depend on the machine (ram, staging, page_cache, catalog_dir, fuse_threads) come from
/// default_options().
struct MountOptions {
  std::string source;      ///< absolute real path of the dataset
  std::string mountpoint;  ///< absolute real path of an existing directory
  bool foreground = false;

  uint64_t ram = 0;  ///< bytes of the RAM arena
  std::vector<NvmeDir> nvme;
  uint64_t staging = 0;         ///< bytes pushed into the page cache ahead of the reader
  uint64_t page_cache = 0;      ///< bytes that plans may leave in the page cache once they were read
  uint64_t chunk = 4ULL << 20;  ///< bytes; large enough for full PFS bandwidth, small enough to place
  std::vector<RecordChunk> record_chunks;  ///< files with other chunks, at most as large
  IoKind io = IoKind::automatic;
  /// Operations on the PFS at once, at most. 64 keeps a PFS of 1 ms latency at 64,000 small files a second;
  /// the adaptive limit below it finds what the PFS really likes.
  unsigned pfs_concurrency = 64;
  unsigned fuse_threads = 2;

  /// In a job of several nodes: whether they serve each other. Off: each has a separate cache.
  bool peers = true;
  std::string infer = "cheap";  ///< how plans are found where none was registered: "off", "cheap" or "full"
  std::string placement = "clairfs";  ///< the rule that says which node keeps what: "clairfs" or "nopfs"

  std::optional<HostPort> job;    ///< where the nodes of a job without a launcher meet
  std::optional<uint32_t> rank;   ///< of this node in it; else what the environment says
  std::optional<uint32_t> nodes;  ///< how many it has; else what the environment says
  std::string job_secret_file;
  std::string job_secret;  ///< of that file or $CLAIRFS_JOB_SECRET, once options_for_node() has read it
  std::chrono::seconds job_timeout = std::chrono::minutes(2);  ///< until all nodes have come
  std::string network;                                         ///< see choose_network()

  std::string catalog_dir;     ///< holds saved catalogs and, unless log_file says otherwise, the log
  std::string check = "full";  ///< what a saved catalog is compared with: "full" or "directories"

  bool read_only = false;  ///< kernel mount flag `ro` was asked for
  bool no_exec = false;    ///< kernel mount flag `noexec`
  bool allow_other = false;

  std::string log_level = "info";
  std::string log_file;     ///< empty: default_log_file() in the background, stderr in the foreground
  std::string config_file;  ///< where options were read from, or empty

  bool operator==(const MountOptions&) const = default;
};

}  // namespace clairfs
