#include "mount-helper/commands/read_through.h"

#include <filesystem>

#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

WarmupOutcome read_through(const std::vector<std::string>& paths, unsigned jobs = 3) {
  WarmupOptions options;
  options.jobs = jobs;
  return warm_up(paths, options, [](const TransferProgress&) {});
}

}  // namespace

TEST_CASE("every regular file of a tree is read once, and symlinks are not followed") {
  const TemporaryDirectory directory;
  directory.make("a/b");
  directory.make("empty");
  uint64_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    const size_t size = static_cast<size_t>(i) * 997;
    directory.write((i % 2 == 0 ? "a/b/" : "") + std::string("file ") + std::to_string(i),
                    std::string(size, 'x'));
    bytes += size;
  }
  std::filesystem::create_symlink(directory.path(), directory.path() + "/a/loop");
  std::filesystem::create_symlink("nowhere", directory.path() + "/dangling");

  const WarmupOutcome outcome = read_through({directory.path()});
  CHECK(outcome.done.files == 100);
  CHECK(outcome.done.total_files == 100);
  CHECK(outcome.done.bytes == bytes);
  CHECK(outcome.done.total_bytes == bytes);
  CHECK(outcome.errors == 0);
  CHECK(read_through({directory.path() + "/a", directory.path() + "/file 1"}).done.files == 51);
}

TEST_CASE("a large file is read in pieces and counted once") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("large", "");
  constexpr uint64_t kBytes = (200ULL << 20) + 1;  // sparse
  std::filesystem::resize_file(file, kBytes);
  const WarmupOutcome outcome = read_through({file});
  CHECK(outcome.done.files == 1);
  CHECK(outcome.done.bytes == kBytes);
  CHECK(outcome.errors == 0);
}

TEST_CASE("errors are counted and the first few told") {
  const TemporaryDirectory directory;
  directory.write("good", "data");
  std::vector<std::string> paths = {directory.path()};
  for (int i = 0; i < 9; ++i) paths.push_back(directory.path() + "/none" + std::to_string(i));
  const WarmupOutcome outcome = read_through(paths);
  CHECK(outcome.done.files == 1);
  CHECK(outcome.errors == 9);
  REQUIRE(outcome.first_errors.size() == 5);
  CHECK(outcome.first_errors[0] == directory.path() + "/none0: No such file or directory");
}

TEST_CASE("progress ends at the totals") {
  const TemporaryDirectory directory;
  directory.write("a", std::string(1000, 'x'));
  TransferProgress last;
  warm_up({directory.path()}, {}, [&](const TransferProgress& progress) { last = progress; });
  CHECK(last.files == 1);
  CHECK(last.bytes == 1000);
  CHECK(last.total_bytes == 1000);
}

TEST_CASE("nothing is told of a tree before a file of it is known") {
  const TemporaryDirectory directory;
  directory.make("folder");  // all that the first listing finds
  directory.write("folder/a", std::string(1000, 'x'));
  std::vector<TransferProgress> told;
  warm_up({directory.path()}, {}, [&](const TransferProgress& progress) { told.push_back(progress); });
  REQUIRE_FALSE(told.empty());
  CHECK(told.front().files == 0);
  CHECK(told.front().total_files == 1);
  CHECK(told.front().total_bytes == 1000);
}
