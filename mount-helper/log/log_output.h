// What the lines of a log go to: a file, a pipe, a terminal, the journal.
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
  /// Later lines go to what has the output's name now, if it has one.
  virtual void open_anew() {}
};

/// The standard error output. Not by stdio: whoever else prints there would wait for its lock while a line
/// hangs.
class StderrOutput final : public LogOutput {
 public:
  bool write(std::string_view line) override;
};

/// Writes all of it, also where that is to be tried again. False: it could not be written.
bool write_whole(int fd, std::string_view text);

}  // namespace clairfs
