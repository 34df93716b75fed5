// A store in a temporary directory, and calls on it that wait.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <xxhash.h>

#include "cache/nvme/store_impl.h"
#include "tests/support/moved_clock.h"
#include "tests/unit/cache/io/io_support.h"

namespace clairfs::testing {

/// Segments of 256 KiB that grow by 64 KiB: every boundary is met soon.
inline constexpr SegmentLayout kSmallSegments{64, 16, 4};

inline ChunkKey key_of(uint64_t n) {
  return {n * 0x9e3779b97f4a7c15ULL + 1, n * 0xc2b2ae3d27d4eb4fULL + 2};
}

/// The one content that belongs to a key number: wrong data is seen as such.
inline std::string content_of(uint64_t n, size_t length) {
  std::string text(length, '\0');
  uint64_t x = n * 0x2545f4914f6cdd1dULL + 1;
  for (size_t i = 0; i < length; ++i) {
    if (i % 8 == 0) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    text[i] = static_cast<char>(x >> (8 * (i % 8)));
  }
  return text;
}

/// Largest of size and allocated blocks, over all files of the directory.
inline uint64_t bytes_in(const std::string& directory) {
  uint64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat st;
    if (::lstat(entry.path().c_str(), &st) != 0) continue;
    total += std::max(static_cast<uint64_t>(st.st_size), static_cast<uint64_t>(st.st_blocks) * 512);
  }
  return total;
}

/// The padded length, in pieces of `pages` pages.
inline std::vector<iovec> pieces_of(const Buffer& buffer, size_t pages) {
  std::vector<iovec> pieces;
  for (size_t at = 0; at < buffer.size(); at += pages * kSlotSize) {
    pieces.push_back({buffer.data() + at, std::min(pages * kSlotSize, buffer.size() - at)});
  }
  return pieces;
}

/// As callers that do not wait for the disk.
inline Status put_at_once(NvmeStore& store, uint64_t n, const std::string& content, size_t pages = 1 << 20) {
  const Buffer buffer(size_t{slots_for(content.size())} * kSlotSize);
  content.copy(buffer.data(), content.size());
  Waiter<Status> waiter;
  store.write(key_of(n), pieces_of(buffer, pages), static_cast<uint32_t>(content.size()),
              XXH3_64bits(content.data(), content.size()), waiter.callback());
  return waiter.get();
}

/// As callers that do.
inline Status put(NvmeStore& store, uint64_t n, const std::string& content, size_t pages = 1 << 20) {
  store.grow_for(content.size());
  return put_at_once(store, n, content, pages);
}

inline Result<std::string> get(NvmeStore& store, uint64_t n, size_t pages = 1 << 20) {
  const uint32_t length = store.length_of(key_of(n));
  const Buffer buffer(size_t{slots_for(std::max(length, 1U))} * kSlotSize);
  Waiter<Status> waiter;
  store.read(key_of(n), pieces_of(buffer, pages), waiter.callback());
  if (const Status status = waiter.get(); !status) return status.error();
  return buffer.text(length);
}

/// Members in the order in which they depend on each other.
struct StoreFixture {
  explicit StoreFixture(IoKind kind) {
    IoOptions options;
    options.kind = kind;
    options.depth = 4;
    io = std::move(make_io_backend(options, log.log).value());
  }

  Result<std::unique_ptr<NvmeStore>> try_open(const SegmentLayout& layout = kSmallSegments) {
    return open_nvme_store({directory, capacity}, layout, *io, clock, log.log, metrics);
  }
  /// (Re)opens; what the last one left is on disk.
  NvmeStore& open(const SegmentLayout& layout = kSmallSegments) {
    store.reset();
    store = std::move(try_open(layout).value());
    return *store;
  }

  TemporaryDirectory temporary;
  std::string directory = temporary / "store";
  uint64_t capacity = 2 << 20;
  MovedClock clock;
  CapturedLog log;
  Metrics metrics;
  std::unique_ptr<IoBackend> io;
  std::unique_ptr<NvmeStore> store;
};

}  // namespace clairfs::testing
