#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "fs/base/text_file.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/timeline.h"
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

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] != '\0';
}

// Draws each report over the one before on a terminal, if `redraws`; prints one after the other elsewhere.
class Screen {
 public:
  explicit Screen(bool redraws) : terminal_(redraws && ::isatty(STDOUT_FILENO) == 1) {}

  // exit_success, or what finish_output() has told of.
  int show(const std::vector<std::string>& lines) {
    if (!terminal_) {
      for (const std::string& line : lines) fmt::print("{}\n", line);
    } else {
      draw(lines);
    }
    return finish_output();
  }

 private:
  void draw(const std::vector<std::string>& lines) {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 1;
    const size_t columns = known ? size.ws_col : 80;
    const size_t rows = known ? size.ws_row : 24;
    if (drawn_ > 0) fmt::print("\033[{}A", std::min(drawn_, rows - 1));
    fmt::print("\r\033[J");
    drawn_ = 0;
    for (const std::string& line : lines) {
      const bool red = colours_ && line.starts_with(kTroubleMark);
      for (const std::string& part : wrapped(line, columns - 1)) {
        if (drawn_ + 1 >= rows) return;  // the cursor stands on the last one
        fmt::print("{}{}{}\n", red ? "\033[31m" : "", part, red ? "\033[0m" : "");
        ++drawn_;
      }
    }
  }

  const bool terminal_;
  const bool colours_ = terminal_ && !is_set("NO_COLOR");  // no-color.org
  size_t drawn_ = 0;                                       // lines above the cursor
};

// Reads keys one by one, unseen, as long as it lives; if stdin is the terminal of this process group.
class Keys {
 public:
  Keys() {
    if (::tcgetpgrp(STDIN_FILENO) != ::getpgrp() || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios single = before_;
    single.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    terminal_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &single) == 0;
  }
  ~Keys() {
    if (terminal_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // For poll(2); -1: no keys.
  int fd() const { return terminal_ ? STDIN_FILENO : -1; }
  // Whether what was typed ends the program. At the end of the input there are no more keys.
  bool quit() {
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) <= 0) terminal_ = false;
    return key == 'q' || key == 'Q';
  }

 private:
  termios before_{};
  bool terminal_ = false;
};

// Sleeps; false when a termination signal came first, or q was typed.
bool pause_for(const SignalWaiter& signals, Keys& keys, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const auto left = std::chrono::duration<double>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    std::array<pollfd, 2> events{pollfd{signals.fd(), POLLIN, 0}, pollfd{keys.fd(), POLLIN, 0}};
    const int ready = ::poll(events.data(), events.size(), static_cast<int>(left.count() * 1e3) + 1);
    if (ready == 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0 || events[0].revents != 0) return false;
    if (events[1].revents != 0 && keys.quit()) return false;
  }
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct TopArguments {
  std::string path;
  double interval = 1;
  bool once = false;
  bool json = false;
  std::string plot{};
};

// The mount's course so far as a picture.
int plot_history(const std::string& path, const std::string& file) {
  if (const Status fits = check_plot(file); !fits) return fail(fits.error());
  const auto mount = find_clairfs_mount(path);
  if (!mount) return fail(mount.error());
  const auto text = read_with_deadline(mount->mountpoint + "/.clairfs/history", kTopPatience);
  if (!text) return fail(text.error(), exit_system);
  const auto rows = parse_history(*text);
  if (!rows)
    return fail(Error{EPROTO, mount->mountpoint + "/.clairfs/history is of another version"}, exit_system);
  const Status written = write_text_file(file, timeline(*rows, escaped(mount->mountpoint)));
  return written ? exit_success : fail(written.error());
}

int top_command(const TopArguments& arguments) {
  if (!arguments.plot.empty()) return plot_history(arguments.path, arguments.plot);
  const auto& [path, interval, once, json, plot] = arguments;
  const auto mount = find_clairfs_mount(path);
  if (!mount) return fail(mount.error());
  auto before = read_stats(mount->mountpoint);
  if (!before) return fail(before.error(), exit_system);

  const auto plans = read_with_deadline(mount->mountpoint + "/.clairfs/last_error", kTopPatience);
  const bool hidden = !plans && plans.error().code == EACCES;
  const std::string no_plan = hidden ? "plans are shown to the mount's user and root only" : "no plan";

  const SignalWaiter signals;
  Keys keys;
  Screen screen(!json);
  while (pause_for(signals, keys, interval)) {
    auto after = read_stats(mount->mountpoint);
    if (!after && after.error().code == ETIMEDOUT) {
      const Error silent = silent_path(mount->mountpoint);
      if (once) return fail(silent, exit_system);
      const int shown = json ? exit_success : screen.show({silent.message});
      if (shown != exit_success) return shown;
      continue;
    }
    if (!after) {
      if (!json) fmt::print("{} is not mounted any more\n", mount->mountpoint);
      return finish_output();
    }
    if (same_daemon(before->stats, after->stats)) {
      const std::chrono::duration<double> span = after->at - before->at;
      const int shown = screen.show(
          json ? std::vector{top_json(before->stats, after->stats, span.count(), seconds_since_1970())}
               : top_lines(before->stats, after->stats, span.count(), no_plan));
      if (once || shown != exit_success) return shown;
    }
    before = std::move(after);
  }
  return exit_success;
}

}  // namespace

void add_top_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("top", "Watch a mount at work; q or Ctrl-C ends it");
  const auto arguments = std::make_shared<TopArguments>();
  command->add_option("MOUNT", arguments->path, "Mountpoint, or any path inside the mount")->required();
  command->add_option("--interval", arguments->interval, "Seconds between two reports (default: 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(kLeastInterval, kMostInterval));
  command->add_flag("--once", arguments->once, "One report, over one interval");
  command->add_flag("--json", arguments->json, "An object a line for each report");
  command->add_option("--plot", arguments->plot, "Draw the mount's course so far into this SVG file, and end")
      ->type_name("FILE");
  command->callback([arguments, &status] { status = top_command(*arguments); });
}

}  // namespace clairfs
