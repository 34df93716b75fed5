// Measures what a scenario wants to know of this machine: the filesystem below a dataset, an NVMe directory,
// memory.
//
// The source is only read. In the NVMe directory a file without a name is written, which is gone when the
// measurement is, however it ends. Time and bytes are bounded for every point of every table.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/result.h"
#include "cache/io/backend.h"

namespace clairfs {

struct CalibrationOptions {
  std::string source;
  std::string nvme;                         ///< directory; empty: no NVMe is measured
  unsigned most_threads = 8;                ///< tables go 1, 2, 4, ... up to it
  Duration time = std::chrono::seconds(2);  ///< for each point
  uint64_t bytes =
      uint64_t{1} << 30;  ///< for each point; also the size of the file on the NVMe, if it has room
  IoKind io = IoKind::automatic;
};

/// A table of measurements: requests in flight, MB/s.
using Measurements = std::vector<std::pair<unsigned, double>>;

struct Calibration {
  uint64_t files = 0;       ///< of the source
  double mean_mb = 0;       ///< of its files
  uint64_t read_bytes = 0;  ///< pieces that the tables of the source and the NVMe were measured with, at most
  Measurements pfs;
  double small_read_ms = 0;  ///< median of opening, reading and closing a small file; 0: there are none
  uint64_t small_bytes = 0;  ///< of these files, at most
  Measurements nvme_read;
  Measurements nvme_write;
  bool nvme_cached = false;  ///< its filesystem takes no O_DIRECT, so that memory was measured in part
  Measurements memory;       ///< copying
};

/// The name of the measurement under way, and the share that is done, 0 ..= 1.
using CalibrationProgress = std::function<void(const std::string& what, double done)>;

/// Takes about options.time for each of four tables' points. The page cache of the files read is given back
/// before they are read, so that it has no part in it; a file is read twice only when all were. Errors:
/// EINVAL when the source has no file with bytes; errno of the scan, of reading and of writing.
Result<Calibration> calibrate(const CalibrationOptions& options, Logger& log,
                              const CalibrationProgress& progress = {});

/// A scenario file for one job over the source: what was measured, and for the rest values to be replaced,
/// which are marked.
std::string calibration_scenario(const Calibration& calibration, const CalibrationOptions& options);

}  // namespace clairfs
