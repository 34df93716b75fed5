#include "cache/tasks/give_way.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace clairfs {
namespace {

// Half a per cent of two cores.
constexpr int kRestsPerLoss = 100;

// A search is not put off for longer by one slice of the scheduler's, which is some milliseconds.
constexpr Duration kLongestRest = std::chrono::seconds(1);

constexpr Duration kAsked = std::chrono::milliseconds(20);

// Reading the times costs a microsecond.
constexpr Duration kWorkBetween = std::chrono::milliseconds(1);

Duration cpu_time_of_this_thread() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// For as long as the thread lives.
class OwnTimes {
 public:
  OwnTimes() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

  // The first number there, how long it ran, is that of the last tick.
  std::optional<ThreadTimes> read() const {
    std::array<char, 96> text;  // three numbers of 20 digits at most
    const ssize_t size = ::pread(file_.get(), text.data(), text.size(), 0);
    if (size <= 0) return std::nullopt;
    const char* const end = text.data() + size;
    const char* const space = std::find<const char*>(text.data(), end, ' ');
    int64_t waited = 0;
    if (space == end || std::from_chars(space + 1, end, waited).ec != std::errc()) return std::nullopt;
    return ThreadTimes{cpu_time_of_this_thread(), std::chrono::nanoseconds(waited)};
  }

 private:
  const Fd file_;
};

void rest(Duration time, const std::function<bool()>& stop) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (auto now = std::chrono::steady_clock::now(); now < end && !stop();
       now = std::chrono::steady_clock::now())
    std::this_thread::sleep_for(std::min<Duration>(end - now, kAsked));
}

}  // namespace

std::optional<ThreadTimes> times_of_this_thread() {
  thread_local const OwnTimes own;
  return own.read();
}

Duration rest_after(const ThreadTimes& since) {
  return std::min(kRestsPerLoss * std::min(since.ran, since.waited), kLongestRest);
}

std::function<bool()> giving_way(std::function<bool()> stop) {
  return [stop = std::move(stop)] {
    thread_local std::optional<ThreadTimes> last;
    if (last && cpu_time_of_this_thread() - last->ran < kWorkBetween) return stop();
    const std::optional<ThreadTimes> now = times_of_this_thread();
    if (last && now) rest(rest_after({now->ran - last->ran, now->waited - last->waited}), stop);
    last = times_of_this_thread();  // a thread that wakes waits on idle cores, too
    return stop();
  };
}

}  // namespace clairfs
