// The NVMe index after a restart: no slot is given to two chunks or to none, whatever the records say.
//
// Records are sealed before they are read, but for those whose first byte is odd: nobody guesses checksums.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include <spdlog/sinks/null_sink.h>

#include "cache/nvme/recovery.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

constexpr SegmentLayout kLayout{64, 16, 4};
constexpr uint32_t kSlots[] = {64, 64, 37};  // of each segment file
constexpr uint32_t kLiveRecords = 40;

/// A store's directory with empty segments, made once; the index is written anew for each input.
class Directory {
 public:
  Directory() : log_("fuzz", std::make_shared<spdlog::sinks::null_sink_mt>()) {
    path_ = std::filesystem::exists("/dev/shm") ? "/dev/shm/fuzz-nvme-XXXXXX" : "/tmp/fuzz-nvme-XXXXXX";
    fuzz::require(::mkdtemp(path_.data()) != nullptr, "a directory");
    directory_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (uint32_t i = 0; i < std::size(kSlots); ++i) {
      const std::string name = fmt::format("segment-{:06}", i);
      const Fd file(::openat(directory_.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      fuzz::require(::ftruncate(file.get(), static_cast<off_t>(kSlots[i]) * kSlotSize) == 0, "a segment");
    }
    segments_ = std::move(NvmeSegments::open(kLayout, directory_.get(), path_, 1 << 20, log_).value());
  }
  ~Directory() { std::filesystem::remove_all(path_); }

  int fd() const { return directory_.get(); }
  const NvmeSegments& segments() const { return *segments_; }

 private:
  Logger log_;
  std::string path_;
  Fd directory_;
  std::unique_ptr<NvmeSegments> segments_;
};

std::vector<NvmeRecord> records_of(const uint8_t* data, size_t size) {
  std::vector<NvmeRecord> records(size / sizeof(NvmeRecord));
  for (NvmeRecord& record : records) {
    std::memcpy(static_cast<void*>(&record), data, sizeof record);
    if ((data[0] & 1) == 0) record.seal();
    data += sizeof record;
  }
  return records;
}

void check_slots(const NvmeTable& table, const NvmeSegments& segments) {
  std::vector<bool> taken(std::size(kSlots) * kLayout.segment_slots, false);
  uint64_t used = 0;
  uint64_t records = 0;
  for (const auto& [key, chunk] : table.chunks()) {
    uint64_t slots = 0;
    for (const Extent& extent : chunk.extents()) {
      fuzz::require(segments.contains(extent), "chunks lie in the segments");
      for (uint32_t i = 0; i < extent.count; ++i) {
        fuzz::require(!taken[extent.first + i], "a slot belongs to one chunk");
        taken[extent.first + i] = true;
      }
      slots += extent.count;
    }
    fuzz::require(chunk.length > 0 && slots == slots_for(chunk.length), "a chunk has the slots it needs");
    used += slots;
    records += chunk.parts();
  }
  const uint64_t all = kSlots[0] + kSlots[1] + kSlots[2];
  fuzz::require(used * kSlotSize == table.used_bytes(), "used slots are counted");
  fuzz::require(used + table.space.free_slots() == all, "the other slots are free");
  fuzz::require(records == table.records() && records <= kLiveRecords, "records stay within their limit");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  {
    // The file as it is: header, torn records.
    const Fd raw(::openat(directory.fd(), "index", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    fuzz::require(::pwrite(raw.get(), data, size, 0) == static_cast<ssize_t>(size), "a file");
  }
  if (const auto file = NvmeIndexFile::open(directory.fd(), "index", kLayout.segment_slots)) {
    NvmeTable table(kLayout.segment_slots);
    if (recover_chunks(*file, directory.segments(), kLiveRecords, table))
      check_slots(table, directory.segments());
  }
  auto file = NvmeIndexFile::create(directory.fd(), "index", kLayout.segment_slots);
  fuzz::require(file.ok() && file->append(records_of(data, size)).ok(), "an index");
  NvmeTable table(kLayout.segment_slots);
  const auto report = recover_chunks(*file, directory.segments(), kLiveRecords, table);
  fuzz::require(report.ok(), "an index that can be read is recovered");
  check_slots(table, directory.segments());
  return 0;
}
