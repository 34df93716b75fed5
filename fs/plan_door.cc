#include "fs/plan_door.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cache/base/text.h"
#include "cache/base/thread.h"
#include "fs/ops/operations.h"

namespace clairfs {
namespace {

// A directory of our own, for a moment.
class MomentaryDirectory {
 public:
  MomentaryDirectory() {
    std::error_code failure;
    const auto parent = std::filesystem::temp_directory_path(failure);
    path_ = ((failure ? std::filesystem::path("/tmp") : parent) / "clairfs-plan-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  MomentaryDirectory(const MomentaryDirectory&) = delete;
  MomentaryDirectory& operator=(const MomentaryDirectory&) = delete;
  ~MomentaryDirectory() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Whether thread `id`, a number of our own PID namespace, lives in that and not in one below it.
bool in_our_pid_namespace(pid_t id) {
  std::ifstream status(fmt::format("/proc/{}/status", id));
  if (!status && (errno == EMFILE || errno == ENFILE)) return true;  // cannot look: nearly every reader does
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kNumbers = "NSpid:";  // one for each namespace, from ours down to its own
    if (!line.starts_with(kNumbers)) continue;
    return trimmed(std::string_view(line).substr(kNumbers.size())) == std::to_string(id);
  }
  return false;
}

// What the calling thread mounts from now on, no mount table shows, and it goes with the thread unless a
// descriptor holds it. Takes root; else the mount is to be seen until it is detached.
void hide_mounts_of_this_thread() {
  if (::unshare(CLONE_NEWNS) == 0) (void)::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
}

}  // namespace

Result<std::unique_ptr<PlanDoor>> PlanDoor::mount(const FuseOptions& options) {
  std::optional<Result<std::unique_ptr<PlanDoor>>> door;
  NamedThread thread("door-mount", [&] {
    hide_mounts_of_this_thread();
    door = mount_and_detach(options);
  });
  thread.join();
  return std::move(*door);
}

Result<std::unique_ptr<PlanDoor>> PlanDoor::mount_and_detach(const FuseOptions& options) {
  const MomentaryDirectory place;
  if (place.path().empty()) return system_error(errno, "make a directory for a moment");
  fuse_lowlevel_ops ops{};
  ops.init = [](void*, fuse_conn_info* connection) { negotiate(connection); };
  set_plan_door_operations(ops);
  auto self = std::unique_ptr<PlanDoor>(new PlanDoor);
  auto session = mount_session(options, place.path(), false, ops, &self->data_);
  if (!session) return session.error();
  self->session_ = std::move(*session);
  self->root_.reset(::open(place.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const int code = errno;
  if (const Status detached = detach_mount(place.path()); !detached) return detached.error();
  if (!self->root_) return system_error(code, "open " + place.path());
  return self;
}

void PlanDoor::start(FuseContext& context) {
  data_.context = &context;
  loop_.start(session_.get(), "plan-door", 1);
}

void PlanDoor::close_device(int nothing) {
  ::dup2(nothing, fuse_session_fd(session_.get()));
}

std::string PlanDoor::path_for(pid_t reader) const {
  if (!in_our_pid_namespace(reader)) return "";
  return fmt::format("/proc/{}/fd/{}/{}", ::getpid(), root_.get(), kPlanFile);
}

}  // namespace clairfs
