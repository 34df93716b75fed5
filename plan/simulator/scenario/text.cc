#include "plan/simulator/scenario/text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/text.h"

namespace clairfs {
namespace {

// The line without its comment; '#' inside quotes is text.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return line.substr(0, at);
    }
  }
  return line;
}

bool is_bare_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

bool is_section_name(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return is_bare_key(name);
  return is_bare_key(name.substr(0, dot)) && is_bare_key(name.substr(dot + 1));
}

std::optional<double> parse_number(std::string_view text) {
  std::string digits;  // TOML allows 10_000
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
  const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
  const char* end = digits.data() + digits.size();
  double number = 0;
  const auto [rest, failure] = std::from_chars(begin, end, number);
  if (failure != std::errc() || rest != end || begin == end) return std::nullopt;
  return number;
}

std::optional<NumberTable> parse_table(std::string_view text) {
  if (!text.starts_with('{') || !text.ends_with('}')) return std::nullopt;
  text = trimmed(text.substr(1, text.size() - 2));
  NumberTable table;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, comma);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const auto key = parse_number(trimmed(pair.substr(0, equals)));
    const auto value = parse_number(trimmed(pair.substr(equals + 1)));
    if (!key || !value) return std::nullopt;
    table.emplace_back(*key, *value);
    text = comma == text.size() ? std::string_view() : trimmed(text.substr(comma + 1));
  }
  return table;
}

// The value that TOML has for `text`; nothing when it is none.
std::optional<ScenarioValue> parse_toml_value(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'')) {
    if (text.find(text.front(), 1) != text.size() - 1) return std::nullopt;
    return std::string(text.substr(1, text.size() - 2));
  }
  if (const auto table = parse_table(text)) return *table;
  if (const auto number = parse_number(text)) return *number;
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view origin) : origin_(origin) {}

  Result<ScenarioText> parse(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const size_t end = std::min(text.find('\n'), text.size());
      const Status taken = take(trimmed(without_comment(text.substr(0, end))));
      if (!taken) return taken.error();
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return std::move(out_);
  }

 private:
  Error error(const std::string& message) const {
    return Error{EINVAL, fmt::format("{}:{}: {}", origin_, line_, message)};
  }

  Status take(std::string_view line) {
    if (line.empty()) return {};
    return line.starts_with('[') ? take_section(line) : take_entry(line);
  }

  Status take_section(std::string_view line) {
    const std::string_view name = line.ends_with(']') ? trimmed(line.substr(1, line.size() - 2)) : "";
    if (!is_section_name(name)) {
      return error(fmt::format("'{}' is no section; want [NAME] or [class.NAME]", escaped(line)));
    }
    for (const ScenarioSection& known : out_.sections) {
      if (known.name == name)
        return error(fmt::format("[{}] comes twice, first in line {}", name, known.line));
    }
    out_.sections.push_back({std::string(name), line_});
    return {};
  }

  Status take_entry(std::string_view line) {
    const size_t equals = line.find('=');
    const std::string_view key = trimmed(line.substr(0, equals));
    if (equals == std::string_view::npos || !is_bare_key(key)) {
      return error(fmt::format("'{}' is neither KEY = VALUE nor a [section]", escaped(line)));
    }
    const std::string_view text = trimmed(line.substr(equals + 1));
    const std::optional<ScenarioValue> value = parse_toml_value(text);
    if (!value) {
      return error(
          fmt::format("{}: '{}' is no value; want a number, true, false, \"text\" or {{1 = 66, 2 = 86}}", key,
                      escaped(text)));
    }
    const std::string section = out_.sections.empty() ? "" : out_.sections.back().name;
    for (const ScenarioEntry& known : out_.entries) {
      if (known.section == section && known.key == key) {
        return error(fmt::format("{}: comes twice, first in line {}", key, known.line));
      }
    }
    out_.entries.push_back({section, std::string(key), *value, line_});
    return {};
  }

  std::string_view origin_;
  int line_ = 0;
  ScenarioText out_;
};

}  // namespace

Result<ScenarioText> parse_scenario_text(std::string_view text, std::string_view origin) {
  return Parser(origin).parse(text);
}

Result<ScenarioValue> parse_scenario_value(std::string_view text) {
  text = trimmed(text);
  if (const auto value = parse_toml_value(text)) return *value;
  if (text.empty() || text.find_first_of("{}\"'") != std::string_view::npos) {
    return Error{EINVAL, fmt::format("'{}' is no value; want a number, a size, a word or {{1 = 66, 2 = 86}}",
                                     escaped(text))};
  }
  return ScenarioValue(std::string(text));
}

}  // namespace clairfs
