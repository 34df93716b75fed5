// The text of a scenario file: the part of TOML 1.0 that scenarios need.
//
//   [section] or [section.name]      # comments to the end of the line
//   key = 12.5 | true | "text" | {1 = 66, 2 = 86}
//
// Numbers, booleans, strings in double or single quotes (without escapes) and inline tables from numbers to
// numbers; one key a line. CLI11's reader of the same form keeps no line numbers, and a scenario's errors
// name the line and the key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Pairs of an inline table, in the order of the file.
using NumberTable = std::vector<std::pair<double, double>>;
using ScenarioValue = std::variant<double, bool, std::string, NumberTable>;

struct ScenarioEntry {
  std::string section;  ///< "pfs", "class.ram"; empty above the first section
  std::string key;
  ScenarioValue value;
  int line = 0;
};

struct ScenarioSection {
  std::string name;
  int line = 0;
};

struct ScenarioText {
  std::vector<ScenarioSection> sections;  ///< in the order of the file; those without keys too
  std::vector<ScenarioEntry> entries;
};

/// `origin` (a file's name) leads each error. Errors: EINVAL with line, key and what would be right; a key or
/// section that comes twice is one.
Result<ScenarioText> parse_scenario_text(std::string_view text, std::string_view origin);

/// The right side of a line on its own: what a sweep sets. A word that is no number, boolean, string or table
/// is taken as a string. Errors: EINVAL with what would be right.
Result<ScenarioValue> parse_scenario_value(std::string_view text);

}  // namespace clairfs
