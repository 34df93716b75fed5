// The doors through which options come: command line, mount(8)'s -o, environment, config file. Each only
// collects texts by name; apply_values() turns them into MountOptions, so that all doors mean the same.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

struct OptionValue {
  std::string text;
  std::string origin;  ///< for error lines: "--ram", "-o ram", "/etc/clairfs.conf:3: ram"
};

/// Values by option name (as in the table), in the order given.
using OptionValues = std::map<std::string, std::vector<OptionValue>, std::less<>>;

/// Adds one flag per option of the table to `app`. Once `app` has parsed, collected_flags() gives the values.
void add_option_flags(CLI::App& app);
OptionValues collected_flags(const CLI::App& app);

/// "ram=2G,nvme=/d:10G,allow_other,nosuid". A comma in a value is written "\,". Options that mount(8) passes
/// to every helper (rw, nosuid, _netdev, x-..., ...) are accepted and left out. Errors: EINVAL naming an
/// unknown option; with `sloppy` unknown options are left out too.
Result<OptionValues> parse_mount_option_list(std::string_view list, bool sloppy);

/// Lines "name=value" (or "name" for a switch); `path` is for error lines. Errors: EINVAL with the line's
/// number.
Result<OptionValues> parse_config(std::string_view text, const std::string& path);
Result<OptionValues> read_config(const std::string& path);

/// The config file that is read where none is named, if it is there.
inline constexpr const char* kSystemConfig = "/etc/clairfs.conf";

/// The variable of an option: "CLAIRFS_PFS_CONCURRENCY".
std::string variable_of(std::string_view option);

/// Options that variables give ("CLAIRFS_RAM=2G"), of the lines NAME=VALUE up to a null pointer, as in
/// environ. Variables that are no option's are left out; so is CLAIRFS_JOB_SECRET, which is the secret
/// itself.
OptionValues values_of_environment(const char* const* variables);

/// `over` on top of `base`: an option that `over` names loses all its values from `base`.
OptionValues merge(OptionValues base, const OptionValues& over);

/// Sets every value in `options`. Errors: EINVAL, origin first.
Status apply_values(const OptionValues& values, MountOptions& options);

}  // namespace clairfs
