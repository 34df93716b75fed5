// The one table of mount options: it feeds the command line, mount(8)'s -o, the config file, the man pages
// and .clairfs/config. An option that is added here is known, documented and readable back everywhere.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

struct OptionSpec {
  std::string_view name;          ///< long name: --NAME, -o NAME=, NAME = in the config file
  std::string_view argument;      ///< placeholder such as "SIZE"; empty for a switch
  std::string_view default_text;  ///< for people, with the reason in `man`
  std::string_view help;          ///< one line
  std::string_view man;           ///< the paragraph in the man page, plain text
  /// Takes one value over into the options. Switches get "true" or "false". Errors: EINVAL, what would be
  /// right.
  Status (*set)(MountOptions&, const std::string& value);
  /// The values in force as `set` takes them; none when unset.
  std::vector<std::string> (*get)(const MountOptions&);

  bool is_switch() const { return argument.empty(); }
};

/// Constant, in the order of the man page.
std::span<const OptionSpec> option_table();

/// The option of that name, where '_' counts as '-' (allow_other), or nullptr.
const OptionSpec* find_option(std::string_view name);

/// The options in force as lines "name=value", which a config file takes back.
std::string options_text(const MountOptions& options);

}  // namespace clairfs
