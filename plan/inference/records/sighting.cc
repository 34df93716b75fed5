#include "plan/inference/records/sighting.h"

#include <bit>

namespace clairfs {
namespace {

// Bytes around a page fault: of the kernel's own readahead, and at most what a mount sets instead (1 MiB).
constexpr uint64_t kLeastAround = 128 << 10;
constexpr uint64_t kMostAround = 1 << 20;

struct Piece {
  uint32_t sample = 0;
  uint64_t end = 0;  // where its reader stops
};

// Counts the samples that a page may show.
struct Claims {
  uint32_t samples = 0;
  Piece last{};

  void add(uint32_t sample, uint64_t end) {
    if (samples == 0 || last.sample != sample) ++samples;
    last = {sample, end};
  }
  std::optional<Piece> only() const { return samples == 1 ? std::optional(last) : std::nullopt; }
};

// The piece that the page from `page` on is read for.
std::optional<Piece> piece_of_page(const SampleIndex& index, FileId file, uint64_t page) {
  Claims begun;
  Claims held;
  index.samples_of(file, page, kPageSize, [&](uint32_t sample) {
    for (uint32_t i = 0; i < index.range_count(sample); ++i) {
      const ByteRange piece = index.range(sample, i);
      const bool is_here = piece.file == file && piece.offset < page + kPageSize &&
                           piece.offset + piece.length > page && piece.length > 0;
      if (is_here) (piece.offset >= page ? begun : held).add(sample, index.read_end(piece));
    }
  });
  return begun.samples > 0 ? begun.only() : held.only();
}

}  // namespace

std::optional<uint32_t> record_shown(const SampleIndex& index, FileId file, uint64_t offset,
                                     uint64_t length) {
  if (length == 0) return std::nullopt;
  const auto first = piece_of_page(index, file, offset);
  if (first && offset + length <= round_to_pages(first->end)) return first->sample;
  // What lies around a fault near the file's beginning begins there, and its middle says nothing.
  const bool is_around =
      offset > 0 && length >= kLeastAround && length <= kMostAround && std::has_single_bit(length);
  if (!is_around) return std::nullopt;
  const auto middle = piece_of_page(index, file, offset + length / 2);
  return middle ? std::optional(middle->sample) : std::nullopt;
}

}  // namespace clairfs
