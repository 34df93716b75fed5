#include "plan/tracking/read_runs.h"

#include <algorithm>

namespace clairfs {
namespace {

// Bytes from where a run began: the most that the kernel reads ahead (1 MiB), behind as large a record.
constexpr uint64_t kMostAhead = 2 << 20;

// Bytes from the end of a run, on both sides: the kernel's requests for one read() come in any order, and
// what is in the page cache, as headers that were looked at before, is left out.
constexpr uint64_t kNear = 128 << 10;

// Runs remembered, one a thread: the workers of 64 ranks, twice over.
constexpr size_t kMostRuns = 4096;

}  // namespace

Access ReadRuns::note(ThreadId thread, FileId file, uint64_t offset, uint64_t length) {
  if (thread.value == 0) return Access::read;
  const MutexLock lock(mutex_);
  if (runs_.size() >= kMostRuns && !runs_.contains(thread.value)) runs_.clear();
  Run& run = runs_[thread.value];
  const bool same_run =
      run.file == file && run.bytes > 0 && offset + kNear >= run.end && offset <= run.end + kNear;
  const bool adjoins = same_run && offset == run.end;
  if (!same_run) run = {file, offset, offset, 0};
  run.end = std::max(run.end, offset + length);
  run.bytes += length;
  const uint64_t span = run.end - run.begin;
  if (span > kMostAhead && 4 * run.bytes >= 3 * span) return Access::read_through;
  return adjoins ? Access::read_on : Access::read;
}

}  // namespace clairfs
