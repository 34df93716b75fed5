// A logger whose lines a test can read.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include <spdlog/sinks/ostream_sink.h>

#include "cache/base/log.h"

namespace clairfs {

/// text() may be called while nothing logs.
class CapturedLog {
 public:
  CapturedLog() : logger_("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_)) {
    logger_.set_pattern("%l: %v");
    logger_.set_level(spdlog::level::debug);
  }
  Logger& logger() { return logger_; }
  std::string text() const { return out_.str(); }
  bool has(std::string_view part) const { return text().find(part) != std::string::npos; }
  /// How many lines hold `part`.
  size_t lines_with(std::string_view part) const {
    std::istringstream in(text());
    size_t count = 0;
    for (std::string line; std::getline(in, line);) count += line.find(part) != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  std::ostringstream out_;
  Logger logger_;
};

}  // namespace clairfs
