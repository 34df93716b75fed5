#include "mount-helper/options/option_sources.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "fs/base/text_file.h"
#include "mount-helper/options/option_table.h"
#include "plan/spec/nearest.h"

namespace clairfs {
namespace {

// What mount(8), fstab and systemd hand to every helper and that asks nothing of us: nosuid and nodev are
// always in force, the rest speaks to mount(8) itself or says what holds anyway.
constexpr std::array<std::string_view, 29> kIgnored = {"rw",       "defaults",   "auto",
                                                       "noauto",   "user",       "nouser",
                                                       "users",    "owner",      "group",
                                                       "nofail",   "_netdev",    "suid",
                                                       "nosuid",   "dev",        "nodev",
                                                       "exec",     "atime",      "noatime",
                                                       "async",    "diratime",   "nodiratime",
                                                       "relatime", "norelatime", "strictatime",
                                                       "lazytime", "sync",       "default_permissions",
                                                       "silent",   "loud"};

bool is_ignored(std::string_view name) {
  constexpr std::array<std::string_view, 6> kPrefixes = {
      "x-", "X-", "comment=", "user=", "fsname=", "subtype="};
  return std::find(kIgnored.begin(), kIgnored.end(), name) != kIgnored.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](auto prefix) { return name.starts_with(prefix); });
}

// Splits at commas; "\," is a comma and "\\" a backslash, as libfuse reads them.
std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> items(1);
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      items.emplace_back();
    } else {
      if (list[i] == '\\' && i + 1 < list.size()) ++i;
      items.back() += list[i];
    }
  }
  return items;
}

// Adds "name=value" or "name" to `values`. False when the table has no such option. Errors: EINVAL when a
// value is missing.
Result<bool> add_item(OptionValues& values, std::string_view item, const std::string& origin_prefix) {
  const size_t equals = item.find('=');
  const std::string_view name = trimmed(item.substr(0, equals));
  const OptionSpec* spec = find_option(name);
  if (spec == nullptr) return false;
  const std::string origin = origin_prefix + std::string(spec->name);
  if (equals == std::string_view::npos && !spec->is_switch()) {
    return Error{EINVAL,
                 fmt::format("{}: the value is missing; write {}={}", origin, spec->name, spec->argument)};
  }
  const std::string_view text = equals == std::string_view::npos ? "true" : trimmed(item.substr(equals + 1));
  values[std::string(spec->name)].push_back({std::string(text), origin});
  return true;
}

}  // namespace

void add_option_flags(CLI::App& app) {
  for (const OptionSpec& spec : option_table()) {
    const std::string flag = fmt::format("--{}", spec.name);
    const std::string help = fmt::format("{} (default: {})", spec.help, spec.default_text);
    if (spec.is_switch()) {
      app.add_flag(flag, help);
    } else {
      CLI::Option* option = app.add_option(flag);
      option->description(help);
      option->type_name(std::string(spec.argument));
      option->expected(1);
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }
}

OptionValues collected_flags(const CLI::App& app) {
  OptionValues values;
  for (const OptionSpec& spec : option_table()) {
    const std::string flag = fmt::format("--{}", spec.name);
    for (const std::string& text : app.get_option(flag)->results()) {
      values[std::string(spec.name)].push_back({text, flag});
    }
  }
  return values;
}

namespace {

// The name of the option that `item` ("name=value") may mean; empty if there is none.
std::string meant_option(std::string_view item, const std::vector<std::string_view>& others) {
  std::vector<std::string_view> names = others;
  for (const OptionSpec& spec : option_table()) names.push_back(spec.name);
  std::string typed(trimmed(item.substr(0, item.find('='))));
  std::replace(typed.begin(), typed.end(), '_', '-');
  return nearest_word(typed, names);
}

}  // namespace

Result<OptionValues> parse_mount_option_list(std::string_view list, bool sloppy) {
  OptionValues values;
  for (const std::string& item : split_list(list)) {
    if (item.empty() || is_ignored(item)) continue;
    if (item == "remount")
      return Error{EINVAL, "-o remount: a mount cannot be changed; unmount and mount again"};
    const auto known = add_item(values, item, "-o ");
    if (!known) return known.error();
    if (!*known && !sloppy) {
      return Error{EINVAL,
                   fmt::format("-o: unknown option '{}'{}; 'clairfs mount --help' lists the options", item,
                               did_you_mean(meant_option(item, {"nofail", "noauto", "_netdev", "noatime"})))};
    }
  }
  return values;
}

Result<OptionValues> parse_config(std::string_view text, const std::string& path) {
  OptionValues values;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const auto known = add_item(values, line, fmt::format("{}:{}: ", path, number));
    if (!known) return known.error();
    if (!*known) {
      return Error{EINVAL, fmt::format("{}:{}: unknown option '{}'{}; write name=value with the names that "
                                       "'clairfs mount --help' lists",
                                       path, number, line, did_you_mean(meant_option(line, {})))};
    }
  }
  if (const auto nested = values.find("config"); nested != values.end()) {
    return Error{EINVAL, nested->second.front().origin + ": a config file cannot name another one"};
  }
  return values;
}

Result<OptionValues> read_config(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_config(*text, path);
}

std::string variable_of(std::string_view option) {
  std::string name = "CLAIRFS_";
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

OptionValues values_of_environment(const char* const* variables) {
  OptionValues values;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view line = *variables;
    const size_t equals = line.find('=');
    if (!line.starts_with("CLAIRFS_") || equals == std::string_view::npos || equals + 1 == line.size())
      continue;
    for (const OptionSpec& spec : option_table()) {
      const std::string name = variable_of(spec.name);
      if (spec.name == "job-secret" || line.substr(0, equals) != name) continue;
      values[std::string(spec.name)].push_back({std::string(line.substr(equals + 1)), "$" + name});
    }
  }
  return values;
}

OptionValues merge(OptionValues base, const OptionValues& over) {
  for (const auto& [name, values] : over) base[name] = values;
  return base;
}

Status apply_values(const OptionValues& values, MountOptions& options) {
  for (const auto& [name, list] : values) {
    const OptionSpec* spec = find_option(name);
    if (spec == nullptr) return Error{EINVAL, fmt::format("unknown option '{}'", name)};
    for (const OptionValue& value : list) {
      if (const Status set = spec->set(options, value.text); !set) {
        return Error{set.error().code, fmt::format("{}: {}", value.origin, set.error().message)};
      }
    }
  }
  return {};
}

}  // namespace clairfs
