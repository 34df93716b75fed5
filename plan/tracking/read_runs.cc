#include "plan/tracking/read_runs.h"

namespace clairfs {
namespace {

// Bytes from where a run began: the most that the kernel reads ahead (1 MiB), behind as large a record.
constexpr uint64_t kMostAhead = 2 << 20;

// Runs remembered, one a thread: the workers of 64 ranks, twice over.
constexpr size_t kMostRuns = 4096;

}  // namespace

Access ReadRuns::note(ThreadId thread, FileId file, uint64_t offset, uint64_t length) {
  if (thread.value == 0) return Access::read;
  const MutexLock lock(mutex_);
  if (runs_.size() >= kMostRuns && !runs_.contains(thread.value)) runs_.clear();
  Run& run = runs_[thread.value];
  const bool goes_on = run.file == file && run.end > run.begin && run.end == offset;
  if (!goes_on) run = {file, offset, offset};
  run.end = offset + length;
  if (run.end - run.begin > kMostAhead) return Access::read_through;
  return goes_on ? Access::read_on : Access::read;
}

}  // namespace clairfs
