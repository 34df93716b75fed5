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

bool LogFile::has_room(size_t bytes) const {
  return !is_file_ || bytes_ == 0 || bytes_ + bytes <= kMostBytes;
}

// Others may have cut the file short, or moved it away without a word: what has its name then is not ours.
void LogFile::make_room(size_t bytes) {
  struct stat ours {};
  struct stat named {};
  if (::fstat(file_.get(), &ours) != 0) return;
  bytes_ = static_cast<uint64_t>(ours.st_size);
  const bool is_named =
      ::stat(path_.c_str(), &named) == 0 && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
  if (is_named && has_room(bytes)) return;
  if (is_named && std::rename(path_.c_str(), older_.c_str()) != 0) {
    bytes_ = 0;  // tried again after as many bytes
    return;
  }
  open_anew();
}

bool LogFile::write(std::string_view line) {
  if (!has_room(line.size())) make_room(line.size());
  const bool written = write_whole(file_.get(), line);
  if (written) bytes_ += line.size();
  return written;
}

}  // namespace clairfs
