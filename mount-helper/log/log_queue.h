// LogQueue: no thread that logs waits for the output of the lines.
//
// A file on a home that hangs, a pipe that nobody reads or a journal that stands still keeps the thread that
// writes to it, and a mount logs on the threads that answer READs. So log() puts lines into a queue, and a
// thread of its own ("log") writes them, in the order in which they were logged. The queue is bounded: lines
// that find no room are lost, as are those that cannot be written, say on a full disk. The next line that
// finds room is preceded by one that says how many are missing; flush() and the end add it if no line comes.
//
// Threads do not survive a fork. Until start() log() writes each line itself before it returns.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <spdlog/sinks/sink.h>

#include "cache/base/clock.h"
#include "cache/base/thread.h"
#include "mount-helper/log/log_output.h"

namespace clairfs {

/// Thread-safe but for start() and the destructor.
class LogQueue final : public spdlog::sinks::sink {
 public:
  /// In bytes of lines that wait: some thousand, far more than there are before a fault is over or known. A
  /// line that tells of missing ones may come on top.
  static constexpr size_t kMostBytes = 1 << 20;
  /// Of flush() and the end: a log has two outputs at most, and a process ends within a second of its own.
  static constexpr auto kPatience = std::chrono::milliseconds(500);

  /// `patience` is the tests' own.
  explicit LogQueue(std::unique_ptr<LogOutput> output, Duration patience = kPatience);
  /// As flush(). An output that still hangs then is left behind with its thread.
  ~LogQueue() override;

  /// Has the lines written by a thread from now on. Once. REQUIRES: this process will not be forked any more,
  /// unless the child starts another program at once.
  void start();
  /// The next line, and all after it, go to what has the output's name once the lines before are written. It
  /// is opened then, whether or not there is a next line.
  void open_anew();
  const LogOutput& output() const;

  void log(const spdlog::details::log_msg& message) override;
  /// Waits until all that was logged before is written, as long as its patience lasts.
  void flush() override;
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

 private:
  struct State;
  static void run(State& state);
  /// flush(); false: it is not.
  bool written_in_time();

  const std::shared_ptr<State> state_;  // also the thread's, which may outlive this
  const Duration patience_;
  NamedThread thread_;  // from start() on
};

}  // namespace clairfs
