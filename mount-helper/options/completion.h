// Completions for shells, made from what the commands declare, the option table and the table of plan keys:
// an option that is added there is completed everywhere.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cache/base/result.h"

namespace clairfs {

/// A script for "bash", "zsh" or "fish" that completes the commands of `app`, their options and arguments,
/// but for what is hidden. Errors: EINVAL, another shell.
Result<std::string> completion_script(const CLI::App& app, std::string_view shell);

}  // namespace clairfs
