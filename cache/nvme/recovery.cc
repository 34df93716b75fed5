#include "cache/nvme/recovery.h"

#include <algorithm>
#include <utility>

namespace clairfs {
namespace {

// Follows the log of puts and drops.
class Replay {
 public:
  Replay(const NvmeSegments& segments, NvmeRecoveryReport& report) : segments_(segments), report_(report) {}

  void add(const NvmeRecord& record, uint32_t number) {
    const bool put = record.kind == NvmeRecord::Kind::put;
    if (!record.intact() || (!put && record.kind != NvmeRecord::Kind::drop)) {
      ++report_.damaged_records;
      parts_.clear();
    } else if (!put) {
      parts_.clear();
      chunks.erase(record.key);
    } else {
      add_part(record, number);
    }
  }

  NvmeTable::Chunks chunks;

 private:
  void add_part(const NvmeRecord& record, uint32_t number) {
    if (record.part == 0) {
      parts_.clear();
      head_ = record;
      first_number_ = number;
    }
    const bool fits = record.part == parts_.size() && record.part < record.parts && record.key == head_.key &&
                      record.parts == head_.parts && record.length == head_.length &&
                      record.checksum == head_.checksum;
    if (!fits) {
      ++report_.damaged_records;
      parts_.clear();
      return;
    }
    parts_.push_back(record.extent);
    if (parts_.size() == record.parts) put();
  }

  void put() {
    uint64_t slots = 0;
    bool inside = head_.length > 0;
    for (const Extent& extent : parts_) {
      slots += extent.count;
      inside = inside && segments_.contains(extent);
    }
    chunks.erase(head_.key);
    if (inside && slots == slots_for(head_.length)) {
      NvmeChunk chunk = NvmeChunk::make(head_.length, head_.checksum, parts_);
      chunk.record = first_number_;
      chunks.emplace(head_.key, std::move(chunk));
    } else {
      ++report_.outside;
    }
    parts_.clear();
  }

  const NvmeSegments& segments_;
  NvmeRecoveryReport& report_;
  NvmeRecord head_;
  uint32_t first_number_ = 0;
  std::vector<Extent> parts_;
};

// One bit a slot of the segments that exist.
class SlotMap {
 public:
  explicit SlotMap(const NvmeSegments& segments) : segment_slots_(segments.layout().segment_slots) {
    for (const Extent& extent : segments.extents()) taken_.emplace_back(extent.count, false);
  }

  // Takes all the extents, or none and returns false when some slot is taken already.
  bool take(const std::vector<Extent>& extents) {
    size_t marked = 0;
    for (; marked < extents.size() && !any(extents[marked]); ++marked) mark(extents[marked], true);
    if (marked == extents.size()) return true;
    while (marked-- > 0) mark(extents[marked], false);
    return false;
  }

  void give_free_slots(NvmeSpace& space) const {
    for (size_t s = 0; s < taken_.size(); ++s) {
      const auto& bits = taken_[s];
      for (auto from = bits.begin(); (from = std::find(from, bits.end(), false)) != bits.end();) {
        const auto to = std::find(from, bits.end(), true);
        space.release({static_cast<uint32_t>(s * segment_slots_ + static_cast<size_t>(from - bits.begin())),
                       static_cast<uint32_t>(to - from)});
        from = to;
      }
    }
  }

 private:
  bool any(Extent extent) const {
    const auto from = taken_[extent.first / segment_slots_].begin() + extent.first % segment_slots_;
    return std::find(from, from + extent.count, true) != from + extent.count;
  }
  void mark(Extent extent, bool value) {
    const auto from = taken_[extent.first / segment_slots_].begin() + extent.first % segment_slots_;
    std::fill(from, from + extent.count, value);
  }

  const size_t segment_slots_;
  std::vector<std::vector<bool>> taken_;
};

Status replay_all(const NvmeIndexFile& file, Replay& replay) {
  std::vector<NvmeRecord> batch(4096);  // 192 KiB
  for (uint32_t number = 0; number < file.records();) {
    const auto count = file.read(number, batch);
    if (!count) return count.error();
    if (*count == 0) break;
    for (size_t i = 0; i < *count; ++i) replay.add(batch[i], number + static_cast<uint32_t>(i));
    number += static_cast<uint32_t>(*count);
  }
  return {};
}

}  // namespace

Result<NvmeRecoveryReport> recover_chunks(const NvmeIndexFile& file, const NvmeSegments& segments,
                                          uint32_t live_records, NvmeTable& table) {
  NvmeRecoveryReport report;
  Replay replay(segments, report);
  const Status status = replay_all(file, replay);

  std::vector<NvmeTable::Chunks::value_type*> newest_first;
  newest_first.reserve(replay.chunks.size());
  for (auto& entry : replay.chunks) newest_first.push_back(&entry);
  std::sort(newest_first.begin(), newest_first.end(),
            [](const auto* a, const auto* b) { return a->second.record > b->second.record; });
  SlotMap slots(segments);
  for (auto* entry : newest_first) {
    if (table.records() + entry->second.parts() > live_records) {
      ++report.beyond_limit;
    } else if (!slots.take(entry->second.extents())) {
      ++report.overlapping;
    } else {
      table.insert(entry->first, std::move(entry->second));
    }
  }
  slots.give_free_slots(table.space);
  if (!status) return status.error();
  return report;
}

}  // namespace clairfs
