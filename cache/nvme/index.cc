#include "cache/nvme/index.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace clairfs {
namespace {

// Records read at once: 192 KiB.
constexpr size_t kBatch = 4096;

constexpr char kRead[] = "read the index";
constexpr char kWrite[] = "write the index";

uint64_t position_of(uint32_t record) {
  return (uint64_t{record} + 1) * sizeof(NvmeRecord);
}

}  // namespace

NvmeIndexLimits NvmeIndexLimits::of(uint64_t capacity, uint64_t chunk) {
  // Two files, each rounded up to a block. At least 64 KiB, so that even the records of a chunk in
  // kMaxExtents pieces fit beside the live ones; at most what keeps record numbers in 31 bits.
  constexpr uint64_t kRounding = 8 << 10;
  constexpr uint64_t kMost = uint64_t{sizeof(NvmeRecord)} << 31;
  uint64_t wanted = capacity / 64;
  if (chunk > 0) {
    // Three bits of the size, so that a dataset that changes a little finds the layout it left.
    chunk = chunk >> (std::bit_width(chunk) - 3) << (std::bit_width(chunk) - 3);
    wanted = std::min(wanted, capacity / chunk * kRuns * sizeof(NvmeRecord) / 3 * 8 + kRounding);
  }
  NvmeIndexLimits limits;
  limits.share = std::clamp<uint64_t>(wanted, 64 << 10, kMost);
  const uint64_t records = (limits.share - kRounding) / sizeof(NvmeRecord);
  limits.file_records = static_cast<uint32_t>(records * 5 / 8);
  limits.live_records = static_cast<uint32_t>(records * 3 / 8);
  return limits;
}

Result<NvmeIndexFile> NvmeIndexFile::create(int directory, const char* name, uint32_t segment_slots) {
  Fd file(::openat(directory, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return system_error(errno, "make the index");
  const NvmeIndexHeader header = NvmeIndexHeader::make(segment_slots);
  if (Status status = write_fully(file.get(), std::as_bytes(std::span(&header, 1)), 0, kWrite); !status)
    return status.error();
  return NvmeIndexFile(std::move(file), 0);
}

Result<NvmeIndexFile> NvmeIndexFile::open(int directory, const char* name, uint32_t segment_slots) {
  Fd file(::openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file) return system_error(errno, "open the index");
  struct stat st;
  if (::fstat(file.get(), &st) != 0) return system_error(errno, "stat the index");
  NvmeIndexHeader header;
  const auto read = S_ISREG(st.st_mode)
                        ? read_fully(file.get(), std::as_writable_bytes(std::span(&header, 1)), 0, kRead)
                        : Result<size_t>(0);
  if (!read) return read.error();
  if (*read != sizeof header || !(header == NvmeIndexHeader::make(segment_slots))) {
    return Error{EBADMSG, "the index is damaged or not one of this version"};
  }
  const uint64_t records = static_cast<uint64_t>(st.st_size) / sizeof(NvmeRecord) - 1;
  // A torn record at the end is overwritten by the next one.
  return NvmeIndexFile(std::move(file), static_cast<uint32_t>(std::min<uint64_t>(records, UINT32_MAX - 1)));
}

bool NvmeIndexFile::exists(int directory) {
  const Fd file(::openat(directory, kName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat st;
  if (!file || ::fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  NvmeIndexHeader header;
  const auto read = read_fully(file.get(), std::as_writable_bytes(std::span(&header, 1)), 0, kRead);
  return read && std::ranges::equal(header.magic, NvmeIndexHeader::kMagic);
}

uint64_t NvmeIndexFile::bytes_on_disk() const {
  struct stat st;
  if (::fstat(file_.get(), &st) != 0) return 0;
  return std::max(static_cast<uint64_t>(st.st_size), static_cast<uint64_t>(st.st_blocks) * 512);
}

Result<size_t> NvmeIndexFile::read(uint32_t number, std::span<NvmeRecord> into) const {
  const size_t count = std::min<size_t>(into.size(), records_ - std::min(number, records_));
  const auto bytes =
      read_fully(file_.get(), std::as_writable_bytes(into.first(count)), position_of(number), kRead);
  if (!bytes) return bytes.error();
  return *bytes / sizeof(NvmeRecord);
}

Status NvmeIndexFile::append(std::span<const NvmeRecord> records) {
  if (Status status = write_fully(file_.get(), std::as_bytes(records), position_of(records_), kWrite);
      !status) {
    return status;
  }
  records_ += static_cast<uint32_t>(records.size());
  return {};
}

Status NvmeIndexFile::preallocate(uint32_t records) {
  int failed = 0;
  do {
    failed = ::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, position_of(records)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  // A filesystem that cannot do this shows want of space when records are appended.
  if (failed != 0 && failed != EOPNOTSUPP) return system_error(failed, "preallocate the index");
  return {};
}

void NvmeIndexFile::trim() {
  // Without it a new file finds room only where the disk has some.
  [[maybe_unused]] const int done = ::ftruncate(file_.get(), static_cast<off_t>(position_of(records_)));
}

Status NvmeIndexFile::sync() {
  if (::fdatasync(file_.get()) != 0) return system_error(errno, "sync the index");
  return {};
}

NvmeIndex::NvmeIndex(int directory, NvmeIndexFile file, uint32_t segment_slots, const NvmeIndexLimits& limits,
                     Hooks hooks)
    : directory_(directory),
      segment_slots_(segment_slots),
      limits_(limits),
      hooks_(std::move(hooks)),
      file_(std::move(file)) {}

NvmeIndex::~NvmeIndex() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void NvmeIndex::start() {
  // It may have been trimmed, or made for a smaller capacity. Space that is not there now may not be needed.
  static_cast<void>(file_.preallocate(limits_.all_records()));
  thread_ = NamedThread("nvme-index", [this] { run(); });
}

void NvmeIndex::append(std::vector<NvmeRecord> records) {
  {
    MutexLock lock(mutex_);
    queue_.insert(queue_.end(), records.begin(), records.end());
  }
  wake_.notify_one();
}

void NvmeIndex::run() {
  bool usable = true;
  MutexLock lock(mutex_);
  while (true) {
    while (queue_.empty() && !stopping_) wake_.wait(lock);
    if (queue_.empty()) return;
    const std::vector<NvmeRecord> records = std::exchange(queue_, {});
    lock.unlock();
    if (usable) {
      if (Status status = write(records); !status) {
        usable = false;
        hooks_.failed(status.error());
      }
    }
    lock.lock();
  }
}

// Appends, and compacts in between when the file is full. The records of one chunk are kept together.
Status NvmeIndex::write(std::span<const NvmeRecord> records) {
  while (!records.empty()) {
    const size_t room = limits_.file_records - std::min(file_.records(), limits_.file_records);
    size_t count = std::min(room, records.size());
    while (count > 0 && count < records.size() && records[count].part != 0) --count;
    if (count == 0) {
      if (Status status = compact(); !status) return status;
      continue;
    }
    const uint32_t first = file_.records();
    if (Status status = file_.append(records.first(count)); !status) return status;
    hooks_.written(records.first(count), first);
    records = records.subspan(count);
  }
  return {};
}

Status NvmeIndex::compact() {
  file_.trim();
  // A file from a larger capacity leaves no room for a second one: better a cold cache, should we be killed
  // now, than a disk fuller than allowed.
  const uint64_t most_live = uint64_t{limits_.live_records} * sizeof(NvmeRecord);
  if (file_.bytes_on_disk() + most_live > limits_.share) ::unlinkat(directory_, NvmeIndexFile::kName, 0);
  auto fresh = NvmeIndexFile::create(directory_, NvmeIndexFile::kNewName, segment_slots_);
  if (!fresh) return fresh.error();
  Status status = copy_live(*fresh);
  // Synced, lest after a power failure the name stood for a file whose data never arrived.
  if (status) status = fresh->sync();
  if (status && ::renameat(directory_, NvmeIndexFile::kNewName, directory_, NvmeIndexFile::kName) != 0) {
    status = system_error(errno, "rename the compacted index");
  }
  if (!status) {
    ::unlinkat(directory_, NvmeIndexFile::kNewName, 0);
    return status;
  }
  file_ = std::move(*fresh);
  // If somebody else was quicker, want of space shows when records are appended.
  static_cast<void>(file_.preallocate(limits_.all_records()));
  return {};
}

Status NvmeIndex::copy_live(NvmeIndexFile& into) {
  std::vector<NvmeRecord> batch(kBatch);
  std::vector<NvmeRecord> live;
  uint32_t copying = 0;  // records of a live chunk still to come
  for (uint32_t number = 0; number < file_.records();) {
    const auto count = file_.read(number, batch);
    if (!count) return count.error();
    if (*count == 0) break;
    live.clear();
    for (size_t i = 0; i < *count; ++i) {
      const NvmeRecord& record = batch[i];
      if (copying == 0 && record.kind == NvmeRecord::Kind::put && record.part == 0 && record.intact() &&
          hooks_.relocate(record, number + static_cast<uint32_t>(i),
                          into.records() + static_cast<uint32_t>(live.size()))) {
        copying = record.parts;
      }
      if (copying > 0) {
        live.push_back(record);
        --copying;
      }
    }
    if (Status status = into.append(live); !status) return status;
    number += static_cast<uint32_t>(*count);
  }
  return {};
}

}  // namespace clairfs
