#include "plan/inference/watched/sighting.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace clairfs {
namespace {

// Pages around a fault: of the kernel's own readahead, and at most what a mount sets instead (1 MiB).
constexpr uint64_t kLeastAround = (128 << 10) / kPageSize;
constexpr uint64_t kMostAround = (1 << 20) / kPageSize;

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
  uint32_t samples = 0;
  index.samples_of(file, page, kPageSize, [&](uint32_t sample) {
    // Those that begin here come first, so a third sample changes nothing.
    if (++samples > 2) return;
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

bool Sightings::Asked::has_any(uint64_t first, uint64_t end) const {
  const auto behind = runs.lower_bound(end);
  return behind != runs.begin() && std::prev(behind)->second > first;
}

void Sightings::Asked::add(uint64_t first, uint64_t end) {
  const auto behind = runs.lower_bound(first);
  const bool goes_on = behind != runs.begin() && std::prev(behind)->second == first;
  const auto run = goes_on ? std::prev(behind) : runs.emplace_hint(behind, first, end);
  run->second = end;
  if (behind == runs.end() || behind->first != end) return;
  run->second = behind->second;
  runs.erase(behind);
}

// What lies around a fault near the file's beginning begins there, and its middle says nothing.
std::optional<uint64_t> Sightings::Asked::fault_in(uint64_t first, uint64_t end) {
  const uint64_t count = end - first;
  const bool is_whole = count >= kLeastAround && count <= kMostAround && std::has_single_bit(count);
  if (is_whole) around = std::max(around, count);
  if (first == 0 || count > around) return std::nullopt;
  const bool is_begun = !has_any(first - 1, first);  // with what comes first around the fault
  const bool is_ended = !has_any(end, end + 1);
  const uint64_t half = around / 2;
  if (is_begun && is_ended) return is_whole ? std::optional(first + count / 2) : std::nullopt;
  if (is_begun && half < count) return first + half;
  if (is_ended && half <= count && count < around) return end - half;
  return std::nullopt;
}

// Pages that are asked for again the kernel had given up, and nobody knows which others.
std::optional<uint32_t> Sightings::next(FileId file, uint64_t offset, uint64_t length) {
  if (length == 0) return std::nullopt;
  Asked& asked = asked_[file];
  const uint64_t first = offset / kPageSize;
  const uint64_t end = round_to_pages(offset + length) / kPageSize;
  if (asked.has_any(first, end)) asked.runs.clear();
  std::optional<Piece> shown = piece_of_page(index_, file, offset);
  if (!shown || offset + length > round_to_pages(shown->end)) {
    const std::optional<uint64_t> fault = asked.fault_in(first, end);
    shown = fault ? piece_of_page(index_, file, *fault * kPageSize) : std::nullopt;
  }
  asked.add(first, end);
  return shown ? std::optional(shown->sample) : std::nullopt;
}

}  // namespace clairfs
