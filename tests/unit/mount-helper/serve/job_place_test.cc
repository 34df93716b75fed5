#include "mount-helper/serve/job_place.h"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/unit/mount-helper/temporary_directory.h"

namespace clairfs {
namespace {

MountOptions options_of(const std::string& mountpoint) {
  MountOptions options;
  options.foreground = true;
  options.source = "/data";
  options.mountpoint = mountpoint;
  return options;
}

/// A variable of the environment, for a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("every path may name the rank") {
  MountOptions options = options_of("/mnt/{rank}/data-{rank}");
  options.nvme = {{"/nvme/{rank}", 5}, {"/disk", 6}};
  options.catalog_dir = "{rank}";
  options.log_file = "/log/{rank}.txt";
  const auto placed = options_for_node(options, {NodeId(12), 16});
  REQUIRE(placed);
  CHECK(placed->source == "/data");
  CHECK(placed->mountpoint == "/mnt/12/data-12");
  CHECK(placed->nvme == std::vector<NvmeDir>{{"/nvme/12", 5}, {"/disk", 6}});
  CHECK(placed->catalog_dir == "12");
  CHECK(placed->log_file == "/log/12.txt");
}

TEST_CASE("without a job the rank is 0") {
  const auto placed = options_for_node(options_of("/mnt/{rank}"), {});
  REQUIRE(placed);
  CHECK(placed->mountpoint == "/mnt/0");
}

TEST_CASE("a mount point is one node's at a time") {
  const TemporaryDirectory one;
  const TemporaryDirectory two;
  auto claim = claim_mount_point(one.path(), true);
  REQUIRE(claim);
  CHECK(*claim);
  CHECK(*claim_mount_point(two.path(), true));
  std::optional<Result<Fd>> second;
  std::atomic<bool> waited{false};
  AwaitedCount waited_or_ended;
  std::thread waits([&] {
    second = claim_mount_point(one.path(), true, [&] {
      waited = true;
      waited_or_ended.raise();
    });
    waited_or_ended.raise();
  });
  CHECK(waited_or_ended.reaches(1));
  CHECK(waited);
  *claim = Fd();
  waits.join();
  REQUIRE(*second);
  CHECK(**second);
  CHECK_FALSE(*claim_mount_point("/nowhere/at all", true));
}

TEST_CASE("without a job, too, a mount point is claimed by one at a time") {
  const TemporaryDirectory here;
  auto claim = claim_mount_point(here.path(), false);
  REQUIRE((claim && *claim));
  std::optional<Result<Fd>> second;
  std::thread waits([&] { second = claim_mount_point(here.path(), false); });
  *claim = Fd();
  waits.join();
  CHECK((*second && **second));
  CHECK_FALSE(*claim_mount_point("/nowhere/at all", false));
}

TEST_CASE("another user who has taken the name of a mount point keeps nobody from it") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  const bool listens = GENERATE(true, false);
  const TemporaryDirectory here;
  auto claim = claim_mount_point(here.path(), false);
  REQUIRE((claim && *claim));
  sockaddr_un name{};
  socklen_t size = sizeof name;
  REQUIRE(::getsockname(claim->get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
  *claim = Fd();
  Fd taken(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(taken.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
  constexpr uid_t kNobody = 65534;
  const pid_t stranger = ::fork();  // a socket is whose process listens
  REQUIRE(stranger >= 0);
  if (stranger == 0) ::_exit(::setuid(kNobody) == 0 && (!listens || ::listen(taken.get(), 1) == 0) ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(stranger, &status, 0) == stranger);
  REQUIRE(status == 0);
  claim = claim_mount_point(here.path(), false);
  REQUIRE(claim);
  CHECK_FALSE(*claim);
}

TEST_CASE("a path is another mount point where other mounts are seen") {
  const TemporaryDirectory here;
  const auto claim = claim_mount_point(here.path(), true);
  REQUIRE(claim);
  REQUIRE(*claim);
  constexpr int kNotTried = 2;
  const pid_t container = ::fork();  // with mounts of its own, and the network of all
  REQUIRE(container >= 0);
  if (container == 0) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(kNotTried);
    const auto second = claim_mount_point(here.path(), true);
    ::_exit(second && *second ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(container, &status, 0) == container);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotTried)
    WARN("skipped: this user may not make a mount namespace");
  else
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a node of a job stays in the foreground") {
  MountOptions options = options_of("/mnt");
  options.foreground = false;
  CHECK(options_for_node(options, {NodeId(0), 1}).ok());
  const auto refused = options_for_node(options, {NodeId(0), 2});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("add -f") != std::string::npos);
}

TEST_CASE("a node of a job without a launcher may go to the background") {
  MountOptions options = options_of("/mnt");
  options.foreground = false;
  options.job = HostPort{"node0", 5200};
  CHECK(options_for_node(options, {NodeId(0), 2}).ok());
}

TEST_CASE("the place in a job comes from the options, else from the environment") {
  MountOptions options = options_of("/mnt");
  options.job = HostPort{"node0", 5200};
  const auto why = [&] {
    const auto place = place_of(options);
    return place ? std::string() : place.error().message;
  };
  CHECK(why().find("--rank R") != std::string::npos);
  options.rank = 1;
  CHECK(why().find("--nodes N") != std::string::npos);
  options.nodes = 1;
  CHECK(why().find("node 1 is not below 1") != std::string::npos);
  options.nodes = 2;
  {
    const Variable group_rank("GROUP_RANK", "0");  // options win
    const Variable pmi_rank("PMI_RANK", "7");      // over launchers too
    const Variable pmi_size("PMI_SIZE", "9");
    const auto place = place_of(options);
    REQUIRE(place);
    CHECK((place->self == NodeId(1) && place->size == 2));
  }
  const Variable group_rank("GROUP_RANK", "2");
  const Variable world_size("WORLD_SIZE", "24");
  const Variable local_world_size("LOCAL_WORLD_SIZE", "8");
  options.rank.reset();
  options.nodes.reset();
  {
    const auto place = place_of(options);
    REQUIRE(place);
    CHECK((place->self == NodeId(2) && place->size == 3));
  }
  const Variable master_port("MASTER_PORT", "5200");
  CHECK(why().find("MASTER_PORT, torch's own") != std::string::npos);
}

TEST_CASE("a rank without a place to meet is refused") {
  MountOptions options = options_of("/mnt");
  options.rank = 0;
  const auto place = place_of(options);
  REQUIRE_FALSE(place);
  CHECK(place.error().message.find("--job HOST:PORT") != std::string::npos);
}

TEST_CASE("the job's secret is read, from the file rather than the environment") {
  const TemporaryDirectory directory;
  MountOptions options = options_of("/mnt");
  options.job = HostPort{"node0", 5200};
  const JobPlace place{NodeId(0), 2};
  CHECK(options_for_node(options, place)->job_secret.empty());
  const Variable variable("CLAIRFS_JOB_SECRET", " of the environment\n");
  CHECK(options_for_node(options, place)->job_secret == "of the environment");
  options.job_secret_file = directory.write("secret", "of the file \n");
  CHECK(options_for_node(options, place)->job_secret == "of the file");
  options.job_secret_file = directory.write("secret", " \n");
  CHECK(options_for_node(options, place).error().message.find("is empty") != std::string::npos);
  options.job_secret_file = "/nowhere/secret";
  CHECK(options_for_node(options, place).error().message.find("--job-secret: open /nowhere/secret") == 0);
  options.job.reset();
  CHECK(options_for_node(options, place)->job_secret.empty());
}

TEST_CASE("what may not be meant is doubted") {
  MountOptions options = options_of("/mnt");
  CHECK(job_warnings(options, {}).empty());
  {
    const Variable nodes("SLURM_JOB_NUM_NODES", "4");
    CHECK(job_warnings(options, {}).size() == 1);
    CHECK(job_warnings(options, {NodeId(0), 4}).empty());
    options.peers = false;
    CHECK(job_warnings(options, {}).empty());
    options.peers = true;
  }
  options.job = HostPort{"node0", 5200};
  REQUIRE(job_warnings(options, {NodeId(0), 2}).size() == 1);
  CHECK(job_warnings(options, {NodeId(0), 2})[0].find("without --job-secret") == 0);
  options.job_secret = "something";
  CHECK(job_warnings(options, {NodeId(0), 2}).empty());
}

}  // namespace clairfs
