#include "plan/run/index_report.h"

#include <algorithm>
#include <bit>
#include <set>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/plural.h"
#include "cache/base/units.h"

namespace clairfs {
namespace {

// Of samples, bytes.
struct Sizes {
  uint64_t all = 0;
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  std::set<FileId> files;
};

Sizes sizes_of(const SampleIndex& index) {
  Sizes sizes;
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    uint64_t bytes = 0;
    for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
      const ByteRange range = index.range(sample, piece);
      bytes += range.length;
      sizes.files.insert(range.file);
    }
    sizes.all += bytes;
    sizes.least = std::min(sizes.least, bytes);
    sizes.most = std::max(sizes.most, bytes);
  }
  return sizes;
}

uint64_t largest_chunk(const Catalog& catalog, const std::set<FileId>& files) {
  uint64_t largest = 0;
  for (const FileId file : files) {
    const Catalog::Chunks chunks = catalog.chunks(file);
    if (chunks.count > 0) largest = std::max<uint64_t>(largest, catalog.range(chunks.first).length);
  }
  return largest;
}

std::string where_from(const IndexWork& work, Duration took) {
  const double seconds = in_seconds(work.took().value_or(took));
  if (work.origin() == IndexWork::Origin::memory) return "in use by a plan already";
  const std::string file = work.file().empty() ? "" : escaped(work.file());
  if (work.origin() == IndexWork::Origin::file)
    return fmt::format("reloaded in {:.3f} s from {}", seconds, file);
  const std::string saved = file.empty() ? "not saved" : "saved in " + file;
  if (work.origin() == IndexWork::Origin::node)
    return fmt::format("sent by another node in {:.2f} s; {}", seconds, saved);
  return fmt::format("made in {:.2f} s; {} read of the dataset; {}", seconds, format_size(work.bytes_read()),
                     saved);
}

std::string advice(const SampleIndex& index, const Catalog& catalog, const Sizes& sizes) {
  const uint64_t mean = sizes.all / index.size();
  const uint64_t chunk = largest_chunk(catalog, sizes.files);
  const uint64_t wanted = chunk_for_records(mean);
  if (chunk <= 2 * wanted) return fmt::format("{} suit these samples", format_size(chunk));
  const std::string name = escaped(catalog.name(*sizes.files.begin()));
  return fmt::format("{} hold {} samples each; better: clairfs mount --record-chunk '{}={}K'",
                     format_size(chunk), chunk / std::max<uint64_t>(mean, 1),
                     sizes.files.size() == 1 ? name : "GLOB", wanted >> 10);
}

// Of rows of which libhdf5 reads at least twice what they have; nothing of others.
std::string advice_on_rows(const SampleIndex& index) {
  if (index.format() != "hdf5") return "";
  for (uint32_t piece = 0; piece < index.range_count(0); ++piece) {
    const ByteRange row = index.range(0, piece);
    const uint64_t read = index.read_end(row) - row.offset;
    if (read < 2 * row.length) continue;
    return fmt::format(
        "rows     of {} lie in one piece: libhdf5 reads {} for each; better: chunks of one row\n",
        format_size(row.length), format_size(read));
  }
  return "";
}

}  // namespace

uint64_t chunk_for_records(uint64_t mean) {
  constexpr uint64_t kLeast = 128 << 10;  // below, each chunk costs as much as its bytes
  constexpr uint64_t kMost = 1 << 20;     // above, a piece of a chunk is fetched as well as a chunk
  return std::bit_ceil(std::clamp(mean, kLeast, kMost));
}

std::string index_report(const SampleIndex& index, const Catalog& catalog, const IndexWork& work,
                         Duration took) {
  const Sizes sizes = sizes_of(index);
  uint64_t shared = 0;
  for (const ByteRange& range : index.shared_ranges()) shared += range.length;
  std::string report = fmt::format("samples  {} in {} (format={})\n", index.size(),
                                   pluralize(sizes.files.size(), "file", "files"), index.format());
  report +=
      fmt::format("sizes    {} in all; mean {}, smallest {}, largest {}\n", format_size(sizes.all),
                  format_size(sizes.all / index.size()), format_size(sizes.least), format_size(sizes.most));
  report += fmt::format("shared   {} that every reader needs\n", format_size(shared));
  report +=
      fmt::format("index    {} in memory; {}\n", format_size(index.memory_bytes()), where_from(work, took));
  report += advice_on_rows(index);
  return report + "chunks   " + advice(index, catalog, sizes) + "\n";
}

}  // namespace clairfs
