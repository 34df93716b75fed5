#include "mount-helper/mounts/processes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/tasks/spawn.h"
#include "fs/base/mountinfo.h"
#include "fs/base/text_file.h"

namespace clairfs {
namespace {

namespace fs = std::filesystem;

using SteadyTime = std::chrono::steady_clock::time_point;

bool link_leads_into(const fs::path& link, const std::string& path) {
  std::error_code failure;
  const fs::path target = fs::read_symlink(link, failure);
  return !failure && is_within(target.string(), path);
}

bool maps_into(const fs::path& process, const std::string& path) {
  const auto maps = read_text_file(process / "maps");
  if (!maps) return false;
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t file = line.find('/');
    if (file != std::string::npos && is_within(std::string_view(line).substr(file), path)) return true;
  }
  return false;
}

bool uses(const fs::path& process, const std::string& path) {
  if (link_leads_into(process / "cwd", path) || link_leads_into(process / "root", path)) return true;
  std::error_code failure;
  for (fs::directory_iterator fd(process / "fd", failure), end; !failure && fd != end;
       fd.increment(failure)) {
    if (link_leads_into(fd->path(), path)) return true;
  }
  return maps_into(process, path);
}

// Calls `visit` with each process and its folder in /proc until it returns false.
void for_each_process(const std::function<bool(pid_t, const fs::path&)>& visit) {
  std::error_code failure;
  for (fs::directory_iterator entry("/proc", failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename();
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    if (!visit(std::atoi(name.c_str()), entry->path())) return;
  }
}

std::string describe_process(pid_t pid) {
  return fmt::format("{} ({})", process_name(pid), pid);
}

// Appends what comes through `fd` until its end. False at `deadline`.
bool drain(int fd, std::string& text, SteadyTime deadline) {
  std::array<char, 64 << 10> buffer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) return false;
    pollfd event{fd, POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EINTR)) return true;
    if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  }
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::write(fd, text.data(), text.size());
    if (sent < 0) return;
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

// A killed process is gone at once, unless it cannot be killed.
constexpr auto kKillPatience = std::chrono::seconds(1);

int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Not even a killed process ends before a FUSE daemon has answered a request that it has taken: such a one is
// left to init.
void kill_and_reap(pid_t child) {
  ::kill(child, SIGKILL);
  wait_for_end(open_process(child), kKillPatience);
  ::waitpid(child, nullptr, WNOHANG);
}

// Of a child that may outlive this process: who reads our output until its end must not wait for it too.
void let_go_of_standard_streams() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

Error silent_path(const std::string& path) {
  std::error_code failure;
  const std::string absolute = fs::absolute(path, failure).lexically_normal().string();
  const auto mounts = current_mounts();
  const auto holder = mounts ? mount_containing(*mounts, absolute) : std::nullopt;
  const std::string cure =
      holder && holder->is_clairfs()
          ? "if its daemon hangs, end the mount with: clairfs umount --lazy " + holder->mountpoint
          : "check the filesystem that it lies on";
  return Error{ETIMEDOUT, fmt::format("{} does not answer; {}", path, cure)};
}

Result<std::string> with_deadline(const std::string& path, std::chrono::milliseconds patience,
                                  const std::function<Result<std::string>()>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(errno, "make a pipe");
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return system_error(errno, "start a process");
  if (child == 0) {
    let_go_of_standard_streams();
    const auto result = work();
    write_all(writer.get(), result ? *result : result.error().message);
    ::_exit(result ? 0 : std::min(result.error().code, 255));
  }
  writer.reset();
  std::string text;
  const bool complete = drain(reader.get(), text, std::chrono::steady_clock::now() + patience);
  if (!complete) {
    kill_and_reap(child);
    return silent_path(path);
  }
  const int status = reap(child);
  if (!WIFEXITED(status)) return system_error(EIO, path);
  if (WEXITSTATUS(status) != 0) return Error{WEXITSTATUS(status), text};
  return text;
}

Fd open_process(pid_t pid) {
  // The system call itself: glibc 2.36 declares pidfd_open() without C linkage.
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool wait_for_end(const Fd& process, std::chrono::milliseconds patience) {
  if (!process) return true;
  const SteadyTime deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    pollfd event{process.get(), POLLIN, 0};
    const int ready = ::poll(&event, 1, static_cast<int>(std::max<long>(0, left)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
  }
}

std::string process_name(pid_t pid) {
  const auto name = read_text_file(fmt::format("/proc/{}/comm", pid));
  return name ? last_line(*name) : "";
}

bool main_thread_ended(pid_t pid) {
  const auto stat = read_text_file(fmt::format("/proc/{}/stat", pid));
  if (!stat) return false;
  const size_t name_end = stat->rfind(") ");  // the name may have any character
  const char state = name_end == std::string::npos ? '?' : (*stat)[name_end + 2];
  return state == 'Z' || state == 'X';
}

std::vector<std::string> processes_using(const std::string& path, size_t most) {
  std::vector<std::string> found;
  for_each_process([&](pid_t pid, const fs::path& entry) {
    if (pid != ::getpid() && uses(entry, path)) found.push_back(describe_process(pid));
    return found.size() < most;
  });
  return found;
}

std::vector<NamespaceUser> namespaces_with(const std::string& device) {
  const auto namespace_of = [](const fs::path& process) {
    std::error_code failure;
    return fs::read_symlink(process / "ns/mnt", failure).string();
  };
  std::set<std::string> looked_at{"", namespace_of("/proc/self")};
  std::vector<NamespaceUser> found;
  for_each_process([&](pid_t pid, const fs::path& entry) {
    const std::string name = namespace_of(entry);
    if (looked_at.contains(name)) return true;
    const auto text = read_text_file(entry / "mountinfo");
    if (!text) return true;
    looked_at.insert(name);
    const auto mounts = parse_mountinfo(*text);
    if (std::ranges::any_of(
            mounts, [&](const MountEntry& mount) { return mount.is_clairfs() && mount.device == device; }))
      found.push_back({name, describe_process(pid)});
    return true;
  });
  return found;
}

std::vector<std::string> still_with(const std::vector<NamespaceUser>& before,
                                    const std::vector<NamespaceUser>& now, size_t most) {
  std::set<std::string> had;
  for (const NamespaceUser& user : before) had.insert(user.mount_namespace);
  std::vector<std::string> still;
  for (const NamespaceUser& user : now)
    if (still.size() < most && had.contains(user.mount_namespace)) still.push_back(user.process);
  return still;
}

Result<std::string> read_with_deadline(const std::string& path, std::chrono::milliseconds patience) {
  return with_deadline(path, patience, [&] { return read_text_file(path); });
}

int probe(const std::string& path, std::chrono::milliseconds patience) {
  const auto answer = with_deadline(path, patience, [&]() -> Result<std::string> {
    struct statvfs space {};
    if (::statvfs(path.c_str(), &space) != 0) return system_error(errno, path);
    return std::string();
  });
  return answer ? 0 : answer.error().code;
}

Status run_program(const std::vector<std::string>& arguments) {
  constexpr auto kPatience =
      std::chrono::seconds(30);  // an unmount flushes nothing here; seconds are an eternity
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(errno, "make a pipe");
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const Result<pid_t> child =
      spawn({.program = arguments[0], .arguments = arguments, .files = {-1, -1, writer.get()}});
  if (!child) return child.error();

  writer.reset();
  std::string text;
  if (!drain(reader.get(), text, std::chrono::steady_clock::now() + kPatience)) ::kill(*child, SIGKILL);
  const int status = reap(*child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Error{EIO, text.empty() ? arguments[0] + " failed" : last_line(text)};
}

}  // namespace clairfs
