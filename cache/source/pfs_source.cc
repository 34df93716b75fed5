#include "cache/source/pfs_source.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"
#include "cache/io/local_files.h"
#include "cache/io/open_below.h"

namespace clairfs {
namespace {

// Operations that waiting readers may start above the limit: a limit filled by prefetches must not delay
// them.
constexpr unsigned kReaderHeadroom = 4;

// Operations of neighbours with more bytes are large. In a model anything from 256 to 640 KiB does as well.
constexpr uint64_t kLarge = FetchQueue::kMostBytes / 2;

// gather() holds no longer than this: a source need not be idle for longer than a disk seeks, which is what
// requests are kept for. No thread wakes up for its end; the next request or answer finds it, or watch().
constexpr auto kMostGathering = std::chrono::milliseconds(5);

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
      local_(is_on_local_filesystem(root_.get())),
      io_(io),
      clock_(clock),
      metrics_(metrics),
      log_(log),
      on_stale_(std::move(on_stale)),
      options_(options),
      limit_(options.initial_concurrency, options.least_concurrency, options.most_concurrency),
      fill_limit_(options.most_concurrency),
      thread_("pfs-watch", [this] { watch(); }) {
  metrics_.pfs_concurrency.set(limit_.value());
}

PfsSource::~PfsSource() {
  stop();
  thread_.join();
}

void PfsSource::start(FetchRequest request) {
  const bool whole = request.length >= catalog_.stamp(request.file).size;
  const bool alone = whole || request.length == 0 || !options_.merge;
  const bool waits = request.with_next && !alone;
  std::optional<FetchRequest> refused;  // answered without the lock
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      refused = std::move(request);
    } else {
      queue_.add({arrivals_++, std::move(request), alone});
    }
  }
  if (refused) {
    refused->done(Error{ECANCELED, "the mount is being shut down"});
  } else if (!waits) {
    dispatch();
  }
}

void PfsSource::gather() {
  const TimePoint until = clock_.now() + kMostGathering;
  MutexLock lock(mutex_);
  gathers_until_ = until;
}

void PfsSource::gathered() {
  {
    MutexLock lock(mutex_);
    gathers_until_ = {};
  }
  dispatch();
}

void PfsSource::demand_changed(const Demand& demand) {
  {
    MutexLock lock(mutex_);
    queue_.demand_changed(demand);
  }
  dispatch();
}

void PfsSource::stop() {
  std::vector<FetchQueue::Waiting> cancelled;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    cancelled = queue_.take_all();
  }
  wake_.notify_one();
  for (const auto& fetch : cancelled) fetch.request.done(Error{ECANCELED, "the mount is being shut down"});
}

bool PfsSource::may_start(const Priority& next, TimePoint now) const {
  if (now < gathers_until_ && queue_.first_may_wait()) return false;
  const bool reader = next.is_demand();
  // Prefetches that all hang leave places of the backend to readers.
  const unsigned kept = std::min(kReaderHeadroom, options_.most_concurrency / 4);
  const unsigned most = options_.most_concurrency - (reader ? 0 : kept);
  if (in_flight_.size() >= std::min(most, descriptors_)) return false;
  if (next.is_background() && in_flight_.size() - stuck(now) >= fill_limit_.value()) return false;
  return places_taken(now) < limit_.value() + (reader ? kReaderHeadroom : 0);
}

// Those of operations that hang are free again.
unsigned PfsSource::places_taken(TimePoint now) const {
  unsigned places = 0;
  for (const auto& [arrival, operation] : in_flight_)
    places += now >= operation.hangs ? 0U : operation.places;
  return places;
}

unsigned PfsSource::stuck(TimePoint now) const {
  unsigned count = 0;
  for (const auto& [arrival, operation] : in_flight_) count += now >= operation.hangs ? 1 : 0;
  return count;
}

PfsTroubles PfsSource::troubles() {
  const TimePoint now = clock_.now();
  MutexLock lock(mutex_);
  PfsTroubles troubles = troubles_;
  metrics_.pfs_silent.set(stuck(now));
  std::optional<InFlight> first;
  for (const auto& [arrival, operation] : in_flight_) {
    if (now >= operation.hangs && (!first || operation.started < first->started)) first = operation;
  }
  if (first)
    troubles.silent =
        fmt::format("{}, for {}", escaped(catalog_.path(first->file)), format_duration(now - first->started));
  return troubles;
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
    // Those that hang give up no descriptor, but others may have. An attempt in vain costs a failed open.
    const auto under_way = static_cast<unsigned>(in_flight_.size());
    if (descriptors_ <= under_way && stuck(clock_.now()) == under_way) descriptors_ = under_way + 1;
    watching_ = !queue_.empty();
    lock.unlock();
    dispatch();
    lock.lock();
  }
}

void PfsSource::dispatch() {
  for (;;) {
    const TimePoint now = clock_.now();
    OperationPtr operation;
    {
      MutexLock lock(mutex_);
      if (queue_.empty()) return;
      if (!may_start(queue_.first(), now)) {
        if (!std::exchange(watching_, true)) wake_.notify_one();
        return;
      }
      operation = begin_next(now);
    }
    metrics_.pfs_in_flight.add(1);
    submit(operation);
  }
}

PfsSource::OperationPtr PfsSource::begin_next(TimePoint now) {
  auto operation = std::make_shared<Operation>();
  operation->parts = queue_.take_first(cost_.worth_taking_along());
  for (const auto& part : operation->parts) operation->bytes += part.request.length;
  const bool large = operation->parts.size() > 1 && operation->bytes > kLarge;
  operation->places = large && limit_.value() >= 4 ? 2 : 1;  // two may always be under way
  operation->started = now;
  in_flight_[operation->id()] = {now, now + options_.stuck + std::chrono::microseconds(operation->bytes),
                                 operation->file(), operation->places};
  return operation;
}

void PfsSource::submit(const OperationPtr& operation) {
  const FileId file = operation->file();
  const bool large = catalog_.chunks(file).count > 1;
  if (large) operation->kept = kept_open(file);
  operation->reused = operation->kept != nullptr;
  FileRead read;
  read.directory_fd = root_.get();
  read.path = catalog_.path(file);
  if (!operation->kept && read.path.size() >= PATH_MAX) {
    auto opened = open_deep(read.path);
    if (opened) {
      operation->kept = std::move(*opened);
    } else {
      operation->not_opened = opened.error();
    }
  }
  read.offset = operation->parts.front().request.offset;
  for (const auto& part : operation->parts)
    read.memory.insert(read.memory.end(), part.request.memory.begin(), part.request.memory.end());
  read.open_fd = operation->kept ? operation->kept->fd.get() : -1;
  read.keep_open = large && !operation->kept;
  read.local = local_ && !operation->kept;  // a file that is open may be on another filesystem
  if (!operation->kept) metrics_.pfs_opens.add();
  metrics_.pfs_reads.add();
  read.done = [this, operation](Result<FileRead::Outcome> outcome) {
    if (!outcome && operation->not_opened) outcome = *operation->not_opened;
    finish(*operation, std::move(outcome));
  };
  io_.submit(std::move(read));
}

// Without a descriptor for it a read waits until another one has given up its own. False if there is none
// that will: then it has failed.
bool PfsSource::put_back(Operation& operation, const Error& error) {
  std::list<std::pair<FileId, SharedFd>> closed;  // outside the lock, and before the next attempt
  bool first = false;
  unsigned others = 0;
  {
    MutexLock lock(mutex_);
    others = static_cast<unsigned>(in_flight_.size()) - 1;
    if (stopped_ || (others == 0 && open_files_.empty())) return false;
    closed.swap(open_files_);
    in_flight_.erase(operation.id());
    first = descriptors_ == UINT_MAX;
    descriptors_ = std::max(1U, others);
    since_short_ = 0;
    for (auto& part : operation.parts) queue_.add(std::move(part));
  }
  metrics_.pfs_in_flight.add(-1);
  if (first)
    log_.warn("{}: the source is read by {} operations at a time; a higher limit (ulimit -n) helps",
              escaped(error.message), std::max(1U, others));
  for (const auto& entry : closed) entry.second->at_once = true;
  closed.clear();
  dispatch();
  return true;
}

// Which of them it was that could not be read is not known, or not whether it was but the descriptor.
void PfsSource::repeat_singly(Operation& operation) {
  for (auto& part : operation.parts) {
    part.alone = true;
    part.again = part.again || operation.reused;
    queue_.add(std::move(part));
  }
  operation.parts.clear();
}

void PfsSource::finish(Operation& operation, Result<FileRead::Outcome> outcome) {
  if (!outcome && lacks_descriptors(outcome.error()) && put_back(operation, outcome.error())) return;
  const TimePoint now = clock_.now();
  const Duration took = now - operation.started;
  const auto places = static_cast<Duration::rep>(operation.places);
  const auto fetches = static_cast<Duration::rep>(operation.parts.size());
  metrics_.pfs_latency.record(took);
  metrics_.pfs_in_flight.add(-1);
  if (outcome) metrics_.pfs_bytes.add(outcome->bytes);
  if (outcome && outcome->fd && !operation.kept) keep_open(operation.file(), std::move(outcome->fd));
  if (!outcome && operation.reused) forget_open(operation.kept);
  {
    MutexLock lock(mutex_);
    in_flight_.erase(operation.id());
    if (outcome) cost_.ended(operation.bytes, now, !queue_.empty() || in_flight_.size() > 1);
    if (!outcome && !stopped_ && is_worth_repeating(operation, took)) repeat_singly(operation);
    if (descriptors_ != UINT_MAX && ++since_short_ % kTryMoreAfter == 0) ++descriptors_;
    const bool gathering = now < gathers_until_;                    // what waits need not wait for a place
    const bool fills_yield = fill_limit_.value() < limit_.value();  // nor need fills then
    const bool waiting = !queue_.empty() && !(queue_.first().is_background() && fills_yield);
    limit_.completed(took * places / fetches, outcome && waiting && !gathering);
    if (outcome && operation.bytes > 0) fill_limit_.completed(operation.bytes, took, now);
    metrics_.pfs_concurrency.set(limit_.value());
  }
  dispatch();
  answer(operation, outcome);
}

// A server that restarted may know a descriptor no more, and the file all the same. Who has waited for an
// error for long need not wait for another one.
bool PfsSource::is_worth_repeating(const Operation& operation, Duration took) const {
  if (operation.parts.size() > 1) return true;
  return operation.reused && !operation.parts.front().again && took < options_.stuck;
}

// Each part of a read that ended early by what there is of it.
void PfsSource::answer(const Operation& operation, const Result<FileRead::Outcome>& outcome) {
  uint64_t left = outcome ? outcome->bytes : 0;
  for (const auto& part : operation.parts) {
    const FetchRequest& request = part.request;
    const uint64_t bytes = std::min(left, request.length);
    left -= bytes;
    request.done(check_outcome(request, outcome, bytes));
  }
}

Fetched PfsSource::check_outcome(const FetchRequest& request, const Result<FileRead::Outcome>& outcome,
                                 uint64_t bytes) {
  if (outcome) {
    if (outcome->stamp != catalog_.stamp(request.file)) return stale(request.file, "size or mtime differ");
    if (bytes != request.length) return stale(request.file, "it ended early");
    if (request.length == 0 && outcome->ctime_ns != catalog_.source_state(request.file).ctime_ns) {
      return {Error{ESTALE, escaped(catalog_.path(request.file)) + " has another ctime"},
              FetchFailure::other_ctime};
    }
    return Origin::pfs;
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
  log_.error("read from the source failed: {}", escaped(outcome.error().message));
  const std::string path = escaped(catalog_.path(request.file));
  MutexLock lock(mutex_);
  if (troubles_.failed.empty())
    troubles_.failed = fmt::format("{} ({})", path, std::strerror(outcome.error().code));
  return outcome.error();
}

Error PfsSource::stale(FileId file, const std::string& why) {
  metrics_.pfs_stale_files.add();
  const std::string path = escaped(catalog_.path(file));
  const Error error{ESTALE,
                    fmt::format("{} changed on the source after it was scanned ({}); remount to see the new "
                                "version",
                                path, escaped(why))};
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (reported_.size() < kReported) first = reported_.insert(file).second;
    if (troubles_.stale.empty()) troubles_.stale = path;
  }
  if (first) {
    log_.error("{}", error.message);
    on_stale_(file);
  }
  return error;
}

// A path too long for one system call is opened in steps, here and now: such paths are too rare for a way of
// their own through the io backend. Where it fails the backend is given the path, and fails; why this failed
// is the answer then, from a thread of the backend like any other.
Result<PfsSource::SharedFd> PfsSource::open_deep(const std::string& path) {
  auto file = open_below(root_.get(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file) return system_error(file.error().code, "open " + path);
  if (::lseek(file->get(), 0, SEEK_CUR) < 0)  // a ring would wait for a FIFO's data
    return system_error(errno, "open " + path);
  ::fcntl(file->get(), F_SETFL, 0);  // see FileRead::open_fd
  metrics_.pfs_opens.add();
  return std::make_shared<OpenFile>(io_, std::move(*file));
}

PfsSource::SharedFd PfsSource::kept_open(FileId file) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(open_files_.begin(), open_files_.end(),
                                  [&](const auto& entry) { return entry.first == file; });
  if (found == open_files_.end()) return nullptr;
  open_files_.splice(open_files_.begin(), open_files_, found);
  return found->second;
}

void PfsSource::forget_open(const SharedFd& fd) {
  std::list<std::pair<FileId, SharedFd>> closed;  // outside the lock
  MutexLock lock(mutex_);
  const auto found = std::find_if(open_files_.begin(), open_files_.end(),
                                  [&](const auto& entry) { return entry.second == fd; });
  if (found != open_files_.end()) closed.splice(closed.begin(), open_files_, found);
  lock.unlock();
  closed.clear();
  lock.lock();
}

void PfsSource::keep_open(FileId file, Fd fd) {
  std::list<std::pair<FileId, SharedFd>> closed;  // outside the lock
  MutexLock lock(mutex_);
  open_files_.emplace_front(file, std::make_shared<OpenFile>(io_, std::move(fd)));
  if (open_files_.size() > kOpenFiles)
    closed.splice(closed.begin(), open_files_, std::prev(open_files_.end()));
  lock.unlock();
  closed.clear();
  lock.lock();
}

}  // namespace clairfs
