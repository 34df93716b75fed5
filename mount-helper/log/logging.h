// The daemon's log, and the place that its lines go to.
#pragma once

#include <memory>
#include <string>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// CATALOG_DIR/log/NAME@HOST.log; NAME is the mountpoint with '-' for '/', with a hash where that is not
/// unique. The host is in it because a home, and with it the catalog directory, may be shared by nodes.
std::string default_log_file(const std::string& catalog_dir, const std::string& mountpoint);

/// This node's name up to the first dot, as far as it may stand in a file name; "host" where there is none.
std::string short_host_name();

/// The file that make_logger() writes to; empty if it is stderr alone.
std::string log_file_of(const MountOptions& options);

/// A logger for `options`: stderr in the foreground (and options.log_file if named), else a file that begins
/// again at 4 MiB, with one older one kept. Missing directories of the default file are made, mode 0700.
/// Where stderr is systemd's journal, lines begin with their level as sd-daemon(3) has it, and without the
/// time, which the journal knows. Starts no thread: until start_log() the thread that logs a line writes it,
/// and text printed after a line comes after it. Errors: the directory or file cannot be made, with the path
/// and the option to name another.
Result<std::shared_ptr<Logger>> make_logger(const MountOptions& options);

/// Whether make_logger() could make its file, as far as that shows without making anything. Errors: as there.
Status check_log_file(const MountOptions& options);

/// From now on no thread that logs waits for the outputs (LogQueue). The end of `log` waits for the lines, a
/// second at most, as does Logger::flush(): call that before the process ends in another way, and before text
/// that is to come after them on a terminal. The last lines before a crash may be missing. Once. REQUIRES: as
/// LogQueue::start().
void start_log(Logger& log);

/// Lines name this node from now on: the nodes of a job may write to one terminal or file.
void name_node_in_log(Logger& log, uint32_t node);

/// The log goes on in the files that have its names, which are made if need be: a log rotation has moved the
/// others away. So too where no line follows, since --log-level leaves those out.
void reopen_log(Logger& log);

/// An error for the file alone, if the log has one: what stderr is told in other words.
void log_error_to_file(Logger& log, const std::string& text);

/// Whether stderr has room for a line, so that printing one does not wait for its reader. Waits for room as
/// long as the end of a log does for an output.
bool stderr_takes_a_line();

/// The first line of a log, which a report of a fault needs: version, process, host, kernel and options.
std::string log_greeting(const MountOptions& options);

}  // namespace clairfs
