// GiveWay: keeps long computing from costing others the processor where SCHED_IDLE does not.
//
// A SCHED_IDLE thread yields to its own scheduling group only. Each session is a group where the kernel makes
// them (sched_autogroup, on by default), and so is each cgroup with a cpu controller: beside a training in
// another one such a thread takes as much of a core as any other. What it takes there shows as its own
// waiting: who runs while others want the core has to wait in turn.
//
// So a thread that computes asks after every millisecond of work how long it waited meanwhile, and rests a
// hundred times as long as it ran against others. A core that others want all the time gives it 1 %; an idle
// one all of itself.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "cache/base/clock.h"

namespace clairfs {

/// What the kernel has counted of a thread.
struct ThreadTimes {
  Duration ran{0};
  Duration waited{0};  ///< for a processor
};

/// Of the calling thread, from /proc/thread-self/schedstat; nothing where the kernel does not count.
std::optional<ThreadTimes> times_of_this_thread();

/// How long a thread rests that ran and waited so long.
Duration rest_after(const ThreadTimes& since);

/// Asks `stop` as that is asked, and lets the calling thread rest before it answers, if others have waited
/// for its processor. Asked by any number of threads, each for itself; while one rests `stop` is asked every
/// 20 ms.
std::function<bool()> giving_way(std::function<bool()> stop);

}  // namespace clairfs
