// One line on a terminal that shows how far a long operation is.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "cache/base/clock.h"

namespace clairfs {

/// How far a transfer of files is.
struct TransferProgress {
  uint64_t files = 0;
  uint64_t total_files = 0;
  uint64_t bytes = 0;
  uint64_t total_bytes = 0;
};

/// "[#####...............]  25 %  250/1000 files  1.0 GiB/4.0 GiB  512.0 MiB/s  ETA 0:06".
std::string transfer_text(const TransferProgress& progress, Duration elapsed);

/// "[#####...............]  25 %  WHAT  ETA 0:06". `share`: 0 ..= 1.
std::string progress_text(double share, const std::string& what, Duration elapsed);

/// Draws over its own line at most ten times a second, which is as often as people read. Silent when the
/// stream is no terminal, and while it takes nothing (Ctrl-S), for which nobody waits longer than half a
/// second. Not thread-safe.
class ProgressBar {
 public:
  /// `stream` and `clock` outlive the bar. `enabled` defaults to whether the stream is a terminal.
  ProgressBar(std::FILE* stream, const Clock& clock, std::optional<bool> enabled = std::nullopt);
  /// Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool enabled() const { return enabled_; }
  /// Shows `text`, cut to the terminal's width, unless something was shown less than 100 ms ago.
  void show(const std::string& text);
  /// Shows how it ended, whenever something was shown last: what is over within 100 ms else ends with how it
  /// began.
  void show_end(const std::string& text);
  void clear();

 private:
  void draw(const std::string& text);

  std::FILE* stream_;
  const Clock& clock_;
  bool enabled_;
  bool drawn_ = false;
  std::optional<TimePoint> last_;
};

}  // namespace clairfs
