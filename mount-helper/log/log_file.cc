#include "mount-helper/log/log_file.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

namespace clairfs {

Result<std::unique_ptr<LogFile>> LogFile::open(const std::string& path) {
  std::unique_ptr<LogFile> log(new LogFile(path));
  if (!log->try_open()) return system_error(errno, "open");
  return Result<std::unique_ptr<LogFile>>(std::move(log));
}

bool LogFile::try_open() {
  // Not waiting for a reader, should it be a pipe. Of a file it makes no difference.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  Fd file(::open(path_.c_str(), kFlags, 0600));
  struct stat attributes {};
  if (!file || ::fstat(file.get(), &attributes) != 0) return false;
  file_ = std::move(file);
  bytes_ = static_cast<uint64_t>(attributes.st_size);
  is_file_ = S_ISREG(attributes.st_mode);
  return true;
}

void LogFile::open_anew() {
  try_open();
}

bool LogFile::write(std::string_view line) {
  if (is_file_ && bytes_ > 0 && bytes_ + line.size() > kMostBytes) {
    std::rename(path_.c_str(), older_.c_str());
    bytes_ = 0;  // also where it could not be renamed: tried again after as many bytes
    open_anew();
  }
  const bool written = write_whole(file_.get(), line);
  if (written) bytes_ += line.size();
  return written;
}

}  // namespace clairfs
