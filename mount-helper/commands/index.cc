#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>

#include "cache/base/text.h"
#include "mount-helper/client/control_client.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/progress_bar.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

constexpr int kAnswerSeconds = 30;  // an answer takes milliseconds, but may wait for that of another command
constexpr auto kAskAgain = std::chrono::milliseconds(100);

struct IndexArguments {
  std::string file;
  std::string format;
  std::vector<std::string> words;
};

Error is_a_folder(const std::string& path) {
  return {EINVAL,
          fmt::format("{} is a folder; give a packed file in it, in quotes a pattern for several", path)};
}

// Why no format is known. A pattern is the name of no file.
Error no_format(const std::string& path, const std::string& name) {
  const bool is_pattern = name.find_first_of("*?") != std::string::npos;
  struct stat there {};
  if (!is_pattern && ::stat(path.c_str(), &there) != 0) return system_error(errno, path);
  if (!is_pattern && S_ISDIR(there.st_mode)) return is_a_folder(path);
  return {EINVAL, fmt::format("the name {} does not tell the format; want --format", name)};
}

// What the plan says of the order does not matter.
Result<std::string> index_plan(const IndexArguments& arguments, const std::string& name,
                               const ControlledMount& mount) {
  const std::string format = arguments.format.empty() ? std::string(format_of_file(name)) : arguments.format;
  if (format.empty()) return no_format(arguments.file, name);
  const std::string file = mount.folder.empty() ? name : mount.folder + "/" + name;
  std::vector<std::string> words{"name=index", "shuffle=false",    "epochs=1",
                                 "root=.",     "format=" + format, "file=" + file};
  // Of shards that are read from front to back nothing is looked at.
  if (format == "tar" || format == "tfrecord") words.emplace_back("random_access=true");
  words.insert(words.end(), arguments.words.begin(), arguments.words.end());
  std::error_code failure;
  const std::string here = std::filesystem::current_path(failure);
  if (failure) return system_error(failure.value(), "find the current directory");
  ControlledMount top = mount;
  top.folder.clear();
  return plan_to_register(plan_text_of(words), top, here);
}

// "indexing 12 %"
std::optional<double> share_of(std::string_view answer) {
  constexpr std::string_view kIndexing = "indexing ";
  if (!answer.starts_with(kIndexing)) return std::nullopt;
  answer.remove_prefix(kIndexing.size());
  const auto percent = parse_whole<unsigned>(answer.substr(0, answer.find(' ')));
  return percent ? std::optional(*percent / 100.0) : std::nullopt;
}

// A pattern is no file: its folder leads to the mount.
int index_command(const IndexArguments& arguments) {
  std::filesystem::path file(arguments.file);
  if (!file.has_filename()) file = file.parent_path();
  const auto mount = find_controlled_mount(file.has_parent_path() ? file.parent_path().string() : ".");
  // The folder of a mountpoint is not on the mount.
  if (!mount && find_controlled_mount(file)) return fail(is_a_folder(arguments.file));
  if (!mount) return fail(mount.error());
  const auto plan = index_plan(arguments, file.filename(), *mount);
  if (!plan) return fail(plan.error());
  const SteadyClock clock;
  const TimePoint begun = clock.now();
  ProgressBar bar(stderr, clock);
  for (;;) {
    const auto answer = ask_mount(*mount, "index " + *plan, kAnswerSeconds);
    if (!answer) {
      bar.clear();
      return fail(answer.error());
    }
    const auto share = share_of(*answer);
    if (!share) {
      bar.clear();
      return print_answer(*answer);
    }
    bar.show(progress_text(*share, "indexing", clock.now() - begun));
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace

void add_index_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("index", "Find the records of a packed file ahead of a plan, and say what they are");
  command->footer(
      "Example: clairfs index /mnt/data/train.lmdb keys=decimal\n"
      "The index is saved; a plan with the same keys begins at once.");
  const auto arguments = std::make_shared<IndexArguments>();
  command
      ->add_option("FILE", arguments->file,
                   "The packed file below a mountpoint, or a pattern for several, in quotes")
      ->required();
  command->add_option("KEYS", arguments->words, "Keys of the plan that say what its samples are")
      ->type_name("KEY=VALUE")
      ->expected(-1);
  command->add_option("--format", arguments->format, "The plan's format (default: by the file's name)")
      ->type_name("FORMAT");
  command->callback([arguments, &status] { status = index_command(*arguments); });
}

}  // namespace clairfs
