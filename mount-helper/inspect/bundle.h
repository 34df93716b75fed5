// The facts that a report of a fault needs, in one text that people can read before they send it.
#pragma once

#include <string>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Machine, `findings` as they are, and of each mount its figures, its daemon's limits, its options and the
/// end of its log (where it does not answer, of the log it has by default); with names its status, peers,
/// plans and last reads, too. Without `with_names` nothing of a mount names a
/// file, folder, plan, dataset or host: of a line of its log, anonymous_log_line() is left. REQUIRES: this
/// process has one thread.
std::string bundle_text(const std::vector<std::string>& mountpoints, const std::string& findings,
                        bool with_names);

/// A line of a log without what may name files: its time, its level and, where the message begins with words
/// of ours, those.
std::string anonymous_log_line(const std::string& line);

/// Lines NAME=VALUE of .clairfs/config: values that name a directory, a file, a host or files are left out.
std::string anonymous_config(const std::string& config);

/// The JSON text without names: of plans, their texts and paths, and of what the figures say where.
std::string anonymous_stats(const std::string& stats);

}  // namespace clairfs
