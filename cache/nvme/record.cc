#include "cache/nvme/record.h"

#include <cstring>

#include <xxhash.h>

namespace clairfs {
namespace {

template <class Entry>
uint64_t check_of(const Entry& entry) {
  char bytes[sizeof(Entry)];
  std::memcpy(bytes, &entry, sizeof bytes);
  return XXH3_64bits(bytes + sizeof entry.check, sizeof bytes - sizeof entry.check);
}

}  // namespace

void NvmeRecord::seal() {
  check = check_of(*this);
}

bool NvmeRecord::intact() const {
  return check == check_of(*this);
}

NvmeIndexHeader NvmeIndexHeader::make(uint32_t segment_slots) {
  NvmeIndexHeader header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.record_size = sizeof(NvmeRecord);
  header.slot_size = kSlotSize;
  header.segment_slots = segment_slots;
  header.check = check_of(header);
  return header;
}

bool NvmeIndexHeader::operator==(const NvmeIndexHeader& other) const {
  return std::memcmp(this, &other, sizeof *this) == 0;
}

}  // namespace clairfs
