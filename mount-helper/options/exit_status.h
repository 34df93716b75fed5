// The exit statuses of every command.
#pragma once

namespace clairfs {

/// Those that mount(8) documents.
enum ExitStatus { exit_success = 0, exit_usage = 1, exit_system = 2, exit_mount_failure = 32 };

}  // namespace clairfs
