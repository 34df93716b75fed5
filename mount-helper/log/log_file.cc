#include "mount-helper/log/log_file.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace clairfs {
namespace {

Fd open_log(const std::string& path) {
  return Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

}  // namespace

Result<std::shared_ptr<LogFile>> LogFile::open(const std::string& path) {
  Fd file = open_log(path);
  if (!file) return system_error(errno, "open");
  return std::shared_ptr<LogFile>(new LogFile(path, std::move(file)));
}

LogFile::LogFile(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {
  struct stat attributes {};
  if (::fstat(file_.get(), &attributes) == 0) look_at(attributes);
}

void LogFile::look_at(const struct stat& attributes) {
  bytes_ = static_cast<uint64_t>(attributes.st_size);
  is_file_ = S_ISREG(attributes.st_mode);
}

void LogFile::open_again() {
  Fd file = open_log(path_);
  struct stat attributes {};
  if (!file || ::fstat(file.get(), &attributes) != 0) return;
  file_ = std::move(file);
  look_at(attributes);
}

void LogFile::reopen() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_again();
}

void LogFile::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  if (is_file_ && bytes_ > 0 && bytes_ + line.size() > kMostBytes) {
    ::rename(path_.c_str(), (path_ + ".1").c_str());
    bytes_ = 0;  // also where it could not be renamed: tried again after as many bytes
    open_again();
  }
  // A full disk costs lines of the log and nothing else.
  if (::write(file_.get(), line.data(), line.size()) > 0) bytes_ += line.size();
}

}  // namespace clairfs
