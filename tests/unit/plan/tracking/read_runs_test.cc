#include "plan/tracking/read_runs.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr ThreadId kThread{7};
constexpr FileId kFile{1};
constexpr uint64_t kPage = 4096;

}  // namespace

TEST_CASE("a READ goes on where the last one of its thread in its file ended") {
  ReadRuns runs;
  CHECK(runs.note(kThread, kFile, 0, kPage) == Access::read);
  CHECK(runs.note(kThread, kFile, kPage, 2 * kPage) == Access::read_on);
  CHECK(runs.note(kThread, kFile, 3 * kPage, kPage) == Access::read_on);
  CHECK(runs.note(kThread, kFile, 3 * kPage, kPage) == Access::read);  // the same once more
  CHECK(runs.note(kThread, kFile, 9 * kPage, kPage) == Access::read);  // with a gap
  CHECK(runs.note(kThread, kFile, 8 * kPage, kPage) == Access::read);  // backwards
  CHECK(runs.note(kThread, FileId(2), 9 * kPage, kPage) == Access::read);
  CHECK(runs.note(kThread, FileId(2), 10 * kPage, kPage) == Access::read_on);
}

TEST_CASE("threads read in places of their own") {
  ReadRuns runs;
  CHECK(runs.note(ThreadId(1), kFile, 0, kPage) == Access::read);
  CHECK(runs.note(ThreadId(2), kFile, kPage, kPage) == Access::read);
  CHECK(runs.note(ThreadId(1), kFile, kPage, kPage) == Access::read_on);
  CHECK(runs.note(ThreadId(2), kFile, 2 * kPage, kPage) == Access::read_on);
  // Unknown threads have no place.
  CHECK(runs.note(ThreadId(0), kFile, 0, kPage) == Access::read);
  CHECK(runs.note(ThreadId(0), kFile, kPage, kPage) == Access::read);
}

TEST_CASE("who goes on for longer than any readahead goes through the file") {
  constexpr uint64_t kMost = 2 << 20;
  const uint64_t begin = GENERATE(0ULL, 123'000ULL * kPage);
  ReadRuns runs;
  CHECK(runs.note(kThread, kFile, begin, kPage) == Access::read);
  uint64_t at = begin + kPage;
  for (; at < begin + kMost; at += kPage) REQUIRE(runs.note(kThread, kFile, at, kPage) == Access::read_on);
  CHECK(runs.note(kThread, kFile, at, kPage) == Access::read_through);
  CHECK(runs.note(kThread, kFile, at + kPage, 1 << 20) == Access::read_through);
  CHECK(runs.note(kThread, kFile, 0, kPage) == Access::read);  // until it turns elsewhere
  CHECK(runs.note(kThread, kFile, kPage, kPage) == Access::read_on);
}
