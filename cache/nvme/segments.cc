#include "cache/nvme/segments.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

namespace clairfs {
namespace {

std::string file_name(uint32_t number) {
  return fmt::format("segment-{:06}", number);
}

}  // namespace

NvmeSegments::NvmeSegments(const SegmentLayout& layout, int directory, std::string name, uint64_t limit,
                           Logger& log)
    : layout_(layout),
      directory_(directory),
      name_(std::move(name)),
      limit_slots_(limit / kSlotSize),
      log_(log) {}

Result<std::unique_ptr<NvmeSegments>> NvmeSegments::open(const SegmentLayout& layout, int directory,
                                                         std::string name, uint64_t limit, Logger& log) {
  std::unique_ptr<NvmeSegments> segments(new NvmeSegments(layout, directory, std::move(name), limit, log));
  if (Status status = segments->load(); !status) return status.error();
  return segments;
}

Status NvmeSegments::load() {
  MutexLock lock(mutex_);
  const uint32_t files = files_in_directory();
  for (uint32_t i = 0; i < files; ++i) {
    auto segment = load_file(i);
    if (!segment) return segment.error();
    segments_.push_back(std::move(*segment));
  }
  shrink();
  return {};
}

// One more than the highest number of a segment file.
uint32_t NvmeSegments::files_in_directory() const {
  const uint32_t most = UINT32_MAX / layout_.segment_slots;  // slot numbers have 32 bits
  const int copy = ::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (!listing) return 0;
  uint32_t files = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    unsigned number = 0;
    if (std::sscanf(entry->d_name, "segment-%6u", &number) != 1 || file_name(number) != entry->d_name)
      continue;
    if (number < most) files = std::max(files, number + 1);
  }
  return files;
}

Result<NvmeSegments::Segment> NvmeSegments::load_file(uint32_t number) {
  auto file = open_file(number);
  if (!file) return file.error();
  struct stat st;
  if (::fstat(file->get(), &st) != 0) return system_error(errno, name_ + "/" + file_name(number) + ": stat");
  if (!S_ISREG(st.st_mode))
    return Error{EINVAL, name_ + "/" + file_name(number) + ": is not a file; remove it"};
  const uint64_t slots = static_cast<uint64_t>(st.st_size) / kSlotSize;
  return Segment{std::move(*file), static_cast<uint32_t>(std::min<uint64_t>(slots, layout_.segment_slots))};
}

void NvmeSegments::shrink() {
  uint64_t total = total_slots();
  for (size_t i = segments_.size(); i-- > 0;) {
    Segment& segment = segments_[i];
    const uint64_t excess = total > limit_slots_ ? total - limit_slots_ : 0;
    const auto cut = static_cast<uint32_t>(std::min<uint64_t>(excess, segment.slots));
    segment.slots -= cut;
    total -= cut;
    // Also where nothing is to be cut: what lies past the last whole slot would count against the capacity.
    if (::ftruncate(segment.file.get(), static_cast<off_t>(segment.slots) * kSlotSize) != 0) {
      log_.warn("NVMe directory {}: cannot cut {} to its size", name_, file_name(static_cast<uint32_t>(i)));
    }
    if (segment.slots == 0 && i + 1 == segments_.size() &&
        ::unlinkat(directory_, file_name(static_cast<uint32_t>(i)).c_str(), 0) == 0) {
      segments_.pop_back();
    }
  }
}

Result<Fd> NvmeSegments::open_file(uint32_t number) {
  const std::string file = file_name(number);
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  if (direct_) {
    Fd direct(::openat(directory_, file.c_str(), flags | O_DIRECT, 0600));
    if (direct) return direct;
    if (errno != EINVAL) return system_error(errno, name_ + "/" + file + ": open");
    direct_ = false;
    log_.info("NVMe directory {}: the filesystem takes no O_DIRECT; using the page cache", name_);
  }
  Fd buffered(::openat(directory_, file.c_str(), flags, 0600));
  if (!buffered) return system_error(errno, name_ + "/" + file + ": open");
  return buffered;
}

// Gives `file` more slots, fewer than wanted if the disk is nearly full. Returns how many.
Result<uint32_t> NvmeSegments::extend(int file, uint32_t from, uint32_t slots) const {
  const off_t start = static_cast<off_t>(from) * kSlotSize;
  for (;; slots /= 2) {
    const off_t bytes = static_cast<off_t>(slots) * kSlotSize;
    if (::fallocate(file, 0, start, bytes) == 0) return slots;
    const int code = errno;
    if (code == EINTR) {
      slots *= 2;  // the same again
      continue;
    }
    if (code == EOPNOTSUPP && ::ftruncate(file, start + bytes) == 0) return slots;
    const bool undone = ::ftruncate(file, start) == 0;  // fallocate() may have got some of it
    if (code != ENOSPC || !undone || slots / 2 < layout_.smallest_growth_slots) {
      return system_error(code, "preallocate");
    }
  }
}

Result<Extent> NvmeSegments::grow() {
  MutexLock growing(growth_mutex_);
  uint32_t number = 0;
  uint32_t slots = 0;
  uint64_t room = 0;
  int file = -1;
  {
    MutexLock lock(mutex_);
    if (growth_ended_) return Error{ENOSPC, "NVMe directory " + name_ + ": full"};
    room = limit_slots_ - std::min(total_slots(), limit_slots_);
    number = static_cast<uint32_t>(segments_.size());
    if (number > 0 && segments_.back().slots < layout_.segment_slots) {
      --number;
      slots = segments_.back().slots;
      file = segments_.back().file.get();
    }
  }
  const auto wanted =
      static_cast<uint32_t>(std::min<uint64_t>({room, layout_.growth_slots, layout_.segment_slots - slots}));
  if (wanted == 0 || number >= UINT32_MAX / layout_.segment_slots) {
    return end_growth(Error{ENOSPC, "NVMe directory " + name_ + ": full"}, true);
  }
  struct stat st;
  if (::fstat(directory_, &st) != 0 || st.st_nlink == 0) {
    return end_growth(Error{ENOENT, "the directory has been deleted"}, false);
  }
  Fd fresh;
  if (file < 0) {
    auto opened = open_file(number);
    if (!opened) return end_growth(opened.error(), false);
    fresh = std::move(*opened);
    file = fresh.get();
  }
  const auto grown = extend(file, slots, wanted);
  if (!grown) return end_growth(grown.error(), false);
  MutexLock lock(mutex_);
  if (fresh) segments_.push_back({std::move(fresh), 0});
  segments_.back().slots += *grown;
  return Extent{number * layout_.segment_slots + slots, *grown};
}

void NvmeSegments::end_growth() {
  if (growable() == 0) return;  // it has ended already, perhaps for another reason
  static_cast<void>(end_growth(system_error(ENOSPC, "write"), false));
}

// Only the first cause counts, and is told.
Error NvmeSegments::end_growth(Error cause, bool at_limit) {
  MutexLock lock(mutex_);
  if (std::exchange(growth_ended_, true) || at_limit) return cause;
  cut_short_ = cause;
  log_.warn("NVMe directory {}: stays at its present size: {}", name_, cause.message);
  return cause;
}

uint64_t NvmeSegments::total_slots() const {
  uint64_t total = 0;
  for (const Segment& segment : segments_) total += segment.slots;
  return total;
}

uint64_t NvmeSegments::growable() const {
  MutexLock lock(mutex_);
  const uint64_t total = total_slots();
  return growth_ended_ || total >= limit_slots_ ? 0 : (limit_slots_ - total) * kSlotSize;
}

uint64_t NvmeSegments::most_bytes() const {
  MutexLock lock(mutex_);
  return (growth_ended_ ? total_slots() : std::max(total_slots(), limit_slots_)) * kSlotSize;
}

uint64_t NvmeSegments::missing() const {
  MutexLock lock(mutex_);
  const uint64_t total = total_slots();
  return cut_short_ && total < limit_slots_ ? (limit_slots_ - total) * kSlotSize : 0;
}

std::optional<Error> NvmeSegments::cut_short() const {
  MutexLock lock(mutex_);
  return cut_short_;
}

std::vector<Extent> NvmeSegments::extents() const {
  MutexLock lock(mutex_);
  std::vector<Extent> extents;
  for (size_t i = 0; i < segments_.size(); ++i) {
    extents.push_back({static_cast<uint32_t>(i) * layout_.segment_slots, segments_[i].slots});
  }
  return extents;
}

int NvmeSegments::fd_of(Extent extent) const {
  MutexLock lock(mutex_);
  return segments_[extent.first / layout_.segment_slots].file.get();
}

bool NvmeSegments::contains(Extent extent) const {
  MutexLock lock(mutex_);
  const uint32_t number = extent.first / layout_.segment_slots;
  const uint64_t start = extent.first % layout_.segment_slots;
  return extent.count > 0 && number < segments_.size() && start + extent.count <= segments_[number].slots;
}

void NvmeSegments::forget_pages(Extent extent) const {
  if (direct_) return;
  ::posix_fadvise(fd_of(extent), static_cast<off_t>(offset_of(extent)),
                  static_cast<off_t>(extent.count) * kSlotSize, POSIX_FADV_DONTNEED);
}

}  // namespace clairfs
