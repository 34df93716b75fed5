// ProcessTree: which of the threads that read belong together.
//
// A program is a process with all of its threads, and with the processes that it forked and that run the same
// program still (PF_FORKNOEXEC): the workers of a DataLoader, also those of a fork server. Programs that a
// program started lie in it: ranks in torchrun, the `cat`s of xargs in xargs.
//
// Cost. A thread that is new, and each one every ten seconds, costs two to five reads in /proc of some ten
// microseconds each; it waits for its answer meanwhile, so that it is there. Else it is a look into a table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "plan/inference/watched/access_recorder.h"
#include "plan/tracking/rank_trackers.h"

namespace clairfs {

/// A program that runs. Numbers of processes are used again, so it also says since when.
struct Program {
  uint32_t pid = 0;      ///< 0: none that can be told
  uint64_t started = 0;  ///< in clock ticks

  bool operator==(const Program&) const = default;
};

/// The kernel's facts about a thread or process.
struct ProcessFacts {
  uint32_t process = 0;  ///< that the thread belongs to
  uint32_t parent = 0;   ///< of the process; 0: none, or outside of this process's namespace
  uint32_t session = 0;
  uint64_t started = 0;
  bool forked = false;  ///< it runs what its parent ran
};

/// Reads /proc/PID/stat, but for the process of a thread: that is taken to be the first number. Takes any
/// bytes. Nothing for one that has ended, also if its parent has not waited for it yet.
std::optional<ProcessFacts> parse_process_stat(std::string_view stat);

/// Of the thread or process of that number; nothing where it has ended, or is not to be seen.
std::optional<ProcessFacts> facts_of_process(uint32_t number);

/// Threads that were grouped.
struct Readers {
  Program program;                       ///< that all of them are in
  std::unordered_set<uint32_t> threads;  ///< empty: all
  size_t opens = 0;
};

/// Thread-safe: one lock, a leaf, never held while /proc is read. It is held for microseconds; by readers()
/// for milliseconds where thousands of threads have read.
class ProcessTree {
 public:
  using LookUp = std::function<std::optional<ProcessFacts>(uint32_t)>;

  /// Programs that are looked at besides all readers together.
  static constexpr size_t kMostReaders = 4;
  /// Threads and processes remembered, some 100 bytes each. Old ones are forgotten.
  static constexpr size_t kMost = 8192;

  explicit ProcessTree(LookUp look_up = facts_of_process) : look_up_(std::move(look_up)) {}

  /// Remembers the programs that a thread is in. Thread 0 cannot be told.
  void note(ThreadId thread, TimePoint now);
  /// The smallest program that has most (kMostly) of these threads, each as often as it is listed.
  Program program_of(std::span<const uint32_t> threads) const;
  bool is_in(ThreadId thread, const Program& program) const;
  bool is_alive(const Program& program) const;

  /// All readers together, and then the programs that opened most but not all and still read, the largest
  /// first: kMostReaders of those that opened `fewest` or more. Of programs that have the same opens the
  /// innermost counts.
  std::vector<Readers> readers(std::span<const SeenOpen> opens, size_t fewest) const;

  /// The reader of the plan that was found: is_reader() is asked of its threads. No program: all threads are.
  void follow(const Program& program, TimePoint now);
  /// Whether a thread that reads now is one of the reader that is followed. All threads are once that has
  /// ended.
  bool is_reader(ThreadId thread, TimePoint now);
  /// The reader that is followed has read in order.
  void note_in_order(TimePoint now) { in_order_ = now; }
  /// Whether a reader is followed that is not that program, has not ended and was in order lately.
  bool follows_another(const Program& program, TimePoint now) const;

 private:
  struct Known {
    uint32_t above = 0;      ///< the process of a thread, the parent of a process; 0: not known
    bool is_thread = false;  ///< not its process's first
    ProcessFacts facts;
    TimePoint looked_up{};
  };
  using Counts = std::unordered_map<uint32_t, size_t>;  // opens, by thread or by program

  bool is_known(uint32_t number, TimePoint now) const REQUIRES(mutex_);
  uint32_t program_number(uint32_t number) const REQUIRES(mutex_);
  uint32_t outer_program(uint32_t program) const REQUIRES(mutex_);
  bool lies_in(uint32_t thread, const Program& program) const REQUIRES(mutex_);
  Program named(uint32_t program) const REQUIRES(mutex_);
  uint32_t smallest(const Counts& counts, size_t needed) const REQUIRES(mutex_);
  Counts count(const Counts& by_thread) const REQUIRES(mutex_);
  std::vector<Readers> parts(const Counts& counts, size_t fewest, size_t most) const REQUIRES(mutex_);

  const LookUp look_up_;

  mutable Mutex mutex_;
  std::unordered_map<uint32_t, Known> known_ GUARDED_BY(mutex_);
  std::atomic<bool> follows_{false};  // followed_ is a program
  Program followed_ GUARDED_BY(mutex_);
  TimePoint checked_ GUARDED_BY(mutex_){};        // whether it is alive
  std::atomic<TimePoint> in_order_{TimePoint()};  // it was, the last time
};

}  // namespace clairfs
