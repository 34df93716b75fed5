// A scenario: the cluster, the dataset and the training job that a simulation is about, with the symbols of
// the papers (thesis, tables 3.1 and listing 4.1 to 4.4; Dryden et al., SC'21, table 2).
//
// The file form is TOML; plan/simulator/README.md lists every key. Unit of data: MB = 2^20 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/simulator/scenario/throughput_table.h"

namespace clairfs {

/// Bytes of a MB.
inline constexpr double kMegabyte = 1 << 20;

/// How a batch of B samples is dealt to the workers.
enum class Distribution : uint8_t {
  uniform,     ///< B/N each, as the sampler says
  whole,       ///< every worker gets the whole batch
  imbalanced,  ///< the first half of the workers gets a quarter of what each of the others gets
};

/// How sample sizes come about.
enum class SizeSource : uint8_t {
  fixed,   ///< all `mean`
  normal,  ///< normal, what is below 0 drawn again
  path,    ///< the files of a directory, or of a saved catalog
};

/// How threads share a storage class; see performance_model.h.
enum class ReadSharing : uint8_t { undivided, divided };
/// How threads share the parallel filesystem; see performance_model.h.
enum class PfsSharing : uint8_t { per_thread, per_worker, per_reader };
/// The cost of a read that fills a storage class; see performance_model.h.
enum class FillCost : uint8_t { processed, raw };
/// When a worker computes; see simulation.h.
enum class Computing : uint8_t { per_sample, per_batch };
/// In which order the workers' reads are worked out; see simulation.h.
enum class EvaluationOrder : uint8_t { by_worker, by_time };

/// A storage class j of a worker; the staging buffer is class 0.
struct StorageClass {
  std::string name;
  double capacity = 0;   ///< d_j, MB
  uint32_t threads = 1;  ///< p_j
  ThroughputTable read;  ///< r_j(p), MB/s
  ThroughputTable
      write;           ///< w_j(p), MB/s; empty: as reading for the staging buffer, unlimited for the others
  double latency = 0;  ///< seconds a read
};

/// A plain value; read_scenario() and parse_scenario() check it.
struct Scenario {
  std::string name;  ///< of the file, without folder and extension

  uint32_t workers = 1;  ///< N
  uint32_t epochs = 1;   ///< E
  uint64_t batch = 1;    ///< B, of all workers together
  bool drop_last = false;
  Distribution distribution = Distribution::uniform;
  std::string sampler = "nopfs";
  uint64_t seed = 0;

  uint64_t samples = 0;  ///< F; with kPath found out from there
  SizeSource size_source = SizeSource::fixed;
  double mean = 0;       ///< mu, MB
  double deviation = 0;  ///< sigma, MB
  std::string path;
  std::string records;  ///< with kPath: how the samples in its files are numbered, as a plan says it

  double compute = 0;          ///< c, MB/s
  double preprocess = 0;       ///< beta, MB/s
  double network = 0;          ///< b_c, MB/s
  double network_latency = 0;  ///< seconds a read from another worker
  double pfs_network = 0;      ///< b_fs, MB/s

  StorageClass staging;
  std::vector<StorageClass> classes;  ///< 1 ..= J, fastest first

  ThroughputTable pfs;     ///< t(gamma), MB/s
  double pfs_latency = 0;  ///< seconds a read

  ReadSharing reads = ReadSharing::divided;
  PfsSharing pfs_sharing = PfsSharing::per_worker;
  FillCost fills = FillCost::raw;
  Computing computing = Computing::per_batch;
  EvaluationOrder order = EvaluationOrder::by_time;

  /// D: capacity of a worker's classes, MB, without the staging buffer.
  double worker_capacity() const;
};

/// `origin` names the text in errors. Errors: EINVAL naming line, key and what would be right.
Result<Scenario> parse_scenario(std::string_view text, std::string_view origin);
/// Errors: as parse_scenario(), and errno of the file.
Result<Scenario> read_scenario(const std::string& path);

/// Sets one value as a sweep does. `name`: a class or "staging" (its capacity), "class.NAME.KEY",
/// "SECTION.KEY" or a KEY that only one section has. Errors: EINVAL naming it and what would be right.
Status set_scenario_value(Scenario& scenario, std::string_view name, std::string_view value);

}  // namespace clairfs
