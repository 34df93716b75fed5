#include "mount-helper/options/completion.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mount-helper/options/option_table.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

using Words = std::vector<std::string>;

// Where the words for an argument come from.
enum class Kind { nothing, choice, file, directory, mount, plan_key };

struct Argument {
  std::string placeholder;  // as the help shows it
  Kind kind = Kind::nothing;
  Words choices;
  bool repeated = false;
};

struct Option {
  Words names;  // with their dashes
  std::string help;
  bool takes_value = false;
  Argument value;
};

struct Command {
  Words path;  // "plan", "show"; empty for the program itself
  std::string help;
  std::vector<Option> options;
  std::vector<Argument> arguments;
  std::vector<Command> below;

  std::string name() const { return path.empty() ? "" : path.back(); }
  std::string full_name() const { return fmt::format("{}", fmt::join(path, " ")); }
};

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

// Within single quotes of bash and zsh.
std::string quoted(std::string text) {
  replace_all(text, "'", "'\\''");
  return "'" + text + "'";
}

// ------------------------------------------------------------------ What there is to complete

Argument argument_named(const std::string& placeholder) {
  Argument argument{placeholder, Kind::nothing, {}, false};
  if (placeholder.find('|') != std::string::npos) {
    argument.kind = Kind::choice;
    argument.choices = CLI::detail::split(placeholder, '|');
  } else if (placeholder == "MOUNT") {
    argument.kind = Kind::mount;
  } else if (placeholder == "PLAN") {
    argument.kind = Kind::plan_key;
  } else if (placeholder.starts_with("DIR") || placeholder == "SOURCE" || placeholder == "MOUNTPOINT") {
    argument.kind = Kind::directory;
  } else if (placeholder == "FILE" || placeholder == "PATH" || placeholder == "SCENARIO") {
    argument.kind = Kind::file;
  }
  return argument;
}

// CLI11 adds what its checks want: "NUMBER:INT in [1 - 8]".
std::string placeholder_of(const CLI::Option& option) {
  const OptionSpec* known = option.get_lnames().empty() ? nullptr : find_option(option.get_lnames().front());
  if (known != nullptr && option.get_type_name() == known->argument) return std::string(known->argument);
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

// What the help shows, and nothing else.
Command command_of(const CLI::App& app, Words path) {
  Command command{std::move(path), app.get_description(), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (option->get_positional()) {
      Argument argument = argument_named(option->get_name(true));
      // All commands but two want a mount that is there already.
      const bool to_come = command.name() == "mount" || command.name() == "wait";
      if (argument.placeholder == "MOUNTPOINT" && !to_come) argument.kind = Kind::mount;
      argument.repeated = option->get_items_expected_max() > 1;
      command.arguments.push_back(std::move(argument));
      continue;
    }
    Option found{{}, option->get_description(), option->get_items_expected_max() > 0, {}};
    for (const auto& name : option->get_snames()) found.names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) found.names.push_back("--" + name);
    if (found.takes_value) found.value = argument_named(placeholder_of(*option));
    command.options.push_back(std::move(found));
  }
  for (const CLI::App* below : app.get_subcommands({})) {
    if (below->get_group().empty()) continue;
    Words below_path = command.path;
    below_path.push_back(below->get_name());
    command.below.push_back(command_of(*below, std::move(below_path)));
  }
  return command;
}

// This and all below it.
std::vector<const Command*> all_of(const Command& command) {
  std::vector<const Command*> all{&command};
  for (const Command& below : command.below) {
    const auto deeper = all_of(below);
    all.insert(all.end(), deeper.begin(), deeper.end());
  }
  return all;
}

// The commands of two words, quoted.
Words second_level(const Command& program) {
  Words names;
  for (const Command* command : all_of(program)) {
    if (command->path.size() == 2) names.push_back(quoted(command->full_name()));
  }
  return names;
}

std::string key_words() {
  std::string words;
  for (const PlanKey& key : plan_keys()) words += fmt::format("{}{}=", words.empty() ? "" : " ", key.name);
  return words;
}

std::string names_below(const Command& command) {
  std::string names;
  for (const Command& below : command.below) names += (names.empty() ? "" : " ") + below.name();
  return names;
}

// `text` with the marks that the scripts below have.
std::string filled(std::string text, const Command& program) {
  // Escapes that /proc/self/mounts has for spaces and the like stay as they are.
  replace_all(text, "@LIST_MOUNTS@",
              R"(sed -n 's/^[^ ]* \([^ ]*\) fuse\.clairfs .*/\1/p' /proc/self/mounts)");
  replace_all(text, "@KEYS@", key_words());
  replace_all(text, "@SECOND_LEVEL_CASES@", fmt::format("{}", fmt::join(second_level(program), " | ")));
  replace_all(text, "@SECOND_LEVEL@", fmt::format("{}", fmt::join(second_level(program), " ")));
  return text;
}

// ------------------------------------------------------------------ bash

constexpr const char* kBashBegin = R"sh(# bash completion of clairfs, made by 'clairfs completion bash'.

_clairfs_add() {
  local found
  mapfile -t found < <(compgen "$@" -- "$cur")
  COMPREPLY+=("${found[@]}")
}

_clairfs_files() {
  compopt -o filenames 2>/dev/null
  _clairfs_add -f
}

_clairfs_directories() {
  compopt -o filenames 2>/dev/null
  _clairfs_add -d
}

_clairfs_mounts() {
  _clairfs_add -W "$(@LIST_MOUNTS@)"
  ((${#COMPREPLY[@]})) || _clairfs_directories
}

_clairfs_keys() {
  compopt -o nospace 2>/dev/null
  _clairfs_add -W '@KEYS@'
}

_clairfs() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=
  COMPREPLY=()
  # bash takes '=' for a word of its own.
  if [[ $cur == = || $prev == = ]]; then
    [[ $cur == = ]] && cur= || prev=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $prev == -* ]] || { _clairfs_files; return; }  # the value of a plan's key
  fi
  ((COMP_CWORD < 2)) || command=${COMP_WORDS[1]}
  ((COMP_CWORD < 3)) || case "$command ${COMP_WORDS[2]}" in
    @SECOND_LEVEL_CASES@) command="$command ${COMP_WORDS[2]}" ;;
  esac
)sh";

std::string bash_fill(const Argument& argument) {
  switch (argument.kind) {
    case Kind::choice:
      return fmt::format("_clairfs_add -W '{}'", fmt::join(argument.choices, " "));
    case Kind::file:
      return "_clairfs_files";
    case Kind::directory:
      return "_clairfs_directories";
    case Kind::mount:
      return "_clairfs_mounts";
    case Kind::plan_key:
      return "_clairfs_keys";
    case Kind::nothing:
      break;
  }
  return ":";
}

std::string bash_script(const Command& program) {
  std::string values;
  std::string options;
  std::string words;
  for (const Command* command : all_of(program)) {
    const std::string name = command->full_name();
    Words names;
    for (const Option& option : command->options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      if (!option.takes_value) continue;
      Words patterns;
      for (const auto& flag : option.names) patterns.push_back(fmt::format("'{},{}'", name, flag));
      values += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, " | "), bash_fill(option.value));
    }
    options += fmt::format("      '{}') _clairfs_add -W '{}' ;;\n", name, fmt::join(names, " "));
    words += fmt::format("    '{}')\n", name);
    if (!command->below.empty()) {
      words += fmt::format("      ((COMP_CWORD > {})) || _clairfs_add -W '{}'\n", command->path.size() + 1,
                           names_below(*command));
    }
    for (const Argument& argument : command->arguments) {
      const std::string line = fmt::format("      {}\n", bash_fill(argument));
      if (!words.ends_with(line)) words += line;
    }
    words += "      ;;\n";
  }
  return filled(kBashBegin, program) + "  case \"$command,$prev\" in\n" + values + "  esac\n" +
         "  if [[ $cur == -* ]]; then\n    case $command in\n" + options + "    esac\n    return\n  fi\n" +
         "  case $command in\n" + words + "  esac\n}\n\ncomplete -F _clairfs clairfs\n";
}

// ------------------------------------------------------------------ zsh

constexpr const char* kZshBegin = R"sh(#compdef clairfs
# zsh completion of clairfs, made by 'clairfs completion zsh'.

_clairfs_mounts() {
  local -a mounts
  mounts=(${(f)"$(@LIST_MOUNTS@)"})
  _alternative 'mounts:mount:compadd -a mounts' 'directories:directory:_files -/'
}

_clairfs_keys() {
  if compset -P '*='; then
    _files
  else
    compadd -S '' -- @KEYS@
  fi
}

_clairfs() {
  local command=
  local -a commands
  if ((CURRENT > 2)); then
    command=$words[2]
    shift words
    ((CURRENT--))
  fi
  if ((CURRENT > 2)); then
    case "$command $words[2]" in
      @SECOND_LEVEL_CASES@)
        command="$command $words[2]"
        shift words
        ((CURRENT--))
        ;;
    esac
  fi
)sh";

// In a specification of _arguments or _describe, where ':' separates and brackets enclose.
std::string zsh_text(std::string text) {
  for (const char* special : {"\\", ":", "[", "]"}) replace_all(text, special, std::string("\\") + special);
  return text;
}

std::string zsh_fill(const Argument& argument) {
  switch (argument.kind) {
    case Kind::choice:
      return fmt::format("({})", fmt::join(argument.choices, " "));
    case Kind::file:
      return "_files";
    case Kind::directory:
      return "_files -/";
    case Kind::mount:
      return "_clairfs_mounts";
    case Kind::plan_key:
      return "_clairfs_keys";
    case Kind::nothing:
      break;
  }
  return " ";  // nothing is completed, and the message is shown
}

// What _arguments is told of a command.
Words zsh_specifications(const Command& command) {
  Words specs;
  for (const Option& option : command.options) {
    for (const auto& name : option.names) {
      const bool is_long = name.starts_with("--");
      const std::string several =
          option.takes_value ? "*" : fmt::format("({})", fmt::join(option.names, " "));
      std::string spec = fmt::format("{}{}{}[{}]", several, name,
                                     !option.takes_value ? ""
                                     : is_long           ? "="
                                                         : "+",
                                     zsh_text(option.help));
      if (option.takes_value)
        spec += fmt::format(":{}:{}", zsh_text(option.value.placeholder), zsh_fill(option.value));
      specs.push_back(quoted(spec));
    }
  }
  size_t place = 1;
  for (const Argument& argument : command.arguments) {
    // The first argument may also be a command's name; see zsh_script().
    const std::string position = argument.repeated ? "*" : std::to_string(place++);
    specs.push_back(
        quoted(fmt::format("{}:{}:{}", position, zsh_text(argument.placeholder), zsh_fill(argument))));
  }
  if (command.arguments.empty() && !command.below.empty()) specs.push_back(quoted("1: : "));
  return specs;
}

std::string zsh_script(const Command& program) {
  std::string script = filled(kZshBegin, program) + "  case $command in\n";
  for (const Command* command : all_of(program)) {
    script += fmt::format("    '{}')\n", command->full_name());
    if (!command->below.empty()) {
      script += "      commands=(\n";
      for (const Command& below : command->below)
        script += fmt::format("        {}\n", quoted(below.name() + ":" + zsh_text(below.help)));
      script += "      )\n      ((CURRENT > 2)) || _describe command commands\n";
    }
    script += fmt::format("      _arguments \\\n        {}\n      ;;\n",
                          fmt::join(zsh_specifications(*command), " \\\n        "));
  }
  return script + "  esac\n}\n\n_clairfs \"$@\"\n";
}

// ------------------------------------------------------------------ fish

constexpr const char* kFishBegin = R"sh(# fish completion of clairfs, made by 'clairfs completion fish'.

# Whether the command so far is this one; "plan show" is not "plan".
function __clairfs_is
    set -l words (commandline -opc)[2..-1]
    set -l command "$words[1]"
    contains -- "$words[1..2]" @SECOND_LEVEL@; and set command "$words[1..2]"
    test "$command" = "$argv"
end

function __clairfs_mounts
    @LIST_MOUNTS@
    __fish_complete_directories
end

complete -c clairfs -f
)sh";

// Within single quotes of fish.
std::string fish_quoted(std::string text) {
  replace_all(text, "\\", "\\\\");
  replace_all(text, "'", "\\'");
  return "'" + text + "'";
}

std::string fish_fill(const Argument& argument) {
  switch (argument.kind) {
    case Kind::choice:
      return fmt::format(" -a '{}'", fmt::join(argument.choices, " "));
    case Kind::file:
      return " -F";
    case Kind::directory:
      return " -a '(__fish_complete_directories)'";
    case Kind::mount:
      return " -a '(__clairfs_mounts)'";
    case Kind::plan_key:
      return fmt::format(" -a '{}'", key_words());
    case Kind::nothing:
      break;
  }
  return "";
}

std::string fish_script(const Command& program) {
  std::string script = filled(kFishBegin, program);
  for (const Command* command : all_of(program)) {
    const std::string begin = fmt::format("complete -c clairfs -n {}",
                                          fish_quoted(fmt::format("__clairfs_is {}", command->full_name())));
    script += "\n";
    for (const Command& below : command->below)
      script += fmt::format("{} -a {} -d {}\n", begin, below.name(), fish_quoted(below.help));
    for (const Argument& argument : command->arguments) {
      if (argument.kind != Kind::nothing) script += begin + fish_fill(argument) + "\n";
    }
    for (const Option& option : command->options) {
      script += begin;
      for (const auto& name : option.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value)
        script += (option.value.kind == Kind::file ? " -r" : " -x") + fish_fill(option.value);
      script += fmt::format(" -d {}\n", fish_quoted(option.help));
    }
  }
  return script;
}

}  // namespace

Result<std::string> completion_script(const CLI::App& app, std::string_view shell) {
  const Command program = command_of(app, {});
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  if (shell == "fish") return fish_script(program);
  return Error{EINVAL, fmt::format("no completions for '{}'; there are some for bash, zsh and fish", shell)};
}

}  // namespace clairfs
