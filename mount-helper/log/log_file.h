// A log file that begins again when it has grown large, and can be opened again under its name.
//
// spdlog's own rotating sink does the former only.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// Thread-safe. Lines are written one by one, appended, so that several processes can share a file.
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// At this size in bytes the file becomes PATH.1, in the place of an older one: weeks of a quiet mount, and
  /// a few seconds to read through. A device or a pipe (/dev/null, say) stays in its place.
  static constexpr uint64_t kMostBytes = 4 << 20;

  /// Makes the file, or goes on with it. Errors: what open(2) says, without the path.
  static Result<std::shared_ptr<LogFile>> open(const std::string& path);

  /// Opens the file again. Where that fails the log goes on where it was.
  void reopen();

 private:
  LogFile(std::string path, Fd file);
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}  // write(2) has no buffer of ours
  void open_again();
  void look_at(const struct stat& attributes);

  const std::string path_;
  Fd file_;               // these three are guarded by base_sink's mutex
  uint64_t bytes_ = 0;    // in the file, as far as this process knows
  bool is_file_ = false;  // and no device or pipe
};

}  // namespace clairfs
