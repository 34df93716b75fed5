#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "cache/base/units.h"
#include "fs/base/text_file.h"
#include "fs/control/commands.h"
#include "mount-helper/client/control_client.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/mounts/resolve_path.h"
#include "plan/offline/order.h"
#include "plan/offline/stats.h"
#include "plan/spec/nearest.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

constexpr int kAnswerSeconds = 30;  // an answer takes milliseconds, but waits for a plan being registered
constexpr int kRegisterSeconds =
    3600;  // the numbering may read 10^8 entries and a list of 1 GiB from a busy PFS

// Of `plan check` and `plan detect`, whose statuses are those of cmp(1), and one more.
constexpr int exit_differs = 1;
constexpr int exit_nothing_seen = 3;

// Of `plan order` and `plan show`: a larger number is a typing error.
constexpr uint64_t kMostNumber = UINT32_MAX - 1;

int print(const Result<std::string>& answer) {
  return answer ? print_answer(*answer) : fail(answer.error());
}

// Finds the mount and sends it one command.
Result<std::string> ask(const std::string& path, const std::string& command) {
  const auto mount = find_controlled_mount(path);
  if (!mount) return mount.error();
  return ask_mount(*mount, command, kAnswerSeconds);
}

int show_text(const std::string& path, const std::string& name) {
  const auto plans = ask(path, "show " + name);
  if (!plans || !plans->empty()) return print(plans);
  return print_answer("no plan; set one with: clairfs plan MOUNT seed=NUMBER ...");
}

// What is wrong with what somebody gave for a mount, which may be a plan or like a subcommand; else empty.
std::string wrong_mount(const CLI::App& plan, const std::string& path) {
  const auto there = resolve_path(path);
  if (there || (there.error().code != ENOENT && there.error().code != ENAMETOOLONG)) return "";
  const bool is_pair = !path.starts_with('/') && path.find('=') != std::string::npos;
  if (path.starts_with('{') || is_pair) return "the mount comes first: clairfs plan MOUNT KEY=VALUE...";
  if (path.find('/') != std::string::npos) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : plan.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  const std::string meant = nearest_word(path, names);
  return meant.empty() ? "" : fmt::format("unknown command 'plan {}'{}", path, did_you_mean(meant));
}

int register_plan(const std::string& path, const std::vector<std::string>& words) {
  if (words.empty()) return show_text(path, "");
  const auto mount = find_controlled_mount(path);
  if (!mount) return fail(mount.error());
  std::error_code failure;
  const std::string here = std::filesystem::current_path(failure);
  if (failure) return fail(system_error(failure.value(), "find the current directory"));
  const auto text = plan_to_register(plan_text_of(words), *mount, here);
  if (!text) return fail(text.error());
  const auto spec = parse_plan(*text);
  const auto before = spec ? ask_mount(*mount, "show " + spec->name, kAnswerSeconds) : std::string();
  const auto answer = ask_mount(*mount, "plan " + *text, kRegisterSeconds);
  const auto first_line = [](const std::string& all) { return all.substr(0, all.find('\n')); };
  if (before && answer && !before->empty() && first_line(*before) != first_line(*answer))
    return print_answer(*answer + "  replaces " + first_line(*before) + "\n");
  return print(answer);
}

struct ShowArguments {
  std::string path;
  std::string name;
  uint64_t next = 0;
  bool json = false;
};

// The one plan of that name out of the array of all.
Result<std::string> pick(const std::string& plans, const std::string& name) {
  const auto all = nlohmann::ordered_json::parse(plans, nullptr, false);
  if (all.is_array()) {
    for (const auto& plan : all) {
      if (plan.value("name", "") == name) return plan.dump(2) + "\n";
    }
  }
  return Error{ENOENT, fmt::format("there is no plan named '{}'", name)};
}

int show(const ShowArguments& arguments) {
  if (arguments.next > 0) {
    const auto files = ask(arguments.path, fmt::format("next {} {}", arguments.name, arguments.next));
    if (files && files->empty())
      return print_answer("nothing: the plan's last epoch was read, or it is suspended");
    return print(files);
  }
  if (!arguments.json) return show_text(arguments.path, arguments.name);
  const auto plans = ask(arguments.path, "json");
  return print(plans && !arguments.name.empty() ? pick(*plans, arguments.name) : plans);
}

int check(const std::string& path, const std::string& name) {
  const auto answer = ask(path, "check " + name);
  if (!answer) return clairfs::fail(answer.error(), exit_system);
  const int printed = print(answer);
  if (printed != exit_success) return printed;
  return answer->starts_with("pass\n")   ? exit_success
         : answer->starts_with("fail\n") ? exit_differs
                                         : exit_nothing_seen;
}

int detect(const std::string& path, bool json, bool full) {
  const auto told = ask(path, full ? "detect json full" : "detect json");
  if (!told) return clairfs::fail(told.error(), exit_system);
  const auto state = nlohmann::json::parse(*told, nullptr, false);
  const bool found = state.is_object() && state.value("state", "") == "found";
  const int printed = print(json ? told : ask(path, "detect"));
  return printed != exit_success ? printed : found ? exit_success : exit_differs;
}

struct OrderArguments {
  std::vector<std::string> words;
  uint64_t epoch = 0;
  uint64_t rank = 0;
  bool paths = false;
  bool ranges = false;
  bool null = false;
};

int order(const OrderArguments& arguments) {
  Logger log = stderr_logger();
  using Detail = PlanOrderRequest::Detail;
  const PlanOrderRequest request{plan_text_of(arguments.words), Epoch(static_cast<uint32_t>(arguments.epoch)),
                                 TrainingRank(static_cast<uint32_t>(arguments.rank)),
                                 arguments.paths    ? Detail::path
                                 : arguments.ranges ? Detail::ranges
                                                    : Detail::none};
  const Status done = plan_order(request, log, [&](uint32_t sample, std::string_view detail) {
    if (arguments.null) {
      fmt::print("{}{}", detail, '\0');
    } else if (arguments.paths) {
      fmt::print("{}\n", escaped(detail));
    } else if (arguments.ranges) {
      fmt::print("{}\n", escape_controls(detail));
    } else {
      fmt::print("{}\n", sample);
    }
    return std::ferror(stdout) == 0;
  });
  return done ? finish_output() : fail(done.error());
}

// A name that the daemon's commands take as one word.
std::string check_name(const std::string& name) {
  const bool plain = !name.empty() && name.find_first_of(" \t\r\n") == std::string::npos;
  return plain ? "" : "a plan's name has letters, digits, '-', '_' and '.'";
}

void add_path(CLI::App* command, std::string& path) {
  command->add_option("MOUNT", path, "Mountpoint, or any path inside the mount")->required();
}

void add_name(CLI::App* command, std::string& name, const std::string& help) {
  command->add_option("--name", name, help)->type_name("NAME")->check(CLI::Validator(check_name, ""));
}

void add_show(CLI::App& plan, int& status) {
  CLI::App* command =
      plan.add_subcommand("show", "Show the plans in force, where their readers are, what comes next");
  const auto arguments = std::make_shared<ShowArguments>();
  add_path(command, arguments->path);
  add_name(command, arguments->name, "Only this plan (default: all; with --next as for check)");
  CLI::Option* next =
      command->add_option("--next", arguments->next, "Only the next files, in the order of reading");
  next->type_name("NUMBER")->check(CLI::Range(uint64_t{1}, kMostNextFiles));
  command->add_flag("--json", arguments->json, "As JSON")->excludes(next);
  command->callback([arguments, &status] { status = show(*arguments); });
}

void add_check(CLI::App& plan, int& status) {
  CLI::App* command = plan.add_subcommand("check", "Compare what was read so far with what was predicted");
  command->footer("Exit status: 0 pass, 1 fail, 2 could not be checked, 3 nothing observed yet.");
  const auto path = std::make_shared<std::string>();
  const auto name = std::make_shared<std::string>();
  add_path(command, *path);
  add_name(command, *name, "The plan (default: the only one, or 'default')");
  command->callback([path, name, &status] { status = check(*path, *name); });
}

void add_detect(CLI::App& plan, int& status) {
  CLI::App* command =
      plan.add_subcommand("detect", "Say which order readers seem to follow, with the plan that says so");
  command->footer("Exit status: 0 an order is certain, 1 none is, 2 could not be asked.");
  const auto path = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  const auto full = std::make_shared<bool>(false);
  add_path(command, *path);
  command->add_flag("--full", *full,
                    "Search all shuffles of torch from now on, as --infer full: ask again in minutes");
  command->add_flag("--json", *json, "As JSON");
  command->callback([path, json, full, &status] { status = detect(*path, *json, *full); });
}

void add_cancel(CLI::App& plan, int& status) {
  CLI::App* command = plan.add_subcommand("cancel", "Take a plan back");
  const auto path = std::make_shared<std::string>();
  const auto name = std::make_shared<std::string>("default");
  add_path(command, *path);
  add_name(command, *name, "The plan (default: 'default')");
  const auto all = std::make_shared<bool>(false);
  command->add_flag("--all", *all, "Every plan")->excludes("--name");
  command->callback(
      [path, name, all, &status] { status = print(ask(*path, *all ? "cancel-all" : "cancel " + *name)); });
}

void add_order(CLI::App& plan, int& status) {
  CLI::App* command =
      plan.add_subcommand("order", "Print what a training rank reads in an epoch; needs no mount");
  command->footer(
      "n=SAMPLES gives the size of the dataset; or root=DIR names it, here any directory.\n"
      "Example: clairfs plan order sampler=torch.distributed seed=42 world=8 n=1281167 --epoch 3 --rank 5");
  const auto arguments = std::make_shared<OrderArguments>();
  command->add_option("PLAN", arguments->words, "The plan; see clairfs(1)")
      ->type_name("KEY=VALUE")
      ->required()
      ->expected(-1);
  command->add_option("--epoch", arguments->epoch, "Epoch, counted from 0 (default: 0)")
      ->type_name("NUMBER")
      ->check(CLI::Range(uint64_t{0}, kMostNumber));
  command->add_option("--rank", arguments->rank, "Training rank, counted from 0 (default: 0)")
      ->type_name("NUMBER")
      ->check(CLI::Range(uint64_t{0}, kMostNumber));
  CLI::Option* paths =
      command->add_flag("--paths", arguments->paths, "Print the files instead of numbers; needs root=DIR");
  command
      ->add_flag("--ranges", arguments->ranges,
                 "Print where each sample's bytes are, as format=ranges takes it; needs root=DIR")
      ->excludes(paths);
  command->add_flag("-0,--null", arguments->null, "End each file's name, as it is, with a NUL, for xargs -0")
      ->needs(paths);
  command->callback([arguments, &status] { status = order(*arguments); });
}

struct StatsArguments {
  std::vector<std::string> words;
  std::vector<double> deltas = {0.1};
  std::string ram;
  std::string nvme;
  std::string sample_size;
  std::string plot;
  bool json = false;
};

int stats(const StatsArguments& arguments) {
  if (const Status fits = check_plot(arguments.plot); !fits) return fail(fits.error());
  PlanStatsRequest request;
  request.plan = plan_text_of(arguments.words);
  request.deltas = arguments.deltas;
  const auto size = [](const std::string& text) {
    return text.empty() ? 0 : *parse_size(text);
  };  // checked before
  if (!arguments.ram.empty() || !arguments.nvme.empty()) {
    request.capacity = NodeCapacity{size(arguments.ram), size(arguments.nvme)};
  }
  request.sample_bytes = size(arguments.sample_size);
  Logger log = stderr_logger();
  const auto found = plan_stats(request, log);
  if (!found) return fail(found.error());
  if (!arguments.plot.empty()) {
    const Status written = write_text_file(arguments.plot, plan_stats_plot(*found));
    if (!written) return fail(written.error());
  }
  return print(arguments.json ? plan_stats_json(*found) : plan_stats_text(*found));
}

std::string check_size(const std::string& text) {
  const auto bytes = parse_size(text);
  return bytes ? "" : bytes.error().message;
}

void add_stats(CLI::App& plan, int& status) {
  CLI::App* command = plan.add_subcommand(
      "stats", "Say how often each node will read its samples, and how much of it locally; needs no mount");
  command->footer(
      "n=SAMPLES gives the size of the dataset; or root=DIR names it, here any directory.\n"
      "Example: clairfs plan stats seed=0 n=1281167 epochs=90 world=64 ranks_per_node=8 --ram 40G "
      "--nvme 100G --sample-size 110K");
  const auto arguments = std::make_shared<StatsArguments>();
  command->add_option("PLAN", arguments->words, "The plan, with epochs and world; see clairfs(1)")
      ->type_name("KEY=VALUE")
      ->required()
      ->expected(-1);
  command
      ->add_option(
          "--delta", arguments->deltas,
          "Count the samples that a node reads more than (1 + DELTA) times as often as the mean; may be "
          "given several times (default: 0.1)")
      ->type_name("DELTA")
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 1e6));
  const auto add_size = [&](const char* name, std::string& value, const char* help) {
    command->add_option(name, value, help)->type_name("SIZE")->check(CLI::Validator(check_size, ""));
  };
  add_size("--ram", arguments->ram, "RAM tier of a node: also says from where the reads are answered");
  add_size("--nvme", arguments->nvme, "NVMe tier of a node");
  add_size("--sample-size", arguments->sample_size,
           "Size of each sample, where the plan has n= and no root=");
  command->add_flag("--json", arguments->json, "As JSON");
  command->add_option("--plot", arguments->plot, "Also draw it into this SVG file")->type_name("FILE");
  command->callback([arguments, &status] { status = stats(*arguments); });
}

}  // namespace

void add_plan_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("plan", "Say in which order a script reads, so that files are there before");
  command->require_subcommand(0, 1);
  struct Arguments {
    std::string path;
    std::vector<std::string> words;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("MOUNT", arguments->path,
                      "Mountpoint, or the dataset's folder in it (then the plan's root)");
  command->add_option("PLAN", arguments->words, "The plan to put in force; see clairfs(1)")
      ->type_name("KEY=VALUE")
      ->expected(-1);
  add_show(*command, status);
  add_check(*command, status);
  add_detect(*command, status);
  add_cancel(*command, status);
  add_order(*command, status);
  add_stats(*command, status);
  // After the subcommands, which would inherit it.
  command->footer(
      "Example: clairfs plan /mnt/imagenet/train seed=42 epochs=90 world=8 ranks_per_node=8 batch=32 "
      "workers=4\n"
      "A mountpoint called like a subcommand is reached as ./NAME.");
  command->callback([command, arguments, &status] {
    if (!command->get_subcommands().empty()) {
      if (!arguments->path.empty()) {
        throw CLI::ExtrasError({arguments->path});
      }
      return;
    }
    if (arguments->path.empty()) throw CLI::RequiredError("MOUNT");
    const std::string wrong = wrong_mount(*command, arguments->path);
    status = wrong.empty() ? register_plan(arguments->path, arguments->words) : fail(Error{EINVAL, wrong});
  });
}

}  // namespace clairfs
