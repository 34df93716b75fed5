#include "cache/source/pfs_source.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "cache/base/printable.h"
#include "cache/io/open_below.h"

namespace clairfs {
namespace {

// Large files are read chunk by chunk: opening them once for all chunks spares the metadata server. Few are
// read at a time, and a low descriptor limit (64) must still leave room for everything else.
constexpr size_t kOpenFiles = 16;

// Operations that waiting readers may start above the limit: a limit filled by prefetches must not delay
// them.
constexpr unsigned kReaderHeadroom = 4;

// Stale files named in the log; after that only counted.
constexpr size_t kReported = 1000;

// Operations after which one more at a time is tried, once descriptors were short: what took them may have
// gone. An attempt in vain costs one failed open.
constexpr unsigned kTryMoreAfter = 64;

bool lacks_descriptors(const Error& error) {
  return error.code == EMFILE || error.code == ENFILE;
}

}  // namespace

PfsSource::PfsSource(const Catalog& catalog, Fd root, IoBackend& io, const PfsOptions& options,
                     const Clock& clock, Metrics& metrics, Logger& log, std::function<void(FileId)> on_stale)
    : catalog_(catalog),
      root_(std::move(root)),
      io_(io),
      clock_(clock),
      metrics_(metrics),
      log_(log),
      on_stale_(std::move(on_stale)),
      options_(options),
      limit_(options.initial_concurrency, options.least_concurrency, options.most_concurrency),
      thread_("pfs-watch", [this] { watch(); }) {
  metrics_.pfs_concurrency.set(limit_.value());
}

PfsSource::~PfsSource() {
  stop();
  thread_.join();
}

void PfsSource::start(FetchRequest request) {
  std::optional<FetchRequest> refused;  // answered without the lock
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      refused = std::move(request);
    } else {
      enqueue(arrivals_++, std::move(request));
    }
  }
  if (refused) {
    refused->done(Error{ECANCELED, "the mount is being shut down"});
  } else {
    pump();
  }
}

// The demand is read under the lock: whoever raises it later finds the request in the queue.
void PfsSource::enqueue(uint64_t arrival, FetchRequest request) {
  const Key key{request.demand->now(), arrival};
  queued_[request.demand.get()] = key;
  queue_.emplace(key, std::move(request));
}

void PfsSource::demand_changed(const Demand& demand) {
  {
    MutexLock lock(mutex_);
    const auto found = queued_.find(&demand);
    if (found == queued_.end()) return;
    auto node = queue_.extract(found->second);
    node.key().first = found->second.first = demand.now();
    queue_.insert(std::move(node));
  }
  pump();
}

void PfsSource::stop() {
  std::map<Key, FetchRequest> cancelled;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    cancelled.swap(queue_);
    queued_.clear();
  }
  wake_.notify_one();
  for (auto& [key, request] : cancelled) request.done(Error{ECANCELED, "the mount is being shut down"});
}

bool PfsSource::may_start(const Key& next, TimePoint now) const {
  const bool reader = next.first.kind == Urgency::Kind::reader;
  // Prefetches that all hang leave places of the backend to readers.
  const unsigned kept = std::min(kReaderHeadroom, options_.most_concurrency / 4);
  const unsigned most = options_.most_concurrency - (reader ? 0 : kept);
  if (in_flight_.size() >= std::min(most, descriptors_)) return false;
  const unsigned limit = limit_.value() + (reader ? kReaderHeadroom : 0);
  return in_flight_.size() < limit || in_flight_.size() - stuck(now) < limit;
}

unsigned PfsSource::stuck(TimePoint now) const {
  unsigned count = 0;
  for (const auto& [arrival, until] : in_flight_) count += now >= until ? 1 : 0;
  return count;
}

// Where all operations hang nothing else comes by to notice that they do.
void PfsSource::watch() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (!watching_) {
      wake_.wait(lock);
      continue;
    }
    wake_.wait_for(lock, options_.stuck / 4);
    watching_ = !queue_.empty();
    lock.unlock();
    pump();
    lock.lock();
  }
}

void PfsSource::pump() {
  for (;;) {
    std::optional<FetchRequest> request;
    uint64_t arrival = 0;
    const TimePoint now = clock_.now();
    {
      MutexLock lock(mutex_);
      if (queue_.empty()) return;
      if (!may_start(queue_.begin()->first, now)) {
        if (!std::exchange(watching_, true)) wake_.notify_one();
        return;
      }
      auto node = queue_.extract(queue_.begin());
      arrival = node.key().second;
      request = std::move(node.mapped());
      queued_.erase(request->demand.get());
      in_flight_[arrival] = now + options_.stuck + std::chrono::microseconds(request->length);
    }
    metrics_.pfs_in_flight.add(1);
    submit(arrival, std::move(*request), now);
  }
}

void PfsSource::submit(uint64_t arrival, FetchRequest request, TimePoint now) {
  const bool large = catalog_.chunks(request.file).count > 1;
  SharedFd kept = large ? kept_open(request.file) : nullptr;
  FileRead read;
  read.directory_fd = root_.get();
  read.path = catalog_.path(request.file);
  if (!kept && read.path.size() >= PATH_MAX) kept = open_deep(read.path);
  read.offset = request.offset;
  read.memory = request.memory;
  read.open_fd = kept ? kept->get() : -1;
  read.keep_open = large && !kept;
  if (!kept) metrics_.pfs_opens.add();
  metrics_.pfs_reads.add();
  auto shared = std::make_shared<FetchRequest>(std::move(request));
  read.done = [this, arrival, shared, now, kept](Result<FileRead::Outcome> outcome) {
    finish(arrival, *shared, now, kept, std::move(outcome));
  };
  io_.submit(std::move(read));
}

// Without a descriptor for it a fetch waits until another one has given up its own. False if there is none
// that will: then the fetch has failed.
bool PfsSource::put_back(uint64_t arrival, FetchRequest& request, const Error& error) {
  std::list<std::pair<FileId, SharedFd>> closed;  // outside the lock, and before the next attempt
  bool first = false;
  unsigned others = 0;
  {
    MutexLock lock(mutex_);
    others = static_cast<unsigned>(in_flight_.size()) - 1;
    if (stopped_ || (others == 0 && open_files_.empty())) return false;
    closed.swap(open_files_);
    in_flight_.erase(arrival);
    first = descriptors_ == UINT_MAX;
    descriptors_ = std::max(1U, others);
    since_short_ = 0;
    enqueue(arrival, std::move(request));
  }
  metrics_.pfs_in_flight.add(-1);
  if (first)
    log_.warn("{}: the source is read by {} operations at a time; a higher limit (ulimit -n) helps",
              printable(error.message), std::max(1U, others));
  closed.clear();
  pump();
  return true;
}

void PfsSource::finish(uint64_t arrival, FetchRequest& request, TimePoint started, const SharedFd& kept,
                       Result<FileRead::Outcome> outcome) {
  if (!outcome && lacks_descriptors(outcome.error()) && put_back(arrival, request, outcome.error())) return;
  const TimePoint now = clock_.now();
  metrics_.pfs_latency.record(now - started);
  metrics_.pfs_in_flight.add(-1);
  if (outcome) metrics_.pfs_bytes.add(outcome->bytes);
  if (outcome && outcome->fd && !kept) keep_open(request.file, std::move(outcome->fd));
  const Status status = judge(request, outcome);
  {
    MutexLock lock(mutex_);
    in_flight_.erase(arrival);
    if (descriptors_ != UINT_MAX && ++since_short_ % kTryMoreAfter == 0) ++descriptors_;
    limit_.completed(outcome ? outcome->bytes : 0, !queue_.empty(), now);
    metrics_.pfs_concurrency.set(limit_.value());
  }
  pump();
  if (status) {
    request.done(Origin::pfs);
  } else {
    request.done(status.error());
  }
}

Status PfsSource::judge(const FetchRequest& request, const Result<FileRead::Outcome>& outcome) {
  if (outcome) {
    if (outcome->stamp != catalog_.stamp(request.file)) return stale(request.file, "size or mtime differ");
    if (outcome->bytes != request.length) return stale(request.file, "it ended early");
    if (request.length == 0 && outcome->ctime_ns != catalog_.source_state(request.file).ctime_ns) {
      return Error{kOtherCtime, printable(catalog_.path(request.file)) + " has another ctime"};
    }
    return {};
  }
  switch (outcome.error().code) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EISDIR:
    case ESTALE:
    case ENXIO:         // a socket or a device has taken its place
    case ESPIPE:        // a pipe has
    case ENAMETOOLONG:  // see open_deep()
      return stale(request.file, outcome.error().message);
    default:
      break;
  }
  metrics_.pfs_errors.add();
  log_.error("read from the source failed: {}", printable(outcome.error().message));
  return outcome.error();
}

Status PfsSource::stale(FileId file, const std::string& why) {
  metrics_.pfs_stale_files.add();
  const Error error{ESTALE,
                    fmt::format("{} changed on the source after it was scanned ({}); remount to see the new "
                                "version",
                                printable(catalog_.path(file)), printable(why))};
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (reported_.size() < kReported) first = reported_.insert(file).second;
  }
  if (first) {
    log_.error("{}", error.message);
    on_stale_(file);
  }
  return error;
}

// A path too long for one system call is opened in steps, here and now: such paths are too rare for a way of
// their own through the io backend. Where it fails the backend is given the path, and fails.
PfsSource::SharedFd PfsSource::open_deep(const std::string& path) {
  auto file = open_below(root_.get(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file) return nullptr;
  metrics_.pfs_opens.add();
  return std::make_shared<Fd>(std::move(*file));
}

PfsSource::SharedFd PfsSource::kept_open(FileId file) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(open_files_.begin(), open_files_.end(),
                                  [&](const auto& entry) { return entry.first == file; });
  if (found == open_files_.end()) return nullptr;
  open_files_.splice(open_files_.begin(), open_files_, found);
  return found->second;
}

void PfsSource::keep_open(FileId file, Fd fd) {
  std::list<std::pair<FileId, SharedFd>> closed;  // closing may take long: outside the lock
  MutexLock lock(mutex_);
  open_files_.emplace_front(file, std::make_shared<Fd>(std::move(fd)));
  if (open_files_.size() > kOpenFiles)
    closed.splice(closed.begin(), open_files_, std::prev(open_files_.end()));
  lock.unlock();
  closed.clear();
  lock.lock();
}

}  // namespace clairfs
