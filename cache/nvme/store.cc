// A chunk moves so: write() allocates slots and submits one transfer an extent; the last one to complete
// makes the chunk known and queues its index records. read() marks the chunk as being read, submits,
// verifies, and only then lets go of the slots, so that a drop meanwhile cannot give them to a writer.
#include "cache/nvme/store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "cache/base/checksum.h"
#include "cache/base/clock.h"
#include "cache/base/units.h"
#include "cache/io/memory.h"
#include "cache/nvme/directory.h"
#include "cache/nvme/index.h"
#include "cache/nvme/recovery.h"
#include "cache/nvme/segments.h"
#include "cache/nvme/store_impl.h"
#include "cache/nvme/table.h"

namespace clairfs {
namespace {

// A bad block costs one chunk, and others succeed in between; so many failures without one success between
// them mean that the device is gone, and every further read would only delay its fetch from elsewhere.
constexpr unsigned kMostErrorsInARow = 8;

// Passes, and says nothing of the file.
bool is_shortage(int code) {
  return code == EMFILE || code == ENFILE || code == ENOMEM;
}

bool laid_out(std::span<const iovec> memory, uint64_t length) {
  for (const iovec& piece : memory) {
    if ((reinterpret_cast<uintptr_t>(piece.iov_base) | piece.iov_len) % kSlotSize != 0) return false;
  }
  return length > 0 && total_bytes(memory) >= uint64_t{slots_for(length)} * kSlotSize;
}

// The transfers of one chunk. The last to complete calls `finished` with the first error, 0 if there is
// none.
struct TransferGroup {
  TransferGroup(size_t count, std::function<void(int)> f) : left(count), finished(std::move(f)) {}

  void completed(int code) {
    int none = 0;
    if (code != 0) error.compare_exchange_strong(none, code);
    if (left.fetch_sub(1) == 1) finished(error.load());
  }

  std::atomic<size_t> left;
  std::atomic<int> error{0};
  const std::function<void(int)> finished;
};

class Store final : public NvmeStore {
 public:
  Store(const NvmeOptions& options, NvmeDirectory directory, std::unique_ptr<NvmeSegments> segments,
        const NvmeIndexLimits& limits, uint64_t slack, IoBackend& io, const Clock& clock, Logger& log,
        Metrics& metrics)
      : options_(options),
        directory_(std::move(directory)),
        segments_(std::move(segments)),
        limits_(limits),
        slack_(slack),
        io_(io),
        clock_(clock),
        log_(log),
        metrics_(metrics),
        table_(segments_->layout().segment_slots) {}

  ~Store() override {
    {
      MutexLock lock(mutex_);
      while (!under_way_.empty()) idle_.wait(lock);
    }
    index_.reset();
    if (counted_) count_all(-1);
  }

  Status load();

  uint32_t length_of(const ChunkKey& key) const override {
    MutexLock lock(mutex_);
    const NvmeChunk* chunk = state_ == State::disabled ? nullptr : table_.find(key);
    return chunk == nullptr ? 0 : chunk->length;
  }
  void read(const ChunkKey& key, std::vector<iovec> memory, std::function<void(Status)> done) override;
  void write(const ChunkKey& key, std::vector<iovec> memory, uint32_t length, uint64_t checksum,
             std::function<void(Status)> done) override;
  bool grows_for(uint64_t bytes) const override {
    MutexLock lock(mutex_);
    return state_ == State::active && !table_.space.has_run(slots_for(bytes)) && growable() > 0;
  }
  void grow_for(uint64_t bytes) override {
    while (grows_for(bytes)) grow();
  }
  void drop(const ChunkKey& key) override {
    MutexLock lock(mutex_);
    erase(key);
  }
  void drop_unless(const std::function<bool(const ChunkKey&)>& keep) override;

  uint64_t available() const override {
    MutexLock lock(mutex_);
    if (state_ != State::active || !index_has_room()) return 0;
    const uint64_t free = table_.space.free_slots() * kSlotSize + growable();
    return free - std::min(free, slack_);
  }
  bool writable() const override {
    MutexLock lock(mutex_);
    return state_ == State::active;
  }
  NvmeTroubles troubles() override;
  uint64_t bytes() const override {
    MutexLock lock(mutex_);
    return table_.used_bytes();
  }
  uint64_t chunks() const override {
    MutexLock lock(mutex_);
    return table_.chunks().size();
  }
  const std::string& directory() const override { return options_.directory; }

 private:
  enum class State { active, read_only, disabled };

  struct Reading {
    ChunkKey key;
    std::vector<iovec> memory;
    std::function<void(Status)> done;
    uint32_t length = 0;
    uint64_t checksum = 0;
    std::vector<Extent> extents;
    TimePoint started;
  };
  struct Writing {
    ChunkKey key;
    std::vector<iovec> memory;
    std::function<void(Status)> done;
    NvmeChunk chunk;
    TimePoint started;
  };

  Result<NvmeIndexFile> open_index();
  void tell(const NvmeRecoveryReport& report) REQUIRES(mutex_);
  Status start_index(NvmeIndexFile file, bool damaged);
  NvmeIndex::Hooks hooks();
  Result<NvmeChunk> allocate(const ChunkKey& key, uint32_t length, uint64_t checksum, TimePoint now);
  void grow();
  // While segments grow, what they grow by counts as room that is yet to come.
  uint64_t growable() const REQUIRES(mutex_) { return segments_->most_bytes() - taken_over_; }
  bool index_has_room() const REQUIRES(mutex_);
  void transfer(Transfer::Direction direction, const std::vector<Extent>& extents,
                const std::vector<iovec>& memory, const std::function<void(int)>& finished);
  void finish_read(Reading& reading, int code);
  Status judge_read(const Reading& reading, int code);
  void finish_write(Writing& writing, int code);
  Status record_write(Writing& writing, int code);
  bool erase(const ChunkKey& key, std::optional<uint32_t> only_at = {}) REQUIRES(mutex_);
  void queue(std::vector<NvmeRecord> records) REQUIRES(mutex_);
  void disable(State state, const std::string& cause) REQUIRES(mutex_);
  void count_error(const std::string& what) REQUIRES(mutex_);
  void count_all(int64_t sign);
  void note_end_of_growth() REQUIRES(mutex_);
  void count_cut_short(int64_t sign) REQUIRES(mutex_);
  Error error(int code, const std::string& what) const {
    return system_error(code, "NVMe directory " + options_.directory + ": " + what);
  }
  void ended(TimePoint began) {
    MutexLock lock(mutex_);
    under_way_.erase(under_way_.find(began));
    if (under_way_.empty()) idle_.notify_all();
  }

  // Constant after load().
  const NvmeOptions options_;
  const NvmeDirectory directory_;
  const std::unique_ptr<NvmeSegments> segments_;
  const NvmeIndexLimits limits_;
  const uint64_t slack_;  // bytes
  IoBackend& io_;
  const Clock& clock_;
  Logger& log_;
  Metrics& metrics_;
  bool counted_ = false;

  // Guarded. NvmeSegments' and NvmeIndex's locks may be taken under it; it is not held while segments grow.
  mutable Mutex mutex_;
  NvmeTable table_ GUARDED_BY(mutex_);
  uint64_t taken_over_ GUARDED_BY(mutex_) = 0;  // bytes of segments, whose slots the table knows
  State state_ GUARDED_BY(mutex_) = State::active;
  uint64_t reserved_records_ GUARDED_BY(mutex_) = 0;       // of chunks being written
  std::multiset<TimePoint> under_way_ GUARDED_BY(mutex_);  // when what has not ended began
  bool silent_ GUARDED_BY(mutex_) = false;                 // counted as such
  unsigned errors_in_a_row_ GUARDED_BY(mutex_) = 0;
  uint64_t missing_ GUARDED_BY(mutex_) = 0;  // of the capacity, because growth ended before it
  NvmeTroubles troubles_ GUARDED_BY(mutex_);

  // Self-synchronised.
  CondVar idle_;
  std::unique_ptr<NvmeIndex> index_;
};

// Opening.

Status Store::load() {
  auto file = open_index();
  if (!file) return file.error();
  MutexLock lock(mutex_);
  const auto report = recover_chunks(*file, *segments_, limits_.live_records, table_);
  taken_over_ = segments_->most_bytes() - segments_->growable();
  if (report) {
    tell(*report);
  } else {
    log_.warn("NVMe directory {}: {}; kept {} chunks", options_.directory, report.error().message,
              table_.chunks().size());
  }
  lock.unlock();
  if (Status status = start_index(std::move(*file), !report); !status) return status;
  count_all(1);
  counted_ = true;
  return {};
}

Result<NvmeIndexFile> Store::open_index() {
  const int directory = directory_.directory.get();
  const uint32_t segment_slots = segments_->layout().segment_slots;
  ::unlinkat(directory, NvmeIndexFile::kNewName, 0);  // of a compaction that was cut short
  auto file = NvmeIndexFile::open(directory, NvmeIndexFile::kName, segment_slots);
  if (!file) {
    if (is_shortage(file.error().code)) return error(file.error().code, "open the index");
    if (file.error().code != ENOENT) {
      log_.warn("NVMe directory {}: {}; starting empty", options_.directory, file.error().message);
      ::unlinkat(directory, NvmeIndexFile::kName, 0);
    }
    file = NvmeIndexFile::create(directory, NvmeIndexFile::kName, segment_slots);
    if (file) {
      if (Status status = file->preallocate(limits_.all_records()); !status) file = status.error();
    }
  }
  if (!file) {
    return Error{file.error().code, "NVMe directory " + options_.directory + ": " + file.error().message +
                                        "; free some space or give another directory"};
  }
  return file;
}

void Store::tell(const NvmeRecoveryReport& report) {
  if (report.damaged_records + report.outside + report.overlapping + report.beyond_limit == 0) return;
  log_.warn(
      "NVMe directory {}: the index contradicts itself or the capacity: {} damaged records, {} chunks "
      "outside the segments, {} overwritten, {} too many; kept {} chunks",
      options_.directory, report.damaged_records, report.outside, report.overlapping, report.beyond_limit,
      table_.chunks().size());
}

Status Store::start_index(NvmeIndexFile file, bool damaged) {
  // Mostly garbage: twice as many records as are live, and more than a page of them.
  constexpr uint32_t kPage = 4096 / sizeof(NvmeRecord);
  uint64_t live = 0;
  {
    MutexLock lock(mutex_);
    live = table_.records();
  }
  const bool too_large = file.records() > limits_.file_records || file.bytes_on_disk() > limits_.share;
  const bool compact = damaged || too_large || file.records() > 2 * live + kPage;
  index_ = std::make_unique<NvmeIndex>(directory_.directory.get(), std::move(file),
                                       segments_->layout().segment_slots, limits_, hooks());
  if (compact) {
    if (Status status = index_->compact(); !status) return error(status.error().code, status.error().message);
  }
  index_->start();
  return {};
}

NvmeIndex::Hooks Store::hooks() {
  NvmeIndex::Hooks hooks;
  hooks.written = [this](std::span<const NvmeRecord> records, uint32_t first) {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < records.size(); ++i) {
      if (records[i].kind != NvmeRecord::Kind::put || records[i].part != 0) continue;
      NvmeChunk* chunk = table_.find(records[i].key);
      if (chunk != nullptr && chunk->first == records[i].extent)
        chunk->record = first + static_cast<uint32_t>(i);
    }
  };
  hooks.relocate = [this](const NvmeRecord& record, uint32_t from, uint32_t to) {
    MutexLock lock(mutex_);
    NvmeChunk* chunk = table_.find(record.key);
    if (chunk == nullptr || chunk->record != from || !(chunk->first == record.extent)) return false;
    chunk->record = to;
    return true;
  };
  hooks.failed = [this](const Error& cause) {
    MutexLock lock(mutex_);
    count_error(cause.message);
    disable(State::read_only, cause.message);
  };
  return hooks;
}

void Store::count_all(int64_t sign) {
  MutexLock lock(mutex_);
  metrics_.nvme_capacity.add(sign * static_cast<int64_t>(options_.capacity - missing_));
  if (missing_ > 0) count_cut_short(sign);
  if (silent_) metrics_.nvme_silent.add(sign);
  metrics_.nvme_bytes.add(sign * static_cast<int64_t>(table_.used_bytes()));
  metrics_.nvme_chunks.add(sign * static_cast<int64_t>(table_.chunks().size()));
  if (state_ != State::active) metrics_.nvme_disabled.add(sign);
}

void Store::count_cut_short(int64_t sign) {
  (troubles_.disk_full ? metrics_.nvme_full : metrics_.nvme_cut_short).add(sign);
}

// From now on the capacity is what the store has: what a full disk withholds would look like room.
void Store::note_end_of_growth() {
  const auto why = segments_->cut_short();
  if (missing_ > 0 || !why) return;
  missing_ = std::min(segments_->missing(), options_.capacity);
  if (missing_ == 0) return;
  troubles_.disk_full = why->code == ENOSPC;
  if (!troubles_.disk_full) troubles_.cut_short = why->message;
  if (!counted_) return;
  metrics_.nvme_capacity.add(-static_cast<int64_t>(missing_));
  count_cut_short(1);
}

NvmeTroubles Store::troubles() {
  MutexLock lock(mutex_);
  NvmeTroubles troubles = troubles_;
  const Duration longest = under_way_.empty() ? Duration::min() : clock_.now() - *under_way_.begin();
  const bool silent = longest >= options_.patience;
  if (silent) troubles.silent = fmt::format("no answer for {}", format_duration(longest));
  if (silent != std::exchange(silent_, silent)) metrics_.nvme_silent.add(silent ? 1 : -1);
  return troubles;
}

// Both directions.

void Store::transfer(Transfer::Direction direction, const std::vector<Extent>& extents,
                     const std::vector<iovec>& memory, const std::function<void(int)>& finished) {
  const auto parts = std::make_shared<TransferGroup>(extents.size(), finished);
  uint64_t position = 0;
  for (const Extent& extent : extents) {
    const uint64_t bytes = uint64_t{extent.count} * kSlotSize;
    Transfer transfer;
    transfer.direction = direction;
    transfer.fd = segments_->fd_of(extent);
    transfer.offset = segments_->offset_of(extent);
    transfer.memory = slice_of(memory, position, bytes);
    transfer.done = [this, parts, extent, bytes](const Result<uint64_t>& moved) {
      segments_->forget_pages(extent);
      parts->completed(!moved ? moved.error().code : *moved != bytes ? EIO : 0);
    };
    position += bytes;
    io_.submit(std::move(transfer));
  }
}

// Stops writing, or (State::disabled) reading too.
void Store::disable(State state, const std::string& cause) {
  if (state_ >= state) return;
  if (state_ == State::active && counted_) metrics_.nvme_disabled.add(1);
  state_ = state;
  troubles_.switched_off = cause;
  log_.error("NVMe directory {}: {} until the next mount: {}", options_.directory,
             state == State::disabled ? "switched off" : "no longer written", cause);
}

void Store::count_error(const std::string& what) {
  metrics_.nvme_errors.add();
  if (troubles_.error.empty()) troubles_.error = what;
}

// With an index that failed this only keeps the memory in step.
void Store::queue(std::vector<NvmeRecord> records) {
  if (state_ == State::active) index_->append(std::move(records));
}

bool Store::erase(const ChunkKey& key, std::optional<uint32_t> only_at) {
  const uint64_t before = table_.used_bytes();
  if (!table_.erase(key, only_at)) return false;
  metrics_.nvme_bytes.add(-static_cast<int64_t>(before - table_.used_bytes()));
  metrics_.nvme_chunks.add(-1);
  queue({drop_record(key)});
  return true;
}

void Store::drop_unless(const std::function<bool(const ChunkKey&)>& keep) {
  std::vector<ChunkKey> keys;
  {
    MutexLock lock(mutex_);
    keys.reserve(table_.chunks().size());
    for (const auto& entry : table_.chunks()) keys.push_back(entry.first);
  }
  for (const ChunkKey& key : keys) {
    if (!keep(key)) drop(key);
  }
}

// Reading.

void Store::read(const ChunkKey& key, std::vector<iovec> memory, std::function<void(Status)> done) {
  auto reading = std::make_shared<Reading>();
  reading->started = clock_.now();
  int refusal = 0;
  {
    MutexLock lock(mutex_);
    const NvmeChunk* chunk = state_ == State::disabled ? nullptr : table_.find(key);
    refusal = chunk == nullptr ? ENOENT : laid_out(memory, chunk->length) ? 0 : EINVAL;
    if (refusal == 0) {
      reading->length = chunk->length;
      reading->checksum = chunk->checksum;
      reading->extents = chunk->extents();
      table_.begin_read(chunk->first.first);
      under_way_.insert(reading->started);
    }
  }
  if (refusal != 0) {
    done(error(refusal, "read a chunk"));
    return;
  }
  reading->key = key;
  reading->memory = std::move(memory);
  reading->done = std::move(done);
  transfer(Transfer::Direction::read, reading->extents, reading->memory,
           [this, reading](int code) { finish_read(*reading, code); });
}

void Store::finish_read(Reading& reading, int code) {
  Status status = judge_read(reading, code);
  {
    MutexLock lock(mutex_);
    table_.end_read(reading.extents.front().first);
  }
  std::exchange(reading.done, nullptr)(std::move(status));
  ended(reading.started);
}

Status Store::judge_read(const Reading& reading, int code) {
  const uint32_t first_slot = reading.extents.front().first;
  if (code != 0) {
    MutexLock lock(mutex_);
    const std::string what = fmt::format("read a chunk at slot {}", first_slot);
    Error failure = error(code, what);
    count_error(system_error(code, what).message);
    if (erase(reading.key, first_slot)) log_.warn("{}; forgot it", failure.message);
    if (++errors_in_a_row_ >= kMostErrorsInARow) {
      disable(State::disabled, fmt::format("{} failed reads in a row, the last: {}", kMostErrorsInARow,
                                           system_error(code, "read").message));
    }
    return failure;
  }
  if (xxh3_64(slice_of(reading.memory, 0, reading.length)) != reading.checksum) {
    metrics_.nvme_checksum_failures.add();
    MutexLock lock(mutex_);
    errors_in_a_row_ = 0;
    const std::string what = fmt::format("wrong checksum of the chunk at slot {}", first_slot);
    if (troubles_.damage.empty()) troubles_.damage = what;
    Error failure{EBADMSG, fmt::format("NVMe directory {}: {}", options_.directory, what)};
    if (erase(reading.key, first_slot)) log_.warn("{}; forgot it", failure.message);
    return failure;
  }
  metrics_.nvme_reads.add();
  metrics_.nvme_read_bytes.add(reading.length);
  metrics_.nvme_read_latency.record(clock_.now() - reading.started);
  MutexLock lock(mutex_);
  errors_in_a_row_ = 0;
  return {};
}

// Writing.

bool Store::index_has_room() const {
  return table_.records() + reserved_records_ + kMaxExtents <= limits_.live_records;
}

// Slots for a chunk. A chunk of length 0: already here. Where no run is large enough it takes several, though
// the store could grow: nobody who writes waits for that.
Result<NvmeChunk> Store::allocate(const ChunkKey& key, uint32_t length, uint64_t checksum, TimePoint now) {
  MutexLock lock(mutex_);
  if (state_ != State::active) return error(EROFS, "switched off");
  if (table_.find(key) != nullptr) return NvmeChunk();
  if (!index_has_room()) return error(ENOSPC, "the index is full");
  const uint32_t slots = slots_for(length);
  std::vector<Extent> extents = table_.space.allocate_run(slots);
  if (extents.empty()) extents = table_.space.allocate_runs(slots, kMaxExtents);
  if (extents.empty()) return error(ENOSPC, growable() == 0 ? "full" : "full, unless it grows");
  NvmeChunk chunk = NvmeChunk::make(length, checksum, extents);
  reserved_records_ += chunk.parts();
  under_way_.insert(now);
  return chunk;
}

// A failure ends growth, so that writes take several runs or give up.
void Store::grow() {
  const TimePoint began = clock_.now();
  {
    MutexLock lock(mutex_);
    under_way_.insert(began);
  }
  const auto grown = segments_->grow();
  {
    MutexLock lock(mutex_);
    if (grown) {
      taken_over_ += uint64_t{grown->count} * kSlotSize;
      table_.space.release(*grown);
    } else {
      note_end_of_growth();
    }
  }
  ended(began);
}

void Store::write(const ChunkKey& key, std::vector<iovec> memory, uint32_t length, uint64_t checksum,
                  std::function<void(Status)> done) {
  if (!laid_out(memory, length)) return done(error(EINVAL, "write a chunk"));
  const TimePoint now = clock_.now();
  auto chunk = allocate(key, length, checksum, now);
  if (!chunk || chunk->length == 0) {
    done(chunk ? Status() : Status(chunk.error()));
    return;
  }
  auto writing = std::make_shared<Writing>();
  writing->key = key;
  writing->memory = std::move(memory);
  writing->done = std::move(done);
  writing->chunk = std::move(*chunk);
  writing->started = now;
  transfer(Transfer::Direction::write, writing->chunk.extents(), writing->memory,
           [this, writing](int code) { finish_write(*writing, code); });
}

void Store::finish_write(Writing& writing, int code) {
  Status status = record_write(writing, code);
  std::exchange(writing.done, nullptr)(std::move(status));
  ended(writing.started);
}

Status Store::record_write(Writing& writing, int code) {
  MutexLock lock(mutex_);
  reserved_records_ -= writing.chunk.parts();
  if (code != 0) {
    const std::string what = system_error(code, "write a chunk").message;
    count_error(what);
    // The slots stay taken until the next mount: there is no disk behind them (a sparse file), or a bad one.
    if (code != ENOSPC) disable(State::read_only, what);
    if (code == ENOSPC) segments_->end_growth();
    note_end_of_growth();
    return error(code, "write a chunk");
  }
  if (table_.find(writing.key) != nullptr) {  // someone wrote it at the same time
    table_.release(writing.chunk.extents());
    return {};
  }
  metrics_.nvme_writes.add();
  metrics_.nvme_write_bytes.add(writing.chunk.length);
  metrics_.nvme_write_latency.record(clock_.now() - writing.started);
  metrics_.nvme_bytes.add(int64_t{slots_for(writing.chunk.length)} * kSlotSize);
  metrics_.nvme_chunks.add(1);
  queue(writing.chunk.records(writing.key));
  table_.insert(writing.key, std::move(writing.chunk));
  return {};
}

}  // namespace

Result<std::unique_ptr<NvmeStore>> open_nvme_store(const NvmeOptions& options, const SegmentLayout& layout,
                                                   IoBackend& io, const Clock& clock, Logger& log,
                                                   Metrics& metrics) {
  if (options.capacity < kSmallestNvmeCapacity) {
    return Error{EINVAL, fmt::format("NVMe directory {}: a capacity of {} is too small; give at least {}",
                                     options.directory, format_size(options.capacity),
                                     format_size(kSmallestNvmeCapacity))};
  }
  auto directory = lock_nvme_directory(options.directory, options.dataset);
  if (!directory) return directory.error();
  const NvmeIndexLimits limits = NvmeIndexLimits::of(options.capacity, options.mean_chunk);
  const uint64_t limit = nvme_segment_limit(options.capacity, limits, layout);
  auto segments = NvmeSegments::open(layout, directory->directory.get(), options.directory, limit, log);
  if (!segments) return segments.error();
  auto store = std::make_unique<Store>(options, std::move(*directory), std::move(*segments), limits,
                                       limit / kSlackDivisor, io, clock, log, metrics);
  if (Status status = store->load(); !status) return status.error();
  return std::unique_ptr<NvmeStore>(std::move(store));
}

Result<std::unique_ptr<NvmeStore>> NvmeStore::open(const NvmeOptions& options, IoBackend& io,
                                                   const Clock& clock, Logger& log, Metrics& metrics) {
  return open_nvme_store(options, SegmentLayout(), io, clock, log, metrics);
}

}  // namespace clairfs
