// The report of `clairfs top`: rates between two readings of .clairfs/stats.json.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace clairfs {

/// Bytes that readers took between two readings, by where they came from.
struct ByteSources {
  double page_cache = 0;  ///< estimated, see byte_sources()
  double ram = 0;
  double nvme = 0;
  double peer = 0;
  double pfs = 0;
  bool page_cache_known = false;

  double all() const { return page_cache + ram + nvme + peer + pfs; }
};

/// Reads from the page cache make no request. Their bytes are those of the samples that the plans' readers
/// passed, at the mean size of these, less the bytes requested. Not known when no plan's reader moved.
ByteSources byte_sources(const nlohmann::json& before, const nlohmann::json& after);

/// The beginning of a line that tells of a trouble.
inline constexpr const char* kTroubleMark = "! ";

/// Lines without their newline: first the mount's, then one or two a plan, then the troubles. `seconds`
/// between the readings. Fields that are missing count as zero. `no_plan` is the line where no plan is told
/// of.
std::vector<std::string> top_lines(const nlohmann::json& before, const nlohmann::json& after, double seconds,
                                   const std::string& no_plan = "no plan");

/// The same for programs: one object in one line, without the newline. `time`: when the second reading was
/// made, in seconds since 1970. Rates are a second; stall_seconds is what all readers together waited in that
/// span.
std::string top_json(const nlohmann::json& before, const nlohmann::json& after, double seconds, double time);

/// A line as several of at most `columns` bytes (20 at least), cut between fields where that is possible.
std::vector<std::string> wrapped(const std::string& line, size_t columns);

/// Whether both readings are of one daemon, so that they can be subtracted.
bool same_daemon(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace clairfs
