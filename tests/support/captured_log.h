// A logger whose lines a test can read.
#pragma once

#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>

#include <spdlog/sinks/base_sink.h>

#include "cache/base/log.h"

namespace clairfs {

/// Thread-safe.
class CapturedLog {
 public:
  CapturedLog() : sink_(std::make_shared<Sink>()), logger_("test", sink_) {
    logger_.set_pattern("%l: %v");
    logger_.set_level(spdlog::level::debug);
  }
  Logger& logger() { return logger_; }
  std::string text() const { return sink_->text(); }
  bool has(std::string_view part) const { return text().find(part) != std::string::npos; }
  /// How many lines hold `part`.
  size_t lines_with(std::string_view part) const {
    std::istringstream in(text());
    size_t count = 0;
    for (std::string line; std::getline(in, line);) count += line.find(part) != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  // spdlog's sink for streams locks while it writes, but its stream cannot be read under that lock.
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      const std::scoped_lock lock(mutex_);
      return text_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& line) override {
      spdlog::memory_buf_t formatted;
      formatter_->format(line, formatted);
      text_.append(formatted.data(), formatted.size());
    }
    void flush_() override {}

    std::string text_;
  };

  const std::shared_ptr<Sink> sink_;
  Logger logger_;
};

}  // namespace clairfs
