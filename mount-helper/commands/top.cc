#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/top_report.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/serve/signals.h"

namespace clairfs {
namespace {

using Json = nlohmann::json;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr auto kTopPatience =
    std::chrono::seconds(3);            // a busy daemon answers within one; Ctrl-C waits that long
constexpr double kLeastInterval = 0.1;  // faster than people read
constexpr double kMostInterval = 3600;

struct Reading {
  Json stats;
  SteadyTime at;
};

Result<Reading> read_stats(const std::string& mountpoint) {
  const auto text = read_with_deadline(mountpoint + "/.clairfs/stats.json", kTopPatience);
  if (!text) return text.error();
  Reading reading{Json::parse(*text, nullptr, false), std::chrono::steady_clock::now()};
  if (!reading.stats.is_object()) return Error{EPROTO, mountpoint + "/.clairfs/stats.json is no JSON"};
  return reading;
}

/// Draws each report over the one before on a terminal; prints one after the other elsewhere.
class Screen {
 public:
  void show(const std::vector<std::string>& lines) {
    if (!terminal_) {
      for (const std::string& line : lines) fmt::print("{}\n", line);
    } else {
      draw(lines);
    }
    std::fflush(stdout);
  }

 private:
  void draw(const std::vector<std::string>& lines) {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 1;
    const size_t columns = known ? size.ws_col : 80;
    const size_t rows = known ? size.ws_row : 24;
    const size_t shown = std::min(lines.size(), rows - 1);  // the cursor stands on the last one
    if (drawn_ > 0) fmt::print("\033[{}A", std::min(drawn_, rows - 1));
    fmt::print("\r\033[J");
    for (size_t i = 0; i < shown; ++i) fmt::print("{}\n", lines[i].substr(0, columns - 1));
    drawn_ = shown;
  }

  const bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  size_t drawn_ = 0;  // lines above the cursor
};

/// Sleeps; false when a termination signal came first.
bool pause_for(const SignalWaiter& signals, double seconds) {
  pollfd event{signals.fd(), POLLIN, 0};
  const int ready = ::poll(&event, 1, static_cast<int>(seconds * 1e3));
  return ready == 0 || (ready < 0 && errno == EINTR);
}

int top_command(const std::string& path, double interval, bool once) {
  const auto mount = find_clairfs_mount(path);
  if (!mount) return fail(mount.error(), exit_usage);
  auto before = read_stats(mount->mountpoint);
  if (!before) return fail(before.error(), exit_usage);

  const auto plans = read_with_deadline(mount->mountpoint + "/.clairfs/last_error", kTopPatience);
  const bool hidden = !plans && plans.error().code == EACCES;
  const std::string no_plan = hidden ? "plans are shown to the mount's user and root only" : "no plan";

  const SignalWaiter signals;
  Screen screen;
  while (pause_for(signals, interval)) {
    auto after = read_stats(mount->mountpoint);
    if (!after && after.error().code == ETIMEDOUT) {
      screen.show({fmt::format("{} does not answer", mount->mountpoint)});
      if (once) return exit_usage;
      continue;
    }
    if (!after) {
      fmt::print("{} is not mounted any more\n", mount->mountpoint);
      return exit_success;
    }
    if (same_daemon(before->stats, after->stats)) {
      const std::chrono::duration<double> span = after->at - before->at;
      screen.show(top_lines(before->stats, after->stats, span.count(), no_plan));
      if (std::ferror(stdout) != 0) return fail(system_error(EIO, "write to stdout"), exit_system);
      if (once) break;
    }
    before = std::move(after);
  }
  return exit_success;
}

}  // namespace

void add_top_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("top", "Watch a mount at work; Ctrl-C ends it");
  struct Arguments {
    std::string path;
    double interval = 1;
    bool once = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("MOUNT", arguments->path, "Mountpoint, or any path inside the mount")->required();
  command->add_option("--interval", arguments->interval, "Seconds between two reports (default: 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(kLeastInterval, kMostInterval));
  command->add_flag("--once", arguments->once, "One report, over one interval");
  command->callback(
      [arguments, &status] { status = top_command(arguments->path, arguments->interval, arguments->once); });
}

}  // namespace clairfs
