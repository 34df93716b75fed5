#include "mount-helper/commands/cli.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <getopt.h>

#include "cache/base/escaped.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/log/stderr_line.h"
#include "mount-helper/options/option_table.h"
#include "mount-helper/options/version.h"
#include "plan/spec/keys.h"
#include "plan/spec/nearest.h"

namespace clairfs {
namespace {

constexpr const char* kDescription =
    "clairfs mounts a read-only view of a dataset and caches it in memory and on NVMe.\n\n"
    "  clairfs mount /pfs/imagenet /mnt/imagenet     then train on /mnt/imagenet\n"
    "  clairfs plan /mnt/imagenet/train seed=42      what the script reads, in which order\n"
    "  clairfs status /mnt/imagenet                  what the cache did\n"
    "  clairfs umount /mnt/imagenet";

bool is_command(const CLI::App& app, const std::string& name) {
  return !app.get_subcommands([&](const CLI::App* command) { return command->check_name(name); }).empty();
}

// Commands that are shown; and what others call them.
std::string suggested_command(const CLI::App& app, const std::string& typed) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kOthers{
      std::pair{"unmount", "umount"}, std::pair{"stat", "status"},    std::pair{"stats", "status"},
      std::pair{"ls", "list"},        std::pair{"warm-up", "warmup"}, std::pair{"benchmark", "bench"}};
  for (const auto& [other, ours] : kOthers) {
    if (typed == other) return std::string(ours);
  }
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); }))
    names.push_back(command->get_name());
  return nearest_word(typed, names);
}

// What is wrong with the first argument when it is neither a command nor a flag of the program; else empty.
std::string unknown_argument(const CLI::App& app, const std::string& argument) {
  if (is_command(app, argument)) return "";
  if (!argument.starts_with('-')) {
    return fmt::format("unknown command '{}'{}", argument, did_you_mean(suggested_command(app, argument)));
  }
  const auto flags = app.get_options([&](const CLI::Option* option) { return option->check_name(argument); });
  return flags.empty() ? fmt::format("unknown option '{}'", argument) : "";
}

// The command that was typed, as far as it was recognised.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// What is wrong with the word that stands where a command wants one of its own commands; else empty.
std::string unknown_subcommand(const CLI::App& app) {
  const CLI::App& at = innermost(app);
  const std::vector<std::string> left = at.remaining();
  const bool wants_one = !at.get_subcommands([](const CLI::App*) { return true; }).empty();
  if (left.empty() || left.front().starts_with('-') || !wants_one) return "";
  return fmt::format("unknown command '{}'{}", escaped(left.front()),
                     did_you_mean(suggested_command(at, left.front())));
}

// What a command takes beside its own options by another name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOtherOptions{
    std::pair{"--read-only", "-o ro"}, std::pair{"--readonly", "-o ro"}, std::pair{"--ro", "-o ro"},
    std::pair{"--daemon", "nothing: it is the default"}};

// "seed=VALUE" for "--seed", where a command takes keys of a plan; else empty.
std::string meant_key(const CLI::App& command, const std::string& option) {
  constexpr std::array<std::string_view, 4> kTakeKeys{"plan", "order", "stats", "index"};
  if (std::find(kTakeKeys.begin(), kTakeKeys.end(), command.get_name()) == kTakeKeys.end()) return "";
  std::string key = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  return find_plan_key(canonical_plan_key(key)) ? key + "=VALUE" : "";
}

// Arguments that a command did not expect, in the order in which they were typed. CLI11 has collected them
// backwards in some versions.
std::string unexpected_arguments(const CLI::App& app, const std::vector<std::string>& typed) {
  std::vector<std::string> left = app.remaining(true);
  std::string text;
  std::string first_option;
  for (const std::string& word : typed) {
    const auto found = std::find(left.begin(), left.end(), word);
    if (found == left.end()) continue;
    left.erase(found);
    text += (text.empty() ? "" : " ") + word;
    if (word.starts_with('-') && first_option.empty()) first_option = word.substr(0, word.find('='));
  }
  if (first_option.empty()) return fmt::format("unexpected argument: {}", escaped(text));
  std::vector<std::string> names;
  for (const CLI::Option* option : innermost(app).get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::string meant = nearest_word(first_option, names);
  for (const auto& [other, ours] : kOtherOptions) {
    if (first_option == other) meant = ours;
  }
  if (const std::string key = meant_key(innermost(app), first_option); !key.empty()) meant = key;
  return fmt::format("unknown option: {}{}", escaped(text), did_you_mean(meant));
}

int usage_error(const std::string& message) {
  print_to_stderr(message);
  return exit_usage;
}

constexpr const char* kHelperUsage = "usage: mount.clairfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]";

// "plan show ": the commands that were recognised.
std::string parsed_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    names += at->get_name() + " ";
  }
  return names;
}

// CLI11 2.5 and later join the lines of descriptions and footers, which breaks the examples in them.
void keep_lines(auto& formatter) {
  if constexpr (requires { formatter.enable_description_formatting(false); }) {
    formatter.enable_description_formatting(false);
    formatter.enable_footer_formatting(false);
  }
}

int print_version() {
  fmt::print("clairfs {}\n", version_text());
  return finish_output();
}

// `clairfs help [COMMAND...]`.
int print_help(const std::vector<std::string>& words) {
  int unused = exit_success;
  const auto app = make_app(unused);  // one that has parsed something shows the help of that
  const CLI::App* at = app.get();
  std::string above;
  for (const std::string& word : words) {
    const auto found = at->get_subcommands([&](const CLI::App* each) { return each->check_name(word); });
    if (found.empty()) {
      return usage_error(fmt::format("unknown command '{}'{}; 'clairfs --help' lists the commands",
                                     escaped(word), did_you_mean(suggested_command(*at, word))));
    }
    above += (above.empty() ? "" : " ") + at->get_name();
    at = found.front();
  }
  std::cout << at->help(above);
  return finish_output();
}

void add_help_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("help", "Show the help of a command");
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *words, "The command");
  command->callback([words, &status] { status = print_help(*words); });
}

}  // namespace

std::unique_ptr<CLI::App> make_app(int& status) {
  auto app = std::make_unique<CLI::App>(kDescription, "clairfs");
  keep_lines(*app->get_formatter());  // commands share it
  app->set_version_flag("--version", "clairfs " + version_text());
  app->require_subcommand(1);
  app->footer("'clairfs COMMAND --help' shows the options of a command; clairfs(1) is the manual.");
  add_mount_command(*app, status);
  add_umount_command(*app, status);
  add_status_command(*app, status);
  add_warmup_command(*app, status);
  add_plan_command(*app, status);
  add_index_command(*app, status);
  add_top_command(*app, status);
  add_simulate_command(*app, status);
  add_calibrate_command(*app, status);
  add_list_command(*app, status);
  add_wait_command(*app, status);
  add_doctor_command(*app, status);
  add_bench_command(*app, status);
  add_metrics_command(*app, status);
  add_cache_command(*app, status);
  add_help_command(*app, status);
  app->add_subcommand("version", "Say which version this is")->callback([&status] {
    status = print_version();
  });
  add_guard_command(*app, status);
  add_man_page_command(*app, status);
  add_completion_command(*app, status);
  return app;
}

int run_clairfs(int argc, char** argv) {
  int status = exit_success;
  const auto app = make_app(status);
  if (argc < 2) {
    std::cout << app->help();
    return exit_usage;
  }
  if (const std::string unknown = unknown_argument(*app, argv[1]); !unknown.empty()) {
    return usage_error(unknown + "; 'clairfs --help' lists the commands");
  }
  try {
    app->parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    app->exit(wanted);
    return finish_output();
  } catch (const CLI::ExtrasError&) {
    return usage_error(fmt::format("{}; see 'clairfs {}--help'",
                                   unexpected_arguments(*app, {argv + 1, argv + argc}),
                                   parsed_commands(*app)));
  } catch (const CLI::ParseError& failure) {
    const std::string unknown = unknown_subcommand(*app);
    return usage_error(fmt::format("{}; see 'clairfs {}--help'", unknown.empty() ? failure.what() : unknown,
                                   parsed_commands(*app)));
  } catch (const std::bad_alloc&) {
    return fail(Error{ENOMEM, "not enough memory"}, exit_system);
  } catch (const std::exception& failure) {
    return fail(Error{EIO, failure.what()}, exit_system);
  }
  return status;
}

int run_mount_helper(int argc, char** argv) {
  const std::string_view only = argc == 2 ? argv[1] : "";
  if (only == "--help" || only == "-h") {
    fmt::print("{}\n'man clairfs' tells of the options.\n", kHelperUsage);
    return finish_output();
  }
  if (only == "--version") return print_version();
  MountRequest request;
  std::string options;
  opterr = 0;
  for (int flag = 0; (flag = ::getopt(argc, argv, "sfnvo:t:")) != -1;) {
    switch (flag) {
      case 's':
        request.sloppy = true;
        break;
      case 'f':
        request.fake = true;
        break;
      case 'v':
        request.verbose = true;
        break;
      case 'o':
        options += (options.empty() ? "" : ",") + std::string(optarg);
        break;
      case 'n':  // no entry in /etc/mtab, which there is no more
      case 't':  // the type that brought mount(8) here
        break;
      default:
        return usage_error(kHelperUsage);
    }
  }
  if (argc - optind != 2) return usage_error(kHelperUsage);
  request.source = argv[optind];
  request.mountpoint = argv[optind + 1];
  request.option_list = options;
  try {
    return mount_command(request);
  } catch (const std::exception& failure) {
    return fail(Error{EIO, failure.what()}, exit_system);
  }
}

}  // namespace clairfs
