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

TEST_CASE("who goes through a file leaves out what is cached, and its requests come out of turn") {
  constexpr uint64_t kRecord = 80'000 / kPage * kPage;
  ReadRuns runs;
  Access last = Access::read;
  const uint64_t header = GENERATE(kPage, 2 * kPage);  // was looked at before
  for (uint64_t at = 0; at < (4 << 20); at += kRecord) {
    const uint64_t half = (kRecord - header) / 2 / kPage * kPage;
    runs.note(kThread, kFile, at + header + half, kRecord - header - half);
    last = runs.note(kThread, kFile, at + header, half);
  }
  CHECK(last == Access::read_through);
}

TEST_CASE("who looks at the headers of small records does not go through the file") {
  const uint64_t record = GENERATE(2ULL, 3ULL, 5ULL, 25ULL) * kPage;
  ReadRuns runs;
  for (uint64_t at = 0; at < 16ULL << 20; at += record)
    REQUIRE(runs.note(kThread, kFile, at, kPage) == Access::read);
}
