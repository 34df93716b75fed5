// `clairfs bench`: what a mount gives its readers beside what its source gives, in less than a minute.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "fs/base/mountinfo.h"
#include "mount-helper/client/control_client.h"
#include "mount-helper/client/kept.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/inspect/timed_reads.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/resolve_path.h"

namespace clairfs {
namespace {

constexpr size_t kMostFiles = 4000;  // times of a file are steady by then
constexpr unsigned kMostJobs = 1024;
constexpr auto kMostOfARow = std::chrono::seconds(10);  // there are five of them

struct BenchArguments {
  std::string path;
  unsigned jobs = 8;
  bool json = false;
};

struct Row {
  std::string name;
  TimedReads reads;
};

// A mount and its source are given different files of one sample, so that neither finds in a server's cache
// what the other has asked for; of a single file there is no half.
struct Halves {
  std::vector<std::string> mount;
  std::vector<std::string> source;
};

Halves halves_of(const std::vector<std::string>& names) {
  Halves halves;
  for (size_t i = 0; i < names.size(); ++i) (i % 2 == 0 ? halves.mount : halves.source).push_back(names[i]);
  if (names.size() == 1) halves.source = names;
  return halves;
}

std::vector<std::string> below_folder(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(folder + "/" + name);
  return paths;
}

// The rows that take a mount.
void measure_mount(const std::string& folder, const std::vector<std::string>& names, unsigned jobs,
                   std::vector<Row>& rows) {
  const auto read = [&](const char* name, bool drop) {
    rows.push_back({name, time_reads(folder, names, jobs, kMostOfARow, drop)});
  };
  read("mount, first touch", true);
  read("mount, tiers", true);
  read("mount, page cache", false);
}

std::string table_of(const std::vector<Row>& rows) {
  std::string out = fmt::format("{:<20} {:>8} {:>11} {:>13} {:>11} {:>11}\n", "", "files", "files/s",
                                "throughput", "median", "99 %");
  for (const Row& row : rows) {
    const TimedReads& r = row.reads;
    const double seconds = std::max(r.seconds, 1e-9);
    const auto time = [](double s) {
      return format_duration(std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9)));
    };
    out += fmt::format("{:<20} {:>8} {:>11.0f} {:>11}/s {:>11} {:>11}\n", row.name, r.files,
                       static_cast<double>(r.files) / seconds,
                       format_size(static_cast<uint64_t>(static_cast<double>(r.bytes) / seconds)),
                       time(r.median_seconds), time(r.p99_seconds));
  }
  return out;
}

std::string json_of(const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    list.push_back({{"name", row.name},
                    {"files", row.reads.files},
                    {"bytes", row.reads.bytes},
                    {"errors", row.reads.errors},
                    {"seconds", row.reads.seconds},
                    {"median_seconds", row.reads.median_seconds},
                    {"p99_seconds", row.reads.p99_seconds}});
  }
  return list.dump(2) + "\n";
}

// The clairfs mount that holds `folder`; none if it is on another filesystem.
std::optional<MountEntry> clairfs_of(const std::string& folder) {
  const auto mounts = current_mounts();
  if (!mounts) return std::nullopt;
  const auto mount = mount_containing(*mounts, folder);
  return mount && mount->is_clairfs() ? mount : std::nullopt;
}

// The tiers are to begin without these files. Only the mount's user and root may empty them.
void empty_tiers(const std::string& folder, const std::vector<std::string>& names) {
  const auto mount = find_controlled_mount(folder);
  if (mount) (void)residency_of_paths(*mount, below_folder(folder, names), "evict");
}

int bench(const BenchArguments& arguments) {
  const auto folder = resolve_path(arguments.path);
  if (!folder) return fail(folder.error());
  const auto mount = clairfs_of(*folder);
  if (mount) {
    if (const auto answers = find_clairfs_mount(*folder); !answers) return fail(answers.error());
  } else if (const Status answers = check_answers(*folder); !answers) {
    return fail(answers.error());
  }
  std::error_code unknown;
  if (!std::filesystem::is_directory(*folder, unknown))
    return fail(Error{ENOTDIR, *folder + " is not a directory; give the folder that it is in"});
  const Halves halves = halves_of(sample_files(*folder, kMostFiles));
  if (halves.mount.empty()) return fail(Error{ENOENT, *folder + " has no files that can be read"});
  std::vector<Row> rows;
  if (mount) {
    empty_tiers(*folder, halves.mount);
    const std::string inside = folder->substr(mount->mountpoint.size());
    const std::string source = mount->source + inside;
    rows.push_back({"source", time_reads(source, halves.source, arguments.jobs, kMostOfARow, true)});
    measure_mount(*folder, halves.mount, arguments.jobs, rows);
  } else {
    rows.push_back({"directory", time_reads(*folder, halves.mount, arguments.jobs, kMostOfARow, true)});
    rows.push_back(
        {"directory, page cache", time_reads(*folder, halves.mount, arguments.jobs, kMostOfARow, false)});
  }
  uint64_t errors = 0;
  for (const Row& row : rows) errors += row.reads.errors;
  fmt::print("{}", arguments.json ? json_of(rows) : table_of(rows));
  if (errors > 0) return fail(Error{EIO, pluralize(errors, "read", "reads") + " failed"}, exit_system);
  return finish_output();
}

}  // namespace

void add_bench_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure a mount beside its source, or a directory, in a minute");
  command->footer(
      "Reads some thousand files whole, each row for at most ten seconds, and leaves a file that takes "
      "longer. "
      "The row 'source' reads other files of the same dataset, if it has more than one. What a server below "
      "keeps in its memory, clairfs cannot drop.");
  const auto arguments = std::make_shared<BenchArguments>();
  command->add_option("PATH", arguments->path, "Mountpoint, a folder in it, or any directory")->required();
  command->add_option("-j,--jobs", arguments->jobs, "Files read at once (default: 8)")
      ->type_name("NUMBER")
      ->check(CLI::Range(1U, kMostJobs));
  command->add_flag("--json", arguments->json, "As JSON");
  command->callback([arguments, &status] { status = bench(*arguments); });
}

}  // namespace clairfs
