#include "cache/catalog/record_chunks.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fnmatch.h>

namespace clairfs {
namespace {

// LMDB, HDF5, NumPy, Arrow, FFCV, MDS, archives whose members are read in place, Megatron and raw tokens.
// Names of what is read from front to back (tar, TFRecord, Parquet) are not among them.
constexpr std::string_view kOfRecords[] = {".mdb",   ".lmdb",  ".h5",  ".hdf5", ".npy",
                                           ".arrow", ".beton", ".mds", ".zip",  ".bin"};

// Smaller files are taken for one sample each, as volumes of medical images are: in many chunks such a file
// would only cost more to keep account of.
constexpr uint64_t kLeastBytes = 64 << 20;

// About the size of a picture.
constexpr uint32_t kUsual = 128 << 10;

// Tables take about 30 bytes a chunk: a quarter of a gigabyte for 1 TB of records. Of more, chunks are
// larger.
constexpr uint64_t kMostChunks = 8 << 20;

}  // namespace

uint32_t RecordChunks::wished(std::string_view path) const {
  const std::string whole(path);
  const std::string name = whole.substr(whole.rfind('/') + 1);
  for (const auto& [pattern, chunk] : wishes_) {
    const bool of_path = pattern.find('/') != std::string::npos;
    if (::fnmatch(pattern.c_str(), (of_path ? whole : name).c_str(), FNM_PATHNAME) == 0) return chunk;
  }
  return 0;
}

std::span<const std::string_view> RecordChunks::endings() {
  return kOfRecords;
}

bool RecordChunks::holds_records(std::string_view name, uint64_t size) {
  return size >= kLeastBytes && std::any_of(std::begin(kOfRecords), std::end(kOfRecords),
                                            [&](std::string_view ending) { return name.ends_with(ending); });
}

uint32_t RecordChunks::usual(uint64_t bytes) {
  uint32_t chunk = kUsual;
  while (bytes / chunk > kMostChunks && chunk < 1U << 30) chunk *= 2;
  return chunk;
}

std::string RecordChunks::text() const {
  std::string text;
  for (const auto& [pattern, chunk] : wishes_) text += fmt::format("{}={}\n", pattern, chunk);
  return text;
}

}  // namespace clairfs
