// LogOutput: the place that the lines of a log go to (a file, a pipe, a terminal, the journal).
#pragma once

#include <string_view>

namespace clairfs {

/// For one thread at a time.
class LogOutput {
 public:
  virtual ~LogOutput() = default;
  /// Writes a line. It may take for ever: a file on a network that hangs, a pipe that nobody reads. False:
  /// the line is lost, at least in part.
  virtual bool write(std::string_view line) = 0;
  /// Later lines go to the file that has the output's name now, if the output has a name.
  virtual void open_anew() {}
};

/// The standard error output. It does without stdio: else another thread that prints there would wait for
/// stdio's lock while a line hangs.
class StderrOutput final : public LogOutput {
 public:
  bool write(std::string_view line) override;
};

/// Writes the whole text. After a signal, or while `fd` has no room, it tries again. False: the rest of the
/// text could not be written.
bool write_whole(int fd, std::string_view text);

}  // namespace clairfs
