#include "mount-helper/commands/progress_bar.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cache/base/units.h"

namespace clairfs {
namespace {

constexpr int kBarWidth = 20;  // leaves room for the figures in 80 columns
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr auto kClearPatience = std::chrono::milliseconds(500);  // a slow line takes what is left by then

size_t terminal_width(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// Ctrl-S stops a terminal. Who wrote to it then would wait, and with him what he shows the progress of.
bool has_room(std::FILE* stream, std::chrono::milliseconds patience) {
  pollfd room{::fileno(stream), POLLOUT, 0};
  return ::poll(&room, 1, static_cast<int>(patience.count())) > 0;
}

std::string bar(double share) {
  const int filled = static_cast<int>(share * kBarWidth);
  return fmt::format("[{}{}] {:3.0f} %", std::string(filled, '#'), std::string(kBarWidth - filled, '.'),
                     share * 100);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string transfer_text(const TransferProgress& progress, Duration elapsed) {
  // Empty files have no bytes: then files tell how far it is.
  const uint64_t done = progress.total_bytes > 0 ? progress.bytes : progress.files;
  const uint64_t total = progress.total_bytes > 0 ? progress.total_bytes : progress.total_files;
  const double share =
      total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  std::string text = fmt::format("{}  {}/{} files  {}/{}", bar(share), progress.files, progress.total_files,
                                 format_size(progress.bytes), format_size(progress.total_bytes));
  const double seconds = std::chrono::duration<double>(elapsed).count();
  if (seconds > 0 && done > 0) {
    const double rate = static_cast<double>(progress.bytes) / seconds;
    text += fmt::format("  {}/s  ETA {}", format_size(static_cast<uint64_t>(rate)),
                        clock_text(seconds * (1 - share) / share));
  }
  return text;
}

std::string progress_text(double share, const std::string& what, Duration elapsed) {
  share = std::clamp(share, 0.0, 1.0);
  std::string text = fmt::format("{}  {}", bar(share), what);
  if (share > 0) {
    const double seconds = std::chrono::duration<double>(elapsed).count();
    text += "  ETA " + clock_text(seconds * (1 - share) / share);
  }
  return text;
}

ProgressBar::ProgressBar(std::FILE* stream, const Clock& clock, std::optional<bool> enabled)
    : stream_(stream), clock_(clock), enabled_(enabled.value_or(::isatty(::fileno(stream)) == 1)) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::show(const std::string& text) {
  if (last_ && clock_.now() - *last_ < kInterval) return;
  draw(text);
}

void ProgressBar::show_end(const std::string& text) {
  draw(text);
}

void ProgressBar::draw(const std::string& text) {
  if (!enabled_ || !has_room(stream_, std::chrono::milliseconds(0))) return;
  last_ = clock_.now();
  std::fputs(("\r\033[K" + text.substr(0, terminal_width(stream_) - 1)).c_str(), stream_);
  std::fflush(stream_);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_ || !has_room(stream_, kClearPatience)) return;
  std::fputs("\r\033[K", stream_);
  std::fflush(stream_);
  drawn_ = false;
}

}  // namespace clairfs
