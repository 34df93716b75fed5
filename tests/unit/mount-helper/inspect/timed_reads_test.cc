#include "mount-helper/inspect/timed_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

void make_file(const std::string& path, off_t bytes) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(file);
  REQUIRE(::ftruncate(file.get(), bytes) == 0);
}

}  // namespace

TEST_CASE("files are read to their ends, and those that cannot be are counted") {
  const TemporaryDirectory dir;
  make_file(dir.path() + "/a", 3'000'000);
  make_file(dir.path() + "/b", 0);
  const TimedReads reads = time_reads(dir.path(), {"a", "b", "missing"}, 2, std::chrono::minutes(1), false);
  CHECK(reads.files == 2);
  CHECK(reads.bytes == 3'000'000);
  CHECK(reads.errors == 1);
}

TEST_CASE("a file that takes hours is left when the time is over") {
  const TemporaryDirectory dir;
  make_file(dir.path() + "/records", off_t{1} << 42);
  TimedReads reads;
  // On a busy machine the time may be over before a thread has begun.
  for (auto time = std::chrono::milliseconds(20); reads.bytes == 0 && time < std::chrono::minutes(1);
       time *= 2)
    reads = time_reads(dir.path(), {"records"}, 1, time, false);
  CHECK(reads.files == 0);
  CHECK(reads.errors == 0);
  CHECK(reads.bytes > 0);
  CHECK(reads.bytes < uint64_t{1} << 42);
}
