#include "mount-helper/log/log_queue.h"

#include <cstdint>
#include <deque>
#include <utility>

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>

#include "cache/base/mutex.h"
#include "cache/base/plural.h"

namespace clairfs {
namespace {

std::string missing_text(uint64_t lines) {
  return fmt::format("{} missing here: the log could not be written, or not as fast as lines came",
                     pluralize(lines, "line is", "lines are"));
}

}  // namespace

struct LogQueue::State {
  struct Line {
    std::string text;     // empty: it only opens anew
    uint64_t stands_for;  // so many lines are missing if it is not written
    bool opens_anew;      // the output, before it is written

    size_t bytes() const { return sizeof(Line) + text.size(); }
  };

  explicit State(std::unique_ptr<LogOutput> to) : output(std::move(to)) {}

  const std::unique_ptr<LogOutput> output;  // the thread's; before there is one, whose the lock is

  Mutex mutex;  // leaf
  CondVar more;
  CondVar written;
  std::unique_ptr<spdlog::formatter> formatter GUARDED_BY(mutex) =
      std::make_unique<spdlog::pattern_formatter>();
  std::deque<Line> lines GUARDED_BY(mutex);
  size_t bytes GUARDED_BY(mutex) = 0;         // of them, and of the one that is being written
  uint64_t added GUARDED_BY(mutex) = 0;       // to `lines`, ever
  uint64_t done GUARDED_BY(mutex) = 0;        // of those: written, or lost while that was tried
  uint64_t lost GUARDED_BY(mutex) = 0;        // lines that no line tells of yet
  bool opens_anew GUARDED_BY(mutex) = false;  // with the next of `lines`
  bool threaded GUARDED_BY(mutex) = false;
  bool over GUARDED_BY(mutex) = false;

  std::string formatted(const spdlog::details::log_msg& message) REQUIRES(mutex) {
    spdlog::memory_buf_t text;
    formatter->format(message, text);
    return std::string(text.data(), text.size());
  }

  void push(std::string text, uint64_t stands_for) REQUIRES(mutex) {
    lines.push_back(Line{std::move(text), stands_for, std::exchange(opens_anew, false)});
    bytes += lines.back().bytes();
    ++added;
  }

  void add(const spdlog::details::log_msg& message) REQUIRES(mutex) {
    std::string text = formatted(message);
    if (bytes + text.size() > kMostBytes) {
      ++lost;
      return;
    }
    tell_lost(message.time);
    push(std::move(text), 1);
  }

  // Whether or not there is room for it.
  void tell_lost(spdlog::log_clock::time_point when) REQUIRES(mutex) {
    if (lost == 0) return;
    const std::string told = missing_text(lost);
    push(formatted({when, {}, {}, spdlog::level::warn, told}), std::exchange(lost, 0));
  }

  Line take() REQUIRES(mutex) {
    Line line = std::move(lines.front());
    lines.pop_front();
    return line;
  }

  // By who may use `output`. False: it was not written.
  bool put(const Line& line) const {
    if (line.opens_anew) output->open_anew();
    return line.text.empty() || output->write(line.text);
  }

  void finish(const Line& line, bool is_written) REQUIRES(mutex) {
    bytes -= line.bytes();
    ++done;
    if (!is_written) lost += line.stands_for;
    written.notify_all();
  }

  // Leaves `lines` to the thread; before there is one, puts them.
  void hand_on() REQUIRES(mutex) {
    if (threaded) {
      more.notify_one();
      return;
    }
    while (!lines.empty()) {
      const Line line = take();
      finish(line, put(line));
    }
  }
};

LogQueue::LogQueue(std::unique_ptr<LogOutput> output, Duration patience)
    : state_(std::make_shared<State>(std::move(output))), patience_(patience) {}

LogQueue::~LogQueue() {
  const bool is_written = written_in_time();
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(state_->mutex);
    state_->over = true;
    state_->more.notify_one();
  }
  if (is_written) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void LogQueue::start() {
  thread_ = NamedThread("log", [state = state_] { run(*state); });
  const MutexLock lock(state_->mutex);
  state_->threaded = true;
}

void LogQueue::run(State& state) {
  MutexLock lock(state.mutex);
  for (;;) {
    while (state.lines.empty() && !state.over) state.more.wait(lock);
    if (state.lines.empty()) return;
    const State::Line line = state.take();
    lock.unlock();
    const bool is_written = state.put(line);
    lock.lock();
    state.finish(line, is_written);
  }
}

void LogQueue::log(const spdlog::details::log_msg& message) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  state.add(message);
  state.hand_on();
}

void LogQueue::flush() {
  written_in_time();
}

bool LogQueue::written_in_time() {
  State& state = *state_;
  const TimePoint deadline = steady_now() + patience_;
  MutexLock lock(state.mutex);
  state.tell_lost(spdlog::log_clock::now());
  state.hand_on();
  const uint64_t all = state.added;
  while (state.done < all && steady_now() < deadline) state.written.wait_until(lock, deadline);
  return state.done >= all;
}

void LogQueue::open_anew() {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  state.opens_anew = true;
  if (state.bytes >= kMostBytes) return;  // with the next line that finds room
  state.push({}, 0);
  state.hand_on();
}

const LogOutput& LogQueue::output() const {
  return *state_->output;
}

void LogQueue::set_pattern(const std::string& pattern) {
  set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
}

void LogQueue::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
  const MutexLock lock(state_->mutex);
  state_->formatter = std::move(formatter);
}

}  // namespace clairfs
