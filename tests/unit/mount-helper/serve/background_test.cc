#include "mount-helper/serve/background.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <stdexcept>

#include <sys/prctl.h>
#include <unistd.h>

#include "fs/base/text_file.h"
#include "mount-helper/log/logging.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

struct Fixture {
  TemporaryDirectory directory;
  MountOptions options;
  std::vector<std::string> progress;

  Fixture() {
    options.mountpoint = directory.make("mountpoint");
    options.catalog_dir = directory.path() + "/catalogs";
  }
  Status start(const Serve& serve) {
    return start_in_background(options, serve, [&](const std::string& text) { progress.push_back(text); });
  }
  std::string log() const {
    const auto text = read_text_file(default_log_file(options.catalog_dir, options.mountpoint));
    return text ? *text : "";
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "the command returns once the daemon is ready, and the daemon goes on elsewhere") {
  const std::string facts = directory.path() + "/facts";
  const Status started = start([&](const MountOptions&, Logger& log, const ServeEvents& events) {
    events.progress("half");
    log.info("serving");
    const bool early = ::getsid(0) == ::getpid();  // an automount would keep it out
    events.ready({});
    const bool leader = !early && ::getsid(0) == ::getpid();
    directory.write("facts.new", std::filesystem::current_path().string() + (leader ? " leader" : ""));
    std::filesystem::rename(directory.path() + "/facts.new", facts);
    ::_exit(0);
    return 0;
  });
  CHECK(started.ok());
  CHECK(progress == std::vector<std::string>{"half"});
  REQUIRE(eventually([&] { return std::filesystem::exists(facts); }));
  CHECK(*read_text_file(facts) == "/ leader");
  CHECK_THAT(log(), Contains("info serving"));
  const auto mode = std::filesystem::status(options.catalog_dir).permissions();
  CHECK(mode == std::filesystem::perms::owner_all);
}

TEST_CASE_METHOD(Fixture, "the daemon's error is the command's") {
  const Status started = start([](const MountOptions&, Logger&, const ServeEvents& events) {
    events.ready(Error{ENOSPC, "full"});
    ::_exit(32);
    return 32;
  });
  CHECK(started.error().code == ENOSPC);
  CHECK(started.error().message == "full");
  CHECK_THAT(log(), Contains("not mounted: full"));
}

TEST_CASE_METHOD(Fixture, "a daemon that dies before it is ready is reported with how and its log") {
  std::string how;
  Serve serve;
  SECTION("killed") {
    serve = [](const MountOptions&, Logger&, const ServeEvents&) { return ::kill(::getpid(), SIGKILL); };
    how = "killed by signal 9";
  }
  SECTION("ended") {
    serve = [](const MountOptions&, Logger&, const ServeEvents&) -> int { ::_exit(7); };
    how = "exit status 7";
  }
  const Status started = start(serve);
  CHECK(started.error().code == EPIPE);
  CHECK_THAT(started.error().message, Contains(how));
  CHECK_THAT(started.error().message, Contains(default_log_file(options.catalog_dir, options.mountpoint)));
}

TEST_CASE_METHOD(Fixture, "a signal to the waiting command ends the daemon too") {
  const pid_t command = ::getpid();
  const Status started = start([&](const MountOptions&, Logger&, const ServeEvents&) -> int {
    ::signal(SIGTERM, SIG_DFL);  // Catch2 has a handler of its own
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::kill(command, SIGTERM);
    for (;;) ::pause();
  });
  CHECK(started.error().code == EINTR);
}

TEST_CASE_METHOD(Fixture, "a log that cannot be written is an error with the option that helps") {
  options.log_file = directory.write("file", "") + "/log";
  const Status started = start([](const MountOptions&, Logger&, const ServeEvents&) -> int { ::_exit(0); });
  CHECK_THAT(started.error().message, Contains("--log-file"));
}

TEST_CASE_METHOD(Fixture, "an exception becomes an error, but only before the mount is ready") {
  options.foreground = true;  // the log is not under test
  const auto logger = make_logger(options);
  REQUIRE(logger);
  (*logger)->set_level(spdlog::level::off);
  std::vector<std::string> said;
  ServeEvents events;
  events.ready = [&](const Status& status) { said.push_back(status ? "ready" : status.error().message); };

  const auto guarded = [&](bool ready_first) {
    return serve_guarded(
        [&](const MountOptions&, Logger&, const ServeEvents& inner) -> int {
          if (ready_first) inner.ready({});
          throw std::runtime_error("no memory");
        },
        options, **logger, events);
  };
  CHECK(guarded(false) != 0);
  CHECK(guarded(true) != 0);
  CHECK(said == std::vector<std::string>{"no memory", "ready"});
}
