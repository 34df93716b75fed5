#include "mount-helper/commands/cli.h"

#include <cstdio>
#include <functional>
#include <memory>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "cache/base/fd.h"
#include "mount-helper/commands/commands.h"
#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

struct Run {
  int status = 0;
  std::string error;  ///< what went to stderr
};

Run run(int (*program)(int, char**), std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  std::fflush(stderr);
  const Fd saved(::dup(STDERR_FILENO));
  ::dup2(::fileno(file.get()), STDERR_FILENO);
  ::optind = 0;  // getopt starts anew
  Run result;
  result.status = program(static_cast<int>(arguments.size()), argv.data());
  std::fflush(stderr);
  ::dup2(saved.get(), STDERR_FILENO);
  char buffer[4096];
  std::rewind(file.get());
  result.error.assign(buffer, std::fread(buffer, 1, sizeof(buffer), file.get()));
  return result;
}

/// One line that begins with the program's name.
void check_line(const Run& run, int status, const std::string& what) {
  CHECK(run.status == status);
  CHECK_THAT(run.error, StartsWith("clairfs: ") && Contains(what));
  CHECK(run.error.find('\n') == run.error.size() - 1);
}

}  // namespace

TEST_CASE("wrong usage of clairfs gives one line and status 1") {
  check_line(run(run_clairfs, {"clairfs", "mout"}), exit_usage, "unknown command 'mout'");
  check_line(run(run_clairfs, {"clairfs", "mount", "/tmp"}), exit_usage, "MOUNTPOINT is required");
  check_line(run(run_clairfs, {"clairfs", "mount", "/tmp", "/mnt", "--bogus"}), exit_usage, "--bogus");
  check_line(run(run_clairfs, {"clairfs", "mount", "/tmp", "/mnt", "--ram"}), exit_usage, "--ram");
  check_line(run(run_clairfs, {"clairfs", "mount", "/tmp", "/mnt", "--ram", "x"}), exit_usage, "--ram: 'x'");
  check_line(run(run_clairfs, {"clairfs", "mount", "/tmp", "/mnt", "-o", "ro,bla"}), exit_usage, "'bla'");
  check_line(run(run_clairfs, {"clairfs", "--bogus"}), exit_usage, "unknown option '--bogus'");
  check_line(run(run_clairfs, {"clairfs", "warmup", "/tmp", "--jobs", "0"}), exit_usage, "jobs");
}

TEST_CASE("commands on what is no clairfs mount say so") {
  const TemporaryDirectory directory;
  check_line(run(run_clairfs, {"clairfs", "umount", directory.path()}), exit_usage, "is not mounted");
  check_line(run(run_clairfs, {"clairfs", "umount", "/proc"}), exit_usage, "is a mount of type proc");
  check_line(run(run_clairfs, {"clairfs", "status", directory.path()}), exit_usage,
             "is not on a clairfs mount");
  check_line(run(run_clairfs, {"clairfs", "warmup", directory.path()}), exit_usage,
             "is not on a clairfs mount");
  check_line(run(run_clairfs, {"clairfs", "umount", directory.path() + "/none"}), exit_usage, "No such file");
}

TEST_CASE("mount.clairfs keeps to the statuses of mount(8)") {
  const TemporaryDirectory directory;
  const std::string source = directory.make("source");
  check_line(run(run_mount_helper, {"mount.clairfs", source}), exit_usage, "usage: mount.clairfs");
  check_line(run(run_mount_helper, {"mount.clairfs", source, "/mnt", "-q"}), exit_usage,
             "usage: mount.clairfs");
  check_line(run(run_mount_helper, {"mount.clairfs", source, "/mnt", "-o", "rw,bla=1"}), exit_usage,
             "unknown option 'bla=1'");
  check_line(run(run_mount_helper, {"mount.clairfs", source, directory.path() + "/none", "-n", "-o", "rw"}),
             exit_mount_failure, "does not exist");
  check_line(run(run_mount_helper, {"mount.clairfs", source, source, "-sn", "-o", "rw,bla"}),
             exit_mount_failure, "source and mountpoint are both");
}

TEST_CASE("the names of arguments are ones that every version of CLI11 takes") {
  int status = 0;
  const auto app = make_app(status);
  const std::function<void(const CLI::App&)> look = [&](const CLI::App& command) {
    for (const CLI::Option* option : command.get_options()) {
      INFO(command.get_name() << " " << option->get_name());
      CHECK(option->get_name().find_first_of("= ") == std::string::npos);  // refused from 2.4 on
    }
    for (const CLI::App* part : command.get_subcommands([](const CLI::App*) { return true; })) look(*part);
  };
  look(*app);
  CHECK(!app->get_subcommands([](const CLI::App*) { return true; }).empty());
}
