#include "fs/page_cache/dirty_pages.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include "cache/base/escaped.h"
#include "cache/base/text.h"

namespace clairfs {
namespace {

// A large mapping is written back in many pieces: one search and one line for them.
constexpr auto kSearchEvery = std::chrono::seconds(1);

std::string name_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::string name;
  std::getline(file, name);
  return name;
}

bool maps_writable(const std::string& maps, dev_t device, Inode inode) {
  const std::string wanted = fmt::format("{:02x}:{:02x}", major(device), minor(device));
  std::ifstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string range, permissions, offset, place;
    Inode number = 0;
    if (!(fields >> range >> permissions >> offset >> place >> number)) continue;
    if (number == inode && place == wanted && permissions == "rw-s") return true;
  }
  return false;
}

}  // namespace

pid_t writable_mapper(dev_t device, Inode inode) {
  std::error_code failure;
  std::filesystem::directory_iterator entry("/proc", failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    const auto process = parse_whole<pid_t>(entry->path().filename().string());
    if (process && maps_writable(entry->path() / "maps", device, inode)) return *process;
  }
  return 0;
}

void DirtyPages::mounted_on(dev_t device) {
  MutexLock lock(mutex_);
  device_ = device;
}

void DirtyPages::found(FileId file, pid_t writer) {
  dev_t device = 0;
  {
    MutexLock lock(mutex_);
    device = device_;
    if (!text_.empty() && file_ == file && clock_.now() < searched_ + kSearchEvery) return;
  }
  if (writer == 0 && device != 0) writer = writable_mapper(device, inode_of(file));
  const std::string who = writer != 0 ? fmt::format("process {} ({})", writer, name_of(writer))
                                      : "a process that neither the kernel nor /proc names";
  const std::string path = escaped(catalog_.path(file));
  log_.warn("{} was written to by {}; its pages are dropped, but others may have read them", path, who);
  MutexLock lock(mutex_);
  file_ = file;
  searched_ = clock_.now();
  text_ = fmt::format("{}, by {}", path, who);
}

std::string DirtyPages::text() const {
  MutexLock lock(mutex_);
  return text_;
}

}  // namespace clairfs
