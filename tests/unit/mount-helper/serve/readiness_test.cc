#include "mount-helper/serve/readiness.h"

#include <cerrno>
#include <csignal>
#include <optional>

#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

struct Heard {
  Status status;
  std::vector<std::string> progress;
};

/// Runs `daemon` in a child process with the writing end, and hears it out.
Heard hear(const std::function<void(ReadinessWriter)>& daemon) {
  auto pipe = make_readiness_pipe();
  REQUIRE(pipe);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    daemon(std::move(pipe->writer));
    ::_exit(0);
  }
  { const ReadinessWriter closed = std::move(pipe->writer); }
  Heard heard;
  heard.status = pipe->reader.wait([&](const std::string& text) { heard.progress.push_back(text); });
  ::waitpid(child, nullptr, 0);
  return heard;
}

}  // namespace

TEST_CASE("a daemon reports progress and that it is ready") {
  const Heard heard = hear([](ReadinessWriter writer) {
    writer.progress("10 files");
    writer.progress("two\nlines");
    writer.finish({});
  });
  CHECK(heard.status.ok());
  CHECK(heard.progress == std::vector<std::string>{"10 files", "two lines"});
}

TEST_CASE("a daemon's error arrives with its code and text") {
  const Heard heard = hear([](ReadinessWriter writer) { writer.finish(Error{ENOSPC, "no space\nleft"}); });
  REQUIRE(!heard.status);
  CHECK(heard.status.error().code == ENOSPC);
  CHECK(heard.status.error().message == "no space left");
}

TEST_CASE("only the first outcome counts") {
  const Heard heard = hear([](ReadinessWriter writer) {
    writer.finish({});
    writer.finish(Error{EIO, "late"});
    writer.progress("later");
  });
  CHECK(heard.status.ok());
  CHECK(heard.progress.empty());
}

TEST_CASE("a daemon that dies without a word is noticed") {
  const Heard exited = hear([](const ReadinessWriter&) { ::_exit(3); });
  CHECK(exited.status.error().code == EPIPE);
  const Heard killed = hear([](ReadinessWriter writer) {
    writer.progress("started");
    ::kill(::getpid(), SIGKILL);
  });
  CHECK(killed.status.error().code == EPIPE);
  CHECK(killed.progress.size() == 1);
}

TEST_CASE("a wait can be interrupted") {
  auto pipe = make_readiness_pipe();
  REQUIRE(pipe);
  const Fd event(::eventfd(1, EFD_CLOEXEC));
  const Status status = pipe->reader.wait([](const std::string&) {}, event.get());
  CHECK(status.error().code == EINTR);
}

TEST_CASE("a daemon outlives the command that waited for it") {
  auto pipe = make_readiness_pipe();
  REQUIRE(pipe);
  { const ReadinessReader closed = std::move(pipe->reader); }
  pipe->writer.progress("nobody listens");  // SIGPIPE would end this test
  pipe->writer.finish({});
  sigset_t pending;
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGPIPE) == 0);
}
