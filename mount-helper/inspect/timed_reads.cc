#include "mount-helper/inspect/timed_reads.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {
namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr size_t kMostEntries = 200'000;  // a second or two on a PFS
constexpr size_t kBufferBytes = 1 << 20;
constexpr uint32_t kSeed = 1;  // every run reads the same files

double seconds_between(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

struct WholeRead {
  enum class End { whole, cut_off, failed };
  End end = End::failed;
  uint64_t bytes = 0;
};

// Cut off where the deadline passes: one file of records may take hours.
WholeRead read_whole(const std::string& path, std::vector<char>& buffer, Time deadline) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  WholeRead read;
  if (!file) return read;
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0) return read;
    read.bytes += static_cast<uint64_t>(got);
    read.end = got == 0 ? WholeRead::End::whole : WholeRead::End::cut_off;
    if (got == 0 || std::chrono::steady_clock::now() > deadline) return read;
  }
}

void drop_pages_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

double quantile(std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

}  // namespace

std::vector<std::string> sample_files(const std::string& folder, size_t most) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code failure;
  size_t entries = 0;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, failure);
  for (; !failure && entry != fs::recursive_directory_iterator() && entries < kMostEntries;
       entry.increment(failure), ++entries) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown) && !entry->is_symlink(unknown))
      names.push_back(entry->path().string().substr(folder.size() + 1));
  }
  std::sort(names.begin(), names.end());
  std::mt19937 random(kSeed);
  std::shuffle(names.begin(), names.end(), random);
  if (names.size() > most) names.resize(most);
  return names;
}

TimedReads time_reads(const std::string& folder, const std::vector<std::string>& names, unsigned jobs,
                      std::chrono::milliseconds limit, bool drop_before) {
  TimedReads sum;
  Mutex mutex;
  std::vector<double> times;
  std::atomic<size_t> next{0};
  const Time start = std::chrono::steady_clock::now();
  const Time deadline = start + limit;
  const auto work = [&] {
    std::vector<char> buffer(kBufferBytes);
    for (size_t i = 0; (i = next++) < names.size();) {
      const std::string path = folder + "/" + names[i];
      if (drop_before) drop_pages_of(path);
      const Time begin = std::chrono::steady_clock::now();
      if (begin > deadline) return;
      const WholeRead read = read_whole(path, buffer, deadline);
      const double took = seconds_between(begin, std::chrono::steady_clock::now());
      MutexLock lock(mutex);
      sum.bytes += read.bytes;
      if (read.end == WholeRead::End::failed) ++sum.errors;
      if (read.end != WholeRead::End::whole) continue;
      ++sum.files;
      times.push_back(took);
    }
  };
  {
    std::vector<NamedThread> threads;
    for (unsigned i = 0; i < jobs; ++i) threads.emplace_back("bench", work);
  }
  sum.seconds = seconds_between(start, std::chrono::steady_clock::now());
  std::sort(times.begin(), times.end());
  sum.median_seconds = quantile(times, 0.5);
  sum.p99_seconds = quantile(times, 0.99);
  return sum;
}

}  // namespace clairfs
