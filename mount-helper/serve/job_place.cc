#include "mount-helper/serve/job_place.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <xxhash.h>

#include "cache/base/text.h"
#include "fs/base/mountinfo.h"
#include "fs/base/text_file.h"
#include "mount-helper/mounts/resolve_path.h"
#include "net/mpi/job_environment.h"
#include "net/mpi/launch.h"

namespace clairfs {
namespace {

// A node that has claimed its mount point mounts it within milliseconds, on a busy machine within seconds.
constexpr std::chrono::seconds kUntilMounted(10);
constexpr std::chrono::milliseconds kBetweenLooks(20);
// Who has claimed it listens within microseconds. Asking more often would fill the queue of who listens.
constexpr std::chrono::seconds kUntilListening(1);

// What tells this process's mounts from those of containers that share its network; 0 where /proc is
// missing.
ino_t mount_namespace() {
  struct stat st {};
  return ::stat("/proc/self/ns/mnt", &st) == 0 ? st.st_ino : 0;
}

// In the abstract namespace: nothing is left behind, however the process ends. That is one for each network
// namespace, while a mount point is one for each mount namespace.
class ClaimName {
 public:
  explicit ClaimName(const std::string& path) {
    const std::string name = fmt::format("clairfs mount point {} {:016x}", mount_namespace(),
                                         XXH3_64bits(path.data(), path.size()));
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, name.data(), name.size());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }

  bool bind(const Fd& socket) const { return ::bind(socket.get(), address(), length_) == 0; }

  // Whether a process of this user or of root has it: any may take a name, and need not ever mount.
  bool is_a_mounts() const {
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ucred holder{};
    socklen_t size = sizeof holder;
    return ::connect(socket.get(), address(), length_) == 0 &&
           ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &holder, &size) == 0 &&
           (holder.uid == 0 || holder.uid == ::geteuid());
  }

 private:
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }

  sockaddr_un address_{};
  socklen_t length_ = 0;
};

void fill_in(std::string& path, NodeId rank) {
  constexpr std::string_view kPlaceholder = "{rank}";
  const std::string number = std::to_string(rank.value);
  for (size_t at = path.find(kPlaceholder); at != std::string::npos; at = path.find(kPlaceholder, at)) {
    path.replace(at, kPlaceholder.size(), number);
    at += number.size();
  }
}

// How many nodes there are, and which one this is, from the options, else from the environment.
Result<JobPlace> place_without_launcher(const MountOptions& options) {
  const auto rank = options.rank ? Result<uint32_t>(*options.rank) : node_rank_from_environment();
  if (!rank) return rank.error();
  const auto nodes = options.nodes ? Result<uint32_t>(*options.nodes) : node_count_from_environment();
  if (!nodes) return nodes.error();
  if (*rank >= *nodes)
    return Error{EINVAL, fmt::format("node {} is not below {}, the number of nodes: they count from 0", *rank,
                                     *nodes)};
  return JobPlace{NodeId(*rank), *nodes};
}

bool is_torchs_port(uint16_t port) {
  const char* text = std::getenv("MASTER_PORT");
  return text != nullptr && parse_whole<uint16_t>(text) == port;
}

Status read_secret(MountOptions& options) {
  const char* variable = std::getenv("CLAIRFS_JOB_SECRET");
  if (variable != nullptr) options.job_secret = trimmed(variable);
  if (options.job_secret_file.empty()) return {};
  const auto text = read_text_file(options.job_secret_file);
  if (!text) return Error{text.error().code, "--job-secret: " + text.error().message};
  options.job_secret = trimmed(*text);
  if (!options.job_secret.empty()) return {};
  return Error{EINVAL,
               fmt::format("--job-secret {} is empty; make one with: head -c 32 /dev/urandom | base64",
                           options.job_secret_file)};
}

}  // namespace

Result<JobPlace> place_of(const MountOptions& options) {
  if (options.job) {
    if (is_torchs_port(options.job->port)) {
      return Error{EINVAL, fmt::format("--job {}: that port is MASTER_PORT, torch's own; give another one",
                                       options.job->text())};
    }
    return place_without_launcher(options);
  }
  if (options.rank || options.nodes || !options.job_secret_file.empty())
    return Error{EINVAL, "--rank, --nodes and --job-secret go with --job HOST:PORT, where the nodes meet"};
  return mpi_place();
}

std::vector<std::string> job_warnings(const MountOptions& options, const JobPlace& place) {
  std::vector<std::string> lines;
  if (!options.peers) return lines;
  if (options.job && place.size > 1 && options.job_secret.empty()) {
    lines.push_back(fmt::format("without --job-secret whoever reached {} could have joined this job",
                                options.job->text()));
  }
  if (place.size == 1 && !options.job) {
    if (auto hint = hint_at_other_nodes(); !hint.empty()) lines.push_back(std::move(hint));
  }
  return lines;
}

Result<MountOptions> options_for_node(MountOptions options, const JobPlace& place) {
  if (place.size > 1 && !options.foreground && !options.job) {
    return Error{EINVAL,
                 fmt::format("this is one of {} nodes of a job, which end when their launcher does: add -f, "
                             "and end the launcher's line with & to go on",
                             place.size)};
  }
  if (options.job) {
    if (const Status read = read_secret(options); !read) return read.error();
  }
  for (std::string* path : {&options.source, &options.mountpoint, &options.catalog_dir, &options.log_file}) {
    fill_in(*path, place.self);
  }
  for (NvmeDir& nvme : options.nvme) fill_in(nvme.directory, place.self);
  return options;
}

Result<Fd> claim_mount_point(const std::string& mountpoint, bool in_job,
                             const std::function<void()>& on_wait) {
  const auto path = resolve_path(mountpoint);
  if (!path) return Fd();
  Fd claim(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!claim) return system_error(errno, "socket");
  const ClaimName name(*path);
  const auto begin = std::chrono::steady_clock::now();
  auto ask = begin + kUntilListening;
  for (;;) {
    const bool bound = name.bind(claim);
    const auto mounts = current_mounts();
    const auto there = mounts ? mount_at(*mounts, *path) : std::nullopt;
    if (there && there->is_clairfs()) {
      if (!in_job) return Fd();  // resolve_paths() has more to say of it
      return Error{EBUSY,
                   fmt::format("{0} is a clairfs mount already; if it is left from an earlier job, clear it "
                               "with: clairfs umount {0}; if it is that of another node of this job on the "
                               "same machine, write {{rank}} where their paths are to differ, as in "
                               "'{0}-{{rank}}'",
                               mountpoint)};
    }
    if (bound) {
      if (::listen(claim.get(), SOMAXCONN) != 0) return system_error(errno, "listen");
      return claim;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now > ask && !name.is_a_mounts()) return Fd();
    if (now > ask) ask = now + kUntilListening;
    if (now > begin + kUntilMounted) {
      if (in_job) return Fd();
      return Error{
          EBUSY, fmt::format("another clairfs is about to mount on {}; wait for it, or end it", mountpoint)};
    }
    if (on_wait) on_wait();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace clairfs
