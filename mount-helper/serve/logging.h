// Where the daemon's log lines go.
#pragma once

#include <memory>
#include <string>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// CATALOG_DIR/log/NAME.log; the name is the mountpoint with '-' for '/', with a hash where that is not
/// unique.
std::string default_log_file(const std::string& catalog_dir, const std::string& mountpoint);

/// The file that make_logger() writes to; empty if it is stderr alone.
std::string log_file_of(const MountOptions& options);

/// A logger for `options`: stderr in the foreground (and options.log_file if named), else a file that is
/// begun anew at 4 MiB, with one older one kept. Missing directories of the default file are made, mode 0700.
/// Starts no thread. Errors: the directory or file cannot be made, with the path and the option to name
/// another.
Result<std::shared_ptr<Logger>> make_logger(const MountOptions& options);

/// Makes `directory` and those above it that are missing, with mode 0700. Errors: what mkdir(2) says.
Status make_directories(const std::string& directory);

}  // namespace clairfs
