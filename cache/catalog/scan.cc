// Scanning with several threads.
//
// Work comes in two kinds: list a directory, which cuts its names into batches, and stat a batch, which finds
// the subdirectories to list. A directory with a million files is so spread over all threads. Batches go
// first: a listing is begun only when no batch waits, so at most `threads` directories are being listed or
// have batches waiting and at most `threads` others have their last batches under way, and only those are
// open.
//
// A directory is complete when its listing and its batches are (Directory::parts falls to 0); whoever ends
// the last part sorts it and closes it. When nothing is left to do, the tree is numbered breadth first on the
// calling thread, from sorted directories, which makes the result independent of who did what when.
#include "cache/catalog/scan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <deque>
#include <forward_list>
#include <limits>
#include <list>
#include <optional>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cache/base/escaped.h"
#include "cache/base/mutex.h"
#include "cache/base/plural.h"
#include "cache/base/thread.h"
#include "cache/catalog/builder.h"
#include "cache/io/open_below.h"

namespace clairfs {
namespace {

// Names a batch: enough that the queue's lock is not felt, few enough that a directory of 4,000 files keeps
// 64 threads busy.
constexpr size_t kBatchNames = 64;
// What the kernel fills per call, as large as the biggest buffers that libcs use.
constexpr size_t kListingBytes = 64 << 10;
// Ids have 32 bits and each entry may bring two strings.
constexpr uint64_t kMostEntries = std::numeric_limits<int32_t>::max();
constexpr size_t kExamples = 3;

struct Directory;

struct Entry {
  SourceAttributes attributes;
  std::string_view name;  // in its batch, ended by NUL
  const std::string* target = nullptr;
  Directory* directory = nullptr;
};

// Bytes that a scan takes for an entry at its end: here, as a row with its chunks and its name's place in the
// builder, whose table of names is up to half empty, and the same in the image. An estimate: directories are
// let go of as they are numbered, while vectors are larger than what they hold.
constexpr uint64_t kEntryBytes = sizeof(Entry) +
                                 2 * (sizeof(catalog_image::Row) + sizeof(uint32_t) + sizeof(uint64_t)) +
                                 3 * sizeof(uint32_t);
constexpr uint64_t kNameCopies = 3;  // in its batch, in the builder, in the image

struct Batch {
  Directory* directory = nullptr;
  std::string names;  // each ended by NUL
  std::vector<Entry> entries;
  std::forward_list<std::string> targets;
};

struct Directory {
  Directory(Directory* parent_, std::string_view name_) : parent(parent_), name(name_) {}

  Directory* const parent;
  const std::string_view name;
  Fd fd;                            // while parts are left
  std::atomic<uint32_t> parts = 1;  // the listing and the batches not yet done
  std::list<Batch> batches;         // grows by the listing thread; elements keep their place
  std::vector<Entry> entries;       // sorted, once parts is 0
  std::atomic<bool> incomplete = false;
  bool vanished = false;
};

std::string path_of(const Directory* directory) {
  std::vector<std::string_view> names;
  for (; directory->parent != nullptr; directory = directory->parent) names.push_back(directory->name);
  std::string path;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!path.empty()) path += '/';
    path += *name;
  }
  return path;
}

// Gone, or replaced by something else, since its directory was listed.
bool means_vanished(int code) {
  return code == ENOENT || code == ESTALE || code == ENOTDIR || code == ELOOP;
}

// Not the source's fault, and would silently empty the catalog.
bool means_exhausted(int code) {
  return code == EMFILE || code == ENFILE || code == ENOMEM;
}

// The source's own answer to who may read what; anything else is a fault, which may pass.
bool means_forbidden(int code) {
  return code == EACCES || code == EPERM;
}

// A count with some examples, for one log line.
struct ScanIssues {
  uint64_t count = 0;
  std::vector<std::string> examples;
};

class Scanner {
 public:
  Scanner(std::string source, Fd root, const ScanOptions& options, Logger& log)
      : source_(std::move(source)), options_(options), log_(log), root_(std::move(root)) {}

  Result<std::shared_ptr<const Catalog>> run(const SourceAttributes& root, const ScanProgress& progress) {
    {
      MutexLock lock(mutex_);
      top_ = &directories_.emplace_back(nullptr, std::string_view());
      to_list_.push_back(top_);
    }
    if (progress) progress(0);
    {
      std::vector<NamedThread> threads;
      ScanPace pace(threads_within_limits(options_.threads));
      const auto staff = [&] {
        pace.observe(looked_at_.load(std::memory_order_relaxed), steady_now());
        while (threads.size() < pace.threads() && add_thread(threads, "catalog-scan", [this] { work(); })) {
        }
      };
      staff();
      report(staff, progress);
    }
    MutexLock lock(mutex_);
    if (failure_) return *failure_;
    tell("special files (sockets, pipes, devices) left out", special_);
    tell("entries that could not be read", unreadable_);
    return number(root);
  }

 private:
  bool finished() const REQUIRES(mutex_) {
    return busy_ == 0 && (failure_ || (to_list_.empty() && to_stat_.empty()));
  }

  void report(const std::function<void()>& staff, const ScanProgress& progress) {
    MutexLock lock(mutex_);
    while (!finished()) {
      done_.wait_for(lock, kProgressPeriod);
      if (finished()) break;
      lock.unlock();
      staff();
      if (progress) progress(found_.load(std::memory_order_relaxed));
      lock.lock();
    }
    lock.unlock();
    if (progress) progress(found_.load(std::memory_order_relaxed));
  }

  void work() {
    MutexLock lock(mutex_);
    while (!finished()) {
      if (failure_ || (to_list_.empty() && to_stat_.empty())) {
        changed_.wait(lock);
        continue;
      }
      Batch* batch = to_stat_.empty() ? nullptr : to_stat_.back();
      Directory* directory = batch != nullptr ? nullptr : to_list_.back();
      if (batch != nullptr) {
        to_stat_.pop_back();
      } else {
        to_list_.pop_back();
      }
      ++busy_;
      lock.unlock();
      if (batch != nullptr) {
        stat_batch(*batch);
      } else {
        list(*directory);
      }
      lock.lock();
      --busy_;
      if (!finished()) continue;
      changed_.notify_all();
      done_.notify_one();
    }
  }

  void list(Directory& directory) {
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    Result<Fd> opened = open_below(root_.get(), path_of(&directory), kFlags);
    if (!opened) {
      const int code = opened.error().code;
      if (means_vanished(code) && directory.parent != nullptr) {
        directory.vanished = true;
      } else {
        unreadable(directory, {}, code);
      }
      return part_done(directory);
    }
    directory.fd = std::move(*opened);
    if (const int code = read_names(directory); code != 0 && code != ENOENT) unreadable(directory, {}, code);
    part_done(directory);
  }

  // Cuts the listing into batches. An errno value when it ends early; what was read until then counts.
  int read_names(Directory& directory) {
    alignas(dirent64) std::array<char, kListingBytes> buffer;
    std::string names;
    std::vector<uint32_t> starts;
    for (;;) {
      const ssize_t bytes = ::getdents64(directory.fd.get(), buffer.data(), buffer.size());
      const int code = bytes < 0 ? errno : 0;
      for (ssize_t at = 0; at < bytes;) {
        const auto* entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
        at += entry->d_reclen;
        const std::string_view name = entry->d_name;
        if (name == "." || name == "..") continue;
        if (directory.parent == nullptr && name == options_.reserved) {
          log_.warn("catalog: {}/{} is left out: the mount has an entry of its own by that name",
                    escaped(source_), escaped(std::string(name)));
          continue;
        }
        starts.push_back(static_cast<uint32_t>(names.size()));
        names.append(name).push_back('\0');
        if (starts.size() == kBatchNames && !queue(directory, names, starts)) return 0;
      }
      if (bytes > 0) continue;
      if (!starts.empty()) queue(directory, names, starts);
      return code;
    }
  }

  // False if there is no memory for them, which ends the scan.
  bool queue(Directory& directory, std::string& names, std::vector<uint32_t>& starts) {
    if (!fits(starts.size(), names.size())) return false;
    Batch& batch = directory.batches.emplace_back();
    batch.directory = &directory;
    batch.names = names;
    batch.entries.resize(starts.size());
    for (size_t i = 0; i < starts.size(); ++i) batch.entries[i].name = batch.names.data() + starts[i];
    names.clear();
    starts.clear();
    directory.parts.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    to_stat_.push_back(&batch);
    changed_.notify_one();
    return true;
  }

  // Counts names that were listed.
  bool fits(uint64_t entries, uint64_t name_bytes) {
    const uint64_t bytes = entries * kEntryBytes + name_bytes * kNameCopies;
    const uint64_t all_entries = listed_.fetch_add(entries) + entries;
    const uint64_t all_bytes = needed_.fetch_add(bytes) + bytes;
    if (all_bytes <= options_.most_memory) return true;
    const std::string what =
        fmt::format("the catalog of {} ({} so far, about {} bytes each)", escaped(source_),
                    pluralize(all_entries, "entry", "entries"), all_bytes / all_entries);
    fail(no_memory_for_catalog(what, all_bytes, options_.most_memory));
    return false;
  }

  void stat_batch(Batch& batch) {
    std::vector<Entry*> subdirectories;
    for (Entry& entry : batch.entries) {
      if (!stat_entry(batch, entry)) {
        entry.name = {};  // left out
      } else if (S_ISDIR(entry.attributes.mode)) {
        subdirectories.push_back(&entry);
      }
    }
    std::erase_if(batch.entries, [&](const Entry& entry) { return entry.name.empty(); });
    const uint64_t total = found_.fetch_add(batch.entries.size()) + batch.entries.size();
    if (total > kMostEntries)
      fail(Error{EOVERFLOW, fmt::format("{} has more than {} entries", source_, kMostEntries)});
    queue_subdirectories(batch);
    part_done(*batch.directory);
  }

  void queue_subdirectories(Batch& batch) {
    if (std::none_of(batch.entries.begin(), batch.entries.end(),
                     [](const Entry& entry) { return S_ISDIR(entry.attributes.mode); })) {
      return;
    }
    MutexLock lock(mutex_);
    for (Entry& entry : batch.entries) {
      if (!S_ISDIR(entry.attributes.mode)) continue;
      entry.directory = &directories_.emplace_back(batch.directory, entry.name);
      to_list_.push_back(entry.directory);
    }
    changed_.notify_all();
  }

  // False: to be left out.
  bool stat_entry(Batch& batch, Entry& entry) {
    looked_at_.fetch_add(1, std::memory_order_relaxed);
    const int fd = batch.directory->fd.get();
    struct stat found = {};
    if (::fstatat(fd, entry.name.data(), &found, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
      if (!means_vanished(errno)) unreadable(*batch.directory, entry.name, errno);
      return false;
    }
    entry.attributes = source_attributes(found);
    if (S_ISDIR(found.st_mode) || S_ISREG(found.st_mode)) return true;
    if (!S_ISLNK(found.st_mode)) {
      note(&Scanner::special_, *batch.directory, entry.name, {});
      return false;
    }
    std::array<char, PATH_MAX> target;
    const ssize_t length = ::readlinkat(fd, entry.name.data(), target.data(), target.size());
    if (length <= 0) {
      // EINVAL: replaced by something else meanwhile.
      const int code = length == 0 ? EIO : errno;
      if (!means_vanished(code) && code != EINVAL) unreadable(*batch.directory, entry.name, code);
      return false;
    }
    entry.target = &batch.targets.emplace_front(target.data(), static_cast<size_t>(length));
    return true;
  }

  void part_done(Directory& directory) {
    if (directory.parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    directory.fd.reset();
    for (Batch& batch : directory.batches) {
      directory.entries.insert(directory.entries.end(), batch.entries.begin(), batch.entries.end());
      batch.entries = {};
    }
    std::sort(directory.entries.begin(), directory.entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    // Some filesystems list an entry twice when the directory changes meanwhile.
    const auto twice = std::unique(directory.entries.begin(), directory.entries.end(),
                                   [](const Entry& a, const Entry& b) { return a.name == b.name; });
    directory.entries.erase(twice, directory.entries.end());
  }

  void unreadable(Directory& directory, std::string_view name, int code) {
    if (means_exhausted(code)) {
      return fail(system_error(
          code, fmt::format("scan {} (raise `ulimit -n` or lower the scan's threads)", source_)));
    }
    if (!means_forbidden(code)) {
      // Left out, it would be no file to its readers, and every sample behind it would get another number.
      return fail(
          system_error(code, fmt::format("scan {}: {} cannot be read (mount again when the source is well)",
                                         escaped(source_), shown_path(directory, name))));
    }
    directory.incomplete.store(true, std::memory_order_relaxed);
    note(&Scanner::unreadable_, directory, name, std::strerror(code));
  }

  static std::string shown_path(const Directory& directory, std::string_view name) {
    std::string path = path_of(&directory);
    if (!name.empty() && !path.empty()) path += '/';
    path += name;
    return path.empty() ? "." : escaped(path);
  }

  void note(ScanIssues Scanner::*which, const Directory& directory, std::string_view name,
            std::string_view why) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ScanIssues& issues = this->*which;
    ++issues.count;
    if (issues.examples.size() == kExamples) return;
    std::string example = shown_path(directory, name);
    if (!why.empty()) example += fmt::format(" ({})", why);
    issues.examples.push_back(std::move(example));
  }

  void fail(Error error) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!failure_) failure_ = std::move(error);
    changed_.notify_all();
  }

  void tell(const char* what, const ScanIssues& issues) const {
    if (issues.count == 0) return;
    log_.warn("catalog: {} {} in {}, for example {}", issues.count, what, escaped(source_),
              fmt::join(issues.examples, ", "));
  }

  Result<std::shared_ptr<const Catalog>> number(const SourceAttributes& root) REQUIRES(mutex_) {
    CatalogBuilder builder(source_, options_.chunk_size, found_.load() + 1,
                           RecordChunks(options_.record_chunks));
    std::deque<std::pair<Directory*, FileId>> level = {{top_, builder.add(FileId(0), {}, root)}};
    if (top_->incomplete) builder.set_incomplete();
    for (; !level.empty(); level.pop_front()) {
      const auto [directory, id] = level.front();
      for (const Entry& entry : directory->entries) {
        if (entry.directory != nullptr && entry.directory->vanished) continue;
        const FileId added = builder.add(id, entry.name, entry.attributes);
        if (entry.target != nullptr) builder.set_target(*entry.target);
        if (entry.directory == nullptr) continue;
        if (entry.directory->incomplete) builder.set_incomplete();
        level.emplace_back(entry.directory, added);
      }
      directory->entries = {};  // their names stay in the batches, which subdirectories refer to
    }
    return builder.finish(special_.count, unreadable_.count);
  }

  // Constant after construction.
  const std::string source_;
  const ScanOptions options_;
  Logger& log_;
  const Fd root_;

  // The queue. Taken with nothing else held; held for no system call.
  Mutex mutex_;
  CondVar changed_;                                       // more to do, or nothing left: workers wait here
  CondVar done_;                                          // nothing left: the calling thread waits here
  std::deque<Directory> directories_ GUARDED_BY(mutex_);  // owns; elements keep their place
  Directory* top_ GUARDED_BY(mutex_) = nullptr;
  std::vector<Directory*> to_list_ GUARDED_BY(mutex_);
  std::vector<Batch*> to_stat_ GUARDED_BY(mutex_);
  unsigned busy_ GUARDED_BY(mutex_) = 0;
  ScanIssues special_ GUARDED_BY(mutex_);
  ScanIssues unreadable_ GUARDED_BY(mutex_);
  std::optional<Error> failure_ GUARDED_BY(mutex_);

  std::atomic<uint64_t> listed_ = 0;
  std::atomic<uint64_t> needed_ = 0;  // bytes, for those that were listed
  std::atomic<uint64_t> found_ = 0;
  std::atomic<uint64_t> looked_at_ = 0;  // for the pace: one by one, where found_ counts whole batches
};

}  // namespace

ScanThreads threads_within_limits(ScanThreads wanted) {
  rlimit limit = {};
  unsigned most = UINT_MAX;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    most = static_cast<unsigned>(std::clamp<rlim_t>(limit.rlim_cur / 8, 1, UINT_MAX));
  }
  return {.first = std::clamp(wanted.first, 1U, most), .most = std::clamp(wanted.most, 1U, most)};
}

Result<std::shared_ptr<const Catalog>> scan_catalog(const std::string& source, const ScanOptions& options,
                                                    Logger& log, const ScanProgress& progress) {
  if (options.chunk_size == 0) return Error{EINVAL, "chunk size 0: choose at least 1 byte"};
  Fd root(::open(source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat attributes = {};
  if (!root || ::fstat(root.get(), &attributes) != 0) {
    return system_error(errno, "read source directory " + escaped(source));
  }
  std::array<char, kListingBytes>
      probe;  // on some network filesystems only listing shows that it is forbidden
  if (::getdents64(root.get(), probe.data(), probe.size()) < 0) {
    return system_error(errno, "list source directory " + escaped(source));
  }
  return Scanner(source, std::move(root), options, log).run(source_attributes(attributes), progress);
}

}  // namespace clairfs
