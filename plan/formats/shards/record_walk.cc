#include "plan/formats/shards/record_walk.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "plan/formats/records/little_endian.h"

namespace clairfs {
namespace {

// Shards whose records are no larger on average are read as a whole: on a parallel filesystem an operation
// costs as much as some ten thousand bytes.
constexpr uint64_t kSmallRecord = 16 << 10;
// As much as the source reads in one operation.
constexpr uint64_t kMostWindow = 1 << 20;

constexpr uint64_t kTfrecordFoot = 4;

constexpr std::array<uint32_t, 256> crc32c_table() {
  constexpr uint32_t kCastagnoli = 0x82f63b78;  // the polynomial, its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[byte] = crc;
  }
  return table;
}

// As TensorFlow keeps it (core/lib/hash/crc32c.h): turned and moved on, since a checksum of what contains
// checksums says little.
uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc32c_table();
  uint32_t crc = UINT32_MAX;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

class TfrecordWalk final : public RecordWalk {
 public:
  explicit TfrecordWalk(uint64_t size) : RecordWalk(size) { needed_ = kTfrecordHead; }

 private:
  Status step(std::string_view bytes) override {
    const Result<uint64_t> frame = tfrecord_frame(bytes);
    if (!frame && at_ == 0)
      return Error{EINVAL, "is no TFRecord file, or a compressed one, in which no record has a place"};
    if (!frame) return Error{EINVAL, fmt::format("is damaged at byte {}", at_)};
    if (*frame > size_ - at_) return Error{EINVAL, "is cut off"};
    records_.push_back({at_, *frame});
    at_ += *frame;
    return {};
  }
};

}  // namespace

uint64_t RecordWalk::wanted() const {
  return std::min(std::max(needed_, window_), size_ - at_);
}

Status RecordWalk::take(std::string_view bytes) {
  const uint64_t begun = at_;
  uint64_t headers = 0;
  while (!done() && at_ - begun < bytes.size()) {
    if (needed_ > size_ - at_) return Error{EINVAL, "is cut off"};
    const std::string_view rest = bytes.substr(at_ - begun);
    if (rest.size() < needed_) break;
    if (Status status = step(rest); !status) return status;
    ++headers;
  }
  const bool small = headers > 0 && (at_ - begun) / headers <= kSmallRecord;
  window_ = small ? std::min(2 * window_, kMostWindow) : kLeastWindow;
  return {};
}

Result<uint64_t> tfrecord_frame(std::string_view head) {
  const Error none{EINVAL, "is no frame of a TFRecord file"};
  if (head.size() < kTfrecordHead) return none;
  const uint64_t length = little_endian_at(head, 0, 8);
  if (masked_crc32c(head.substr(0, 8)) != little_endian_at(head, 8, 4)) return none;
  if (length > INT64_MAX - kTfrecordHead - kTfrecordFoot) return none;
  return kTfrecordHead + length + kTfrecordFoot;
}

std::unique_ptr<RecordWalk> walk_tfrecord(uint64_t size) {
  return std::make_unique<TfrecordWalk>(size);
}

}  // namespace clairfs
