#include "mount-helper/mounts/processes.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// A child that waits in `directory` until it is killed with its owner.
class Child {
 public:
  explicit Child(const std::string& directory) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::chdir(directory.c_str()) != 0) ::_exit(1);
      ::close(ends[0]);
      ::close(ends[1]);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char byte = 0;
    CHECK(::read(ends[0], &byte, 1) == 0);  // it is there once it has closed its end
    ::close(ends[0]);
  }
  ~Child() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid = -1;
};

}  // namespace

TEST_CASE("who uses a directory is found by name and number") {
  const TemporaryDirectory directory;
  const std::string inner = directory.make("inner");
  CHECK(processes_using(inner, 5).empty());
  const Child child(inner);
  const auto users = processes_using(directory.path(), 5);
  REQUIRE(users.size() == 1);
  CHECK(users[0] == process_name(child.pid) + " (" + std::to_string(child.pid) + ")");
  CHECK(processes_using(inner + "2", 5).empty());
}

TEST_CASE("who has a mount after it was unmounted had it before") {
  const std::vector<NamespaceUser> before{{"mnt:[1]", "bash (10)"}, {"mnt:[2]", "sleep (20)"}};
  const std::vector<NamespaceUser> now{
      {"mnt:[3]", "clairfs (30)"}, {"mnt:[2]", "cat (21)"}, {"mnt:[1]", "bash (10)"}};
  CHECK(still_with(before, now, 3) == std::vector<std::string>{"cat (21)", "bash (10)"});
  CHECK(still_with(before, now, 1) == std::vector<std::string>{"cat (21)"});
  CHECK(still_with({}, now, 3).empty());
}

TEST_CASE("the end of a process is waited for, but not for ever") {
  const TemporaryDirectory directory;
  Child child(directory.path());
  const Fd process = open_process(child.pid);
  REQUIRE(process);
  CHECK(!wait_for_end(process, 1ms));
  CHECK_FALSE(main_thread_ended(child.pid));
  ::kill(child.pid, SIGKILL);
  CHECK(wait_for_end(process, 1min));
  CHECK(main_thread_ended(child.pid));  // nobody has asked for its status yet
  child.end();
  CHECK(wait_for_end(process, 1min));
  CHECK(wait_for_end(Fd(), 0ms));
}

TEST_CASE("a file is read by a process that can be given up") {
  const TemporaryDirectory directory;
  CHECK(*read_with_deadline(directory.write("file", std::string(300'000, 'x')), 60s) ==
        std::string(300'000, 'x'));
  CHECK(read_with_deadline(directory.path() + "/none", 60s).error().code == ENOENT);
  const std::string fifo = directory.path() + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const Fd writer(::open(fifo.c_str(), O_RDWR));  // someone who never writes
  CHECK(read_with_deadline(fifo, 60s).error().code == EAGAIN);
}

TEST_CASE("a program's success and last error line are reported") {
  CHECK(run_program({"/bin/true"}).ok());
  CHECK(run_program({"/bin/sh", "-c", "echo first >&2; echo last >&2; exit 3"}).error().message == "last");
  CHECK(run_program({"/bin/false"}).error().message == "/bin/false failed");
  CHECK(run_program({"/nonexistent/program"}).error().code == ENOENT);
}
