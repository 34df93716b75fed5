#include "plan/formats/hdf5/helper/lockdown.h"

#include <array>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace clairfs::hdf5;

namespace {

constexpr rlim_t kMemory = 64 << 20;

/// What a process gets that has given up its rights: the error of each attempt, 0 if there is none.
struct Attempts {
  int file = 0, network = 0, process = 0, signal = 0, program = 0, memory = 0;
};

int error_of(long result) {
  return result < 0 ? errno : 0;
}

int error_of_mapping(size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno;
  ::munmap(memory, bytes);
  return 0;
}

// By the system calls themselves, since sanitizers have functions of their own in place of the library's.
Attempts attempt() {
  Attempts attempts;
  std::array<const char*, 2> words{"/bin/true", nullptr};
  attempts.file = error_of(::syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0));
  attempts.network = error_of(::syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
  attempts.signal = error_of(::syscall(SYS_kill, ::getpid(), 0));
  attempts.memory = error_of_mapping(2 * kMemory);
  const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) ::_exit(0);
  attempts.process = error_of(child);
  attempts.program = error_of(::syscall(SYS_execve, "/nowhere", words.data(), nullptr));
  return attempts;
}

// _exit() is no call that returns, so AddressSanitizer looks at the signal stack before it. That is
// forbidden, too.
void end_locked(int status) {
  ::syscall(SYS_exit_group, status);
}

/// In a process of its own, which lasts no longer than this.
Attempts attempts_of_a_process(bool locked) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t process = ::fork();
  if (process == 0) {
    if (locked && (!limit(kMemory, 60) || !lock_down())) end_locked(1);
    const Attempts attempts = attempt();
    end_locked(::write(ends[1], &attempts, sizeof attempts) == sizeof attempts ? 0 : 2);
  }
  ::close(ends[1]);
  Attempts attempts;
  const ssize_t got = ::read(ends[0], &attempts, sizeof attempts);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  CHECK(status == 0);
  REQUIRE(got == sizeof attempts);
  return attempts;
}

}  // namespace

TEST_CASE("a process that is locked down gets no file, network, process, program or memory, and goes on") {
  const Attempts free = attempts_of_a_process(false);
  CHECK(free.file == 0);
  CHECK(free.network == 0);
  CHECK(free.process == 0);
  CHECK(free.signal == 0);
  CHECK(free.memory == 0);
  CHECK(free.program == ENOENT);  // there is no such program, or it would not come back

  const Attempts locked = attempts_of_a_process(true);
  CHECK(locked.file == EPERM);
  CHECK(locked.network == EPERM);
  CHECK(locked.process == EPERM);
  CHECK(locked.signal == EPERM);
  CHECK(locked.program == EPERM);
  CHECK(locked.memory == ENOMEM);
}
