#include "mount-helper/log/logging.h"

#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include <sys/stat.h>

#include "fs/base/text_file.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

/// A log in a directory of its own.
struct FileLog {
  const TemporaryDirectory directory;
  MountOptions options;

  FileLog() { options.log_file = directory.path() + "/x.log"; }
  std::shared_ptr<Logger> open() const {
    const auto log = make_logger(options);
    REQUIRE(log);
    return *log;
  }
  std::string text() const { return *read_text_file(options.log_file); }
};

/// Lines of more than a thousand bytes.
void write_lines(Logger& log, int count) {
  const std::string line(1000, 'x');
  for (int i = 0; i < count; ++i) log.info(line);
}

}  // namespace

TEST_CASE("each mountpoint has a log file of its own") {
  const std::string host = short_host_name();
  CHECK(!host.empty());
  CHECK(host.find_first_of("./") == std::string::npos);
  CHECK(default_log_file("/c", "/mnt/data") == "/c/log/mnt-data@" + host + ".log");
  const std::string deep = "/" + std::string(250, 'x') + "/";
  const std::set<std::string> names = {
      default_log_file("/c", "/a/b"),     default_log_file("/c", "/a-b"),
      default_log_file("/c", "/a/b-c"),   default_log_file("/c", "/a-b/c"),
      default_log_file("/c", deep + "1"), default_log_file("/c", deep + "2")};
  CHECK(names.size() == 6);
  for (const std::string& name : names) CHECK(std::filesystem::path(name).filename().string().size() <= 253);
}

TEST_CASE("the log never takes more than twice its limit") {
  FileLog in;
  in.options.log_file = in.directory.path() + "/deep/er/x.log";
  const auto log = in.open();
  write_lines(*log, 12'000);
  log->flush();
  uintmax_t bytes = 0;
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(in.directory.path() + "/deep/er")) {
    bytes += file.file_size();
    ++files;
  }
  CHECK(files == 2);
  CHECK(bytes <= 8ULL << 20);
  CHECK(bytes > 4ULL << 20);
}

TEST_CASE("a log that is a device is never renamed") {
  const FileLog in;
  std::filesystem::create_symlink("/dev/null", in.options.log_file);
  write_lines(*in.open(), 5'000);
  CHECK(std::filesystem::is_symlink(in.options.log_file));
  CHECK(!std::filesystem::exists(std::filesystem::symlink_status(in.options.log_file + ".1")));
}

TEST_CASE("a log that others rotate takes the place of no older one of theirs") {
  const FileLog in;
  const std::string older = in.options.log_file + ".1";
  const auto log = in.open();
  log->info("first");
  write_lines(*log, 3'000);
  SECTION("by copies, after which it is cut short") {
    in.directory.write("x.log.1", "their copy");
    std::filesystem::resize_file(in.options.log_file, 0);
    write_lines(*log, 3'000);
    CHECK(*read_text_file(older) == "their copy");
    CHECK(std::filesystem::file_size(in.options.log_file) > 3'000'000);
  }
  SECTION("by moving it away without a word") {
    std::filesystem::rename(in.options.log_file, older);
    in.directory.write("x.log", "");
    write_lines(*log, 3'000);
    CHECK_THAT(*read_text_file(older), Contains(" info first\n"));
    log->info("last");
    CHECK_THAT(in.text(), Contains(" info last\n"));
  }
}

TEST_CASE("a log that was moved away goes on under its name once it is opened anew") {
  const FileLog in;
  const auto log = in.open();
  log->info("one");
  std::filesystem::rename(in.options.log_file, in.directory.path() + "/old");
  log->info("two");
  reopen_log(*log);
  log->info("three");
  const std::string old = *read_text_file(in.directory.path() + "/old");
  CHECK_THAT(old, Contains("one") && Contains("two") && !Contains("three"));
  CHECK_THAT(in.text(), Contains("three") && !Contains("two"));
  std::filesystem::remove_all(in.directory.path() + "/old");
  std::filesystem::permissions(in.directory.path(), std::filesystem::perms::owner_read);
  reopen_log(*log);  // where it cannot be opened, it goes on where it was
  log->info("four");
  std::filesystem::permissions(in.directory.path(), std::filesystem::perms::owner_all);
  CHECK_THAT(in.text(), Contains("three") && Contains("four"));
}

TEST_CASE("a log of errors alone is made anew under its name before there is one") {
  FileLog in;
  in.options.log_level = "error";
  const auto log = in.open();
  std::filesystem::rename(in.options.log_file, in.directory.path() + "/old");
  reopen_log(*log);
  log->info("the log goes on here");
  REQUIRE(std::filesystem::exists(in.options.log_file));
  CHECK(std::filesystem::file_size(in.options.log_file) == 0);
}

TEST_CASE("lines name the node in a job") {
  const FileLog in;
  const auto log = in.open();
  name_node_in_log(*log, 3);
  log->warn("hm");
  CHECK_THAT(in.text(), Contains(" warning [node 3] hm\n"));
}

TEST_CASE("a log with a thread of its own has every line in order") {
  const FileLog in;
  {
    const auto log = in.open();
    log->info("one");
    start_log(*log);
    log->info("two");
    name_node_in_log(*log, 3);
    log->info("three");
  }
  REQUIRE(eventually([&] { return in.text().ends_with(" info [node 3] three\n"); }));
  const std::string text = in.text();
  CHECK(text.find(" info one\n") < text.find(" info two\n"));
  CHECK(text.find(" info two\n") < text.size());
}

TEST_CASE("the level is the one asked for") {
  FileLog in;
  in.options.log_level = "warning";
  const auto log = in.open();
  CHECK(log->level() == spdlog::level::warn);
}

TEST_CASE("a log that cannot be opened is named once, with what else may be done") {
  const TemporaryDirectory directory;
  MountOptions options;
  options.log_file = directory.make("folder");
  const auto log = make_logger(options);
  REQUIRE(!log);
  CHECK(log.error().message == "log file " + options.log_file +
                                   ": open: Is a directory; name another place with --log-file or "
                                   "--catalog-dir");
}

TEST_CASE("a pipe that nobody reads is no log") {
  const TemporaryDirectory directory;
  MountOptions options;
  options.log_file = directory.path() + "/pipe";
  REQUIRE(::mkfifo(options.log_file.c_str(), 0600) == 0);
  const auto log = make_logger(options);
  REQUIRE(!log);
  CHECK_THAT(log.error().message, Contains("No such device or address"));
}
