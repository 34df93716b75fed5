// `clairfs cache list` and `clairfs cache prune`.
#include <cerrno>
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/inspect/saved_files.h"

namespace clairfs {
namespace {

using std::chrono::hours;

constexpr unsigned kDefaultDays = 30;    // longer than most holidays
constexpr unsigned kMostDays = 100'000;  // more is a typing error

struct CacheArguments {
  std::vector<std::string> nvme;
  std::string catalog_dir;
  unsigned days = kDefaultDays;
  bool dry_run = false;
};

Result<std::string> catalog_dir_of(const CacheArguments& arguments) {
  if (!arguments.catalog_dir.empty()) return arguments.catalog_dir;
  const auto options = standing_options();
  if (!options) return options.error();
  if (options->catalog_dir.empty())
    return Error{ENOENT, "this user has no home directory; give --catalog-dir"};
  return options->catalog_dir;
}

// One that is missing was mistyped. In a crontab nobody would notice that otherwise.
Status check_named(const CacheArguments& arguments) {
  std::vector<std::string> named = arguments.nvme;
  if (!arguments.catalog_dir.empty()) named.push_back(arguments.catalog_dir);
  for (const std::string& folder : named) {
    if (::access(folder.c_str(), F_OK) != 0) return system_error(errno, folder);
  }
  return {};
}

Result<std::vector<SavedFile>> find_all(const CacheArguments& arguments) {
  if (const Status there = check_named(arguments); !there) return there.error();
  const auto folder = catalog_dir_of(arguments);
  if (!folder) return folder.error();
  return saved_files(*folder, arguments.nvme);
}

int list_saved(const CacheArguments& arguments) {
  const auto files = find_all(arguments);
  if (!files) return fail(files.error());
  if (files->empty()) return print_answer("nothing is saved\n");
  return print_answer(saved_table(*files, std::chrono::system_clock::now()));
}

int prune(const CacheArguments& arguments) {
  const auto files = find_all(arguments);
  if (!files) return fail(files.error());
  const auto now = std::chrono::system_clock::now();
  const auto old = outdated(*files, hours(24) * arguments.days, now);
  if (arguments.dry_run)
    return print_answer(old.empty() ? "nothing would be removed\n" : saved_table(old, now));
  uint64_t bytes = 0, removed = 0, failed = 0;
  for (const SavedFile& file : old) {
    if (const Status gone = remove_saved(file); !gone) {
      ++failed;
      fail(gone.error(), exit_system);
      continue;
    }
    ++removed;
    bytes += file.bytes;
  }
  fmt::print("removed {}, {}\n", pluralize(removed, "entry", "entries"), format_size(bytes));
  return failed > 0 ? exit_system : finish_output();
}

void add_places(CLI::App* command, CacheArguments& arguments) {
  command->add_option("DIRECTORY", arguments.nvme, "NVMe directories to look at as well");
  command
      ->add_option("--catalog-dir", arguments.catalog_dir,
                   "Where catalogs and logs are (default: that of mount)")
      ->type_name("DIR");
}

}  // namespace

void add_cache_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("cache", "List, or remove, what mounts keep on disk: catalogs, indexes, logs, NVMe");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<CacheArguments>();
  CLI::App* list = command->add_subcommand("list", "Show it, with its dataset or mount, size and age");
  add_places(list, *arguments);
  list->callback([arguments, &status] { status = list_saved(*arguments); });
  CLI::App* remove = command->add_subcommand("prune", "Remove what no mount has used for some time");
  add_places(remove, *arguments);
  remove->add_option("--older-than", arguments->days, "Days since it was used (default: 30)")
      ->type_name("DAYS")
      ->check(CLI::Range(0U, kMostDays));
  remove->add_flag("--dry-run", arguments->dry_run, "Say what would be removed");
  remove->callback([arguments, &status] { status = prune(*arguments); });
}

}  // namespace clairfs
