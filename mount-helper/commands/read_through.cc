#include "mount-helper/commands/read_through.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"

namespace clairfs {
namespace {

constexpr uint64_t kPieceBytes = 64ULL << 20;  // one large packed file must keep all threads busy
constexpr size_t kReadBytes = 4ULL << 20;      // a chunk at its default size
constexpr size_t kListedErrors = 5;            // the rest is usually more of the same
constexpr auto kTick = std::chrono::milliseconds(100);

// A range of a file. The directory is a number, since a tree of millions of files has few of them.
struct Piece {
  uint32_t directory = 0;
  std::string name;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// Self-synchronised: counters are atomic, the list of errors has its lock.
class WarmUpTally {
 public:
  void count_file() { ++files_; }
  void count_bytes(uint64_t bytes) { bytes_ += bytes; }
  void count_error(int code, const std::string& what) EXCLUDES(mutex_) {
    ++errors_;
    const MutexLock lock(mutex_);
    if (first_errors_.size() < kListedErrors) first_errors_.push_back(system_error(code, what).message);
  }
  TransferProgress done() const { return {files_, 0, bytes_, 0}; }
  WarmupOutcome outcome() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return {done(), errors_, first_errors_};
  }

 private:
  std::atomic<uint64_t> files_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> errors_ = 0;
  Mutex mutex_;  // leaf: nothing is locked under it
  std::vector<std::string> first_errors_ GUARDED_BY(mutex_);
};

// Lists what is to be read. One thread: listing a mount answers from the catalog.
class Lister {
 public:
  Lister(WarmUpTally& tally, const std::function<void(const TransferProgress&)>& on_progress)
      : tally_(tally), on_progress_(on_progress) {}

  void add(const std::string& path) {
    struct stat attributes {};
    if (::stat(path.c_str(), &attributes) != 0) return tally_.count_error(errno, path);
    if (S_ISREG(attributes.st_mode)) {
      const size_t slash = path.rfind('/');
      directories.push_back(path.substr(0, slash));
      add_file(path.substr(slash + 1), static_cast<uint64_t>(attributes.st_size));
      return;
    }
    directories.push_back(path);
    for (size_t next = directories.size() - 1; next < directories.size(); ++next) list(next);
  }

  std::vector<std::string> directories;
  std::vector<Piece> pieces;
  TransferProgress total;

 private:
  // The file is in the directory added last unless `directory` is given.
  void add_file(const std::string& name, uint64_t size) { add_file(name, size, directories.size() - 1); }
  void add_file(const std::string& name, uint64_t size, size_t directory) {
    ++total.total_files;
    total.total_bytes += size;
    uint64_t offset = 0;
    do {
      pieces.push_back(
          {static_cast<uint32_t>(directory), name, offset, std::min(kPieceBytes, size - offset)});
      offset += kPieceBytes;
    } while (offset < size);
  }

  void list(size_t number) {
    const std::string path = directories[number];
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path.c_str()), &::closedir);
    if (!stream) return tally_.count_error(errno, path);
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat attributes {};
      if (::fstatat(::dirfd(stream.get()), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW) != 0) {
        tally_.count_error(errno, fmt::format("{}/{}", path, name));
      } else if (S_ISDIR(attributes.st_mode)) {
        directories.push_back(fmt::format("{}/{}", path, name));
      } else if (S_ISREG(attributes.st_mode)) {
        add_file(name, static_cast<uint64_t>(attributes.st_size), number);
      }
    }
    if (errno != 0) tally_.count_error(errno, path);
    if (total.total_files > 0) on_progress_(total);  // all of nothing would be done
  }

  WarmUpTally& tally_;
  const std::function<void(const TransferProgress&)>& on_progress_;
};

void read_piece(const std::string& path, const Piece& piece, bool keep_page_cache, std::vector<char>& buffer,
                WarmUpTally& tally) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return tally.count_error(errno, path);
  for (uint64_t done = 0; done < piece.length;) {
    const size_t want = std::min<uint64_t>(buffer.size(), piece.length - done);
    const auto at = static_cast<off_t>(piece.offset + done);
    const ssize_t got = ::pread(file.get(), buffer.data(), want, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return tally.count_error(errno, path);
    if (got == 0) return tally.count_error(ESTALE, path + " ends before its size");
    done += static_cast<uint64_t>(got);
    tally.count_bytes(static_cast<uint64_t>(got));
    if (!keep_page_cache) ::posix_fadvise(file.get(), at, got, POSIX_FADV_DONTNEED);
  }
  if (piece.offset == 0) tally.count_file();  // its other pieces are counted by their bytes
  // A page that a read only touched in part stays behind above; the whole file is given back at its end.
  if (!keep_page_cache) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace

WarmupOutcome warm_up(const std::vector<std::string>& paths, const WarmupOptions& options,
                      const std::function<void(const TransferProgress&)>& on_progress) {
  WarmUpTally tally;
  Lister work(tally, on_progress);
  for (const std::string& path : paths) work.add(path);

  std::atomic<size_t> next = 0;
  std::atomic<unsigned> running = options.jobs;
  const auto read_pieces = [&] {
    std::vector<char> buffer(kReadBytes);
    for (size_t i = 0; (i = next++) < work.pieces.size();) {
      const Piece& piece = work.pieces[i];
      read_piece(work.directories[piece.directory] + "/" + piece.name, piece, options.keep_page_cache, buffer,
                 tally);
    }
    --running;
  };
  const auto report = [&] {
    TransferProgress progress = tally.done();
    progress.total_files = work.total.total_files;
    progress.total_bytes = work.total.total_bytes;
    on_progress(progress);
    return progress;
  };
  {
    std::vector<NamedThread> threads;
    for (unsigned i = 0; i < options.jobs; ++i) threads.emplace_back("warmup", read_pieces);
    while (running != 0) {
      std::this_thread::sleep_for(kTick);
      report();
    }
  }
  WarmupOutcome outcome = tally.outcome();
  outcome.done = report();
  return outcome;
}

void drop_pages(const std::vector<std::string>& paths) {
  WarmUpTally tally;
  const std::function<void(const TransferProgress&)> silent = [](const TransferProgress&) {};
  Lister work(tally, silent);
  for (const std::string& path : paths) work.add(path);
  for (const Piece& piece : work.pieces) {
    if (piece.offset != 0) continue;  // the first piece stands for its file
    const std::string path = work.directories[piece.directory] + "/" + piece.name;
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace clairfs
