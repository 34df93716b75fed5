// The two programs in one binary: `clairfs COMMAND ...` for people and mount.clairfs for mount(8).
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

namespace clairfs {

/// The parser with all commands; parsing runs the command, whose exit status is stored in `status`, which
/// must outlive the parser.
std::unique_ptr<CLI::App> make_app(int& status);

/// Parses and runs; prints what went wrong as one line. Returns the exit status (see ExitStatus).
int run_clairfs(int argc, char** argv);

/// mount.clairfs SPEC DIR [-sfnv] [-o OPTIONS] [-t TYPE], as mount(8) calls it.
int run_mount_helper(int argc, char** argv);

}  // namespace clairfs
