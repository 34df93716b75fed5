// A log file that begins again when it has grown large, and can be opened again under its name.
//
// spdlog's own rotating sink does the former only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cache/base/fd.h"
#include "cache/base/result.h"
#include "mount-helper/log/log_output.h"

namespace clairfs {

/// Lines are written one by one, appended, so that several processes can share a file.
class LogFile final : public LogOutput {
 public:
  /// At this size in bytes the file becomes PATH.1, in the place of an older one: weeks of a quiet mount, and
  /// a few seconds to read through. A device or a pipe (/dev/null, say) stays in its place, and so does what
  /// others have put in the place of the file: the log goes on in it.
  static constexpr uint64_t kMostBytes = 4 << 20;

  /// Makes the file, or goes on with it. Errors: what open(2) says, without the path; ENXIO for a pipe that
  /// nobody has open for reading.
  static Result<std::unique_ptr<LogFile>> open(const std::string& path);

  bool write(std::string_view line) override;
  /// Where that fails the log goes on where it was.
  void open_anew() override;

 private:
  explicit LogFile(const std::string& path) : path_(path), older_(path + ".1") {}
  /// False, with errno set: it goes on where it was.
  bool try_open();
  bool has_room(size_t bytes) const;
  void make_room(size_t bytes);

  const std::string path_;
  const std::string older_;
  Fd file_;
  uint64_t bytes_ = 0;    // in the file, as far as this process knows
  bool is_file_ = false;  // and no device or pipe
};

}  // namespace clairfs
