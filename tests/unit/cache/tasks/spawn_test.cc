#include "cache/tasks/spawn.h"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// What a program prints, and how it ends.
struct Outcome {
  std::string text;
  int status = 0;
};

Outcome outcome_of(std::vector<std::string> arguments, Spawn how = {}) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  how.program = arguments[0];
  how.arguments = std::move(arguments);
  how.files[STDOUT_FILENO] = writer.get();
  const auto process = spawn(how);
  REQUIRE(process);
  writer.reset();
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(reader.get(), buffer.data(), buffer.size())) > 0;)
    outcome.text.append(buffer.data(), static_cast<size_t>(got));
  REQUIRE(::waitpid(*process, &outcome.status, 0) == *process);
  return outcome;
}

std::vector<std::string> script(const std::string& text) {
  return {"sh", "-c", text};
}

}  // namespace

TEST_CASE("a program gets its arguments, and its status comes back") {
  const Outcome outcome = outcome_of(script("printf %s ok; exit 7"));
  CHECK(outcome.text == "ok");
  CHECK(WEXITSTATUS(outcome.status) == 7);
}

TEST_CASE("a program inherits no descriptor but its own three") {
  const Fd ours(::dup(STDERR_FILENO));  // without close-on-exec
  REQUIRE(ours);
  // The fourth is the shell's own, of the folder that it lists.
  CHECK(outcome_of(script("cd /proc/self/fd && echo *")).text == "0 1 2 3\n");
  CHECK(outcome_of({"readlink", "/proc/self/fd/0", "/proc/self/fd/2"}).text == "/dev/null\n/dev/null\n");
}

TEST_CASE("a program ignores no signal, whatever we ignore, and blocks them on demand only") {
  const auto mask = [](const std::string& which, Spawn::Signals signals) {
    Spawn how;
    how.signals = signals;
    // Not by a shell, which begins with none blocked.
    const Outcome outcome = outcome_of({"sed", "-n", "s/^" + which + ":\t//p", "/proc/self/status"}, how);
    return std::stoull(outcome.text, nullptr, 16);
  };
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  const auto before = std::signal(SIGUSR1, SIG_IGN);
  CHECK((mask("SigIgn", Spawn::Signals::as_usual) & bit(SIGUSR1)) == 0);
  std::signal(SIGUSR1, before);
  CHECK((mask("SigBlk", Spawn::Signals::as_usual) & (bit(SIGUSR1) | bit(SIGTERM))) == 0);
  CHECK((mask("SigBlk", Spawn::Signals::blocked) & bit(SIGUSR1)) != 0);
  CHECK((mask("SigBlk", Spawn::Signals::blocked) & bit(SIGTERM)) != 0);
}

TEST_CASE("a program of a session of its own is not in our process group") {
  // Process group and session.
  const std::vector<std::string> groups = {"cut", "-d", " ", "-f", "5,6", "/proc/self/stat"};
  Spawn how;
  how.new_session = true;
  const std::string own = outcome_of(groups, how).text;
  const std::string ours = outcome_of(groups).text;
  CHECK(ours == std::to_string(::getpgrp()) + " " + std::to_string(::getsid(0)) + "\n");
  CHECK(own.substr(0, own.find(' ')) + "\n" == own.substr(own.find(' ') + 1));
  CHECK(own != ours);
}

TEST_CASE("a program that is not there is an error with its name") {
  const auto process = spawn({.program = "/nowhere/program", .arguments = {"program"}});
  REQUIRE(!process);
  CHECK(process.error().code == ENOENT);
  CHECK(process.error().message.find("start /nowhere/program") != std::string::npos);
}
