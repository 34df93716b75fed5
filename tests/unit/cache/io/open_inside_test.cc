#include "cache/io/open_inside.h"

#include <cerrno>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "cache/io/open_below.h"
#include "tests/support/catch.h"
#include "tests/unit/cache/io/io_support.h"

using namespace clairfs;
using namespace clairfs::testing;

namespace {

/// A folder with a file, links to both, and what lies outside.
struct Tree : TemporaryDirectory {
  Tree() {
    for (const char* folder : {"inside", "inside/a", "inside/a/b", "outside", "outside/b"})
      std::filesystem::create_directory(*this / folder);
    write_file(*this / "inside/a/b/file", "inside");
    write_file(*this / "outside/b/file", "outside");
    std::filesystem::create_symlink(*this / "outside", *this / "inside/absolute");
    std::filesystem::create_symlink("../outside", *this / "inside/relative");
    std::filesystem::create_symlink("a", *this / "inside/beside");
    std::filesystem::create_symlink("b/file", *this / "inside/a/last");
    fd.reset(::open((*this / "inside").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  Fd fd;
};

/// 0 or errno.
int outcome(int directory, const char* path) {
  const Fd opened(open_inside(directory, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  return opened ? 0 : errno;
}

bool refused(int code) {
  return code == ELOOP || code == ENOTDIR;
}

void check(int directory) {
  CHECK(outcome(directory, "a/b/file") == 0);
  CHECK(outcome(directory, ".") == 0);
  CHECK(outcome(directory, "a/b/absent") == ENOENT);
  for (const char* path : {"absolute/b/file", "relative/b/file", "beside/b/file", "a/last", "absolute"})
    CHECK(refused(outcome(directory, path)));
}

/// Makes openat2() fail in this process from now on.
bool forbid_openat2(int code) {
  sock_filter lines[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(lines), lines};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("no symlink is followed on the way to a file") {
  const Tree tree;
  check(tree.fd.get());
  CHECK(refused(open_below(tree.fd.get(), "absolute/b/file", O_RDONLY).error().code));
}

TEST_CASE("no symlink is followed where openat2 is missing or forbidden") {
  const Tree tree;
  for (const int code : {ENOSYS, EPERM}) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const auto right = [&](const char* path, bool opens) {
        const int got = outcome(tree.fd.get(), path);
        return opens ? got == 0 : refused(got);
      };
      const bool all = forbid_openat2(code) && right("a/b/file", true) && right(".", true) &&
                       right("absolute/b/file", false) && right("relative/b/file", false) &&
                       right("beside/b/file", false) && right("a/last", false);
      ::_exit(all ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}
