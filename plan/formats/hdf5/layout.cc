#include "plan/formats/hdf5/layout.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace clairfs::hdf5 {
namespace {

// A dataset is small if the others have so many times its bytes. Labels of 8 bytes are a hundredth of the
// smallest images, and pushing a thousandth of a page for a sample would cost as much as the image.
constexpr uint64_t kSmallPart = 64;

Error senseless(const std::string& what) {
  return {EINVAL, "is damaged, or libhdf5 was misled by it: " + what};
}

template <class T>
T copy_of(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

Storage storage_of(const Dataset& dataset) {
  return static_cast<Storage>(dataset.head.storage);
}

uint64_t blocks(const DatasetHead& head) {
  return head.rows / head.chunk_rows + (head.rows % head.chunk_rows == 0 ? 0 : 1);
}

bool is_small(const Dataset& dataset, uint64_t stored) {
  return dataset.stored < stored / kSmallPart;
}

// Each row of a block has all its chunks.
uint64_t pieces_of(const Dataset& dataset) {
  uint64_t pieces = 0;
  for (const StoredChunk& chunk : dataset.chunks) {
    const uint64_t first_row = chunk.block * dataset.head.chunk_rows;
    pieces += std::min(dataset.head.chunk_rows, dataset.head.rows - first_row);
  }
  return pieces;
}

// What is stored of a dataset, row by row.
class RowReader {
 public:
  RowReader(const Dataset& dataset, FileId file, RecordTableBuilder& table)
      : dataset_(dataset), file_(file), table_(table) {}

  // REQUIRES: called for each row, in order.
  Status add_ranges(uint64_t row) {
    const DatasetHead& head = dataset_.head;
    if (storage_of(dataset_) == Storage::contiguous) {
      if (dataset_.stored == 0) return {};
      return table_.add_range({file_, head.offset + row * head.row_bytes, head.row_bytes});
    }
    if (storage_of(dataset_) != Storage::chunked) return {};
    const uint64_t block = row / head.chunk_rows;
    const auto& chunks = dataset_.chunks;
    while (next_ < chunks.size() && chunks[next_].block < block) ++next_;
    for (size_t at = next_; at < chunks.size() && chunks[at].block == block; ++at) {
      if (Status status = table_.add_range({file_, chunks[at].offset, chunks[at].length}); !status)
        return status;
    }
    return {};
  }

 private:
  const Dataset& dataset_;
  const FileId file_;
  RecordTableBuilder& table_;
  size_t next_ = 0;
};

Status share(const Dataset& dataset, FileId file, RecordTableBuilder& table) {
  if (storage_of(dataset) == Storage::contiguous && dataset.stored != 0)
    return table.share({file, dataset.head.offset, dataset.stored});
  for (const StoredChunk& chunk : dataset.chunks) {
    if (Status status = table.share({file, chunk.offset, chunk.length}); !status) return status;
  }
  return {};
}

}  // namespace

Status check_pieces(uint64_t pieces) {
  if (pieces <= kMostPieces) return {};
  return Error{EINVAL, fmt::format("has rows in {} pieces of chunks, more than {}; want chunks of fewer rows "
                                   "that hold more of each",
                                   pieces, kMostPieces)};
}

Status Layout::take(Say say, std::string_view bytes) {
  if (say == Say::dataset && bytes.size() == sizeof(DatasetHead))
    return take_dataset(copy_of<DatasetHead>(bytes));
  if (say != Say::chunks || bytes.size() % sizeof(StoredChunk) != 0) return senseless("unknown message");
  for (; !bytes.empty(); bytes.remove_prefix(sizeof(StoredChunk))) {
    if (Status status = take_chunk(copy_of<StoredChunk>(bytes)); !status) return status;
  }
  return {};
}

Status Layout::take_dataset(const DatasetHead& head) {
  if (datasets_.size() == wanted_) return senseless("more datasets than were asked for");
  if (head.storage > static_cast<uint64_t>(Storage::chunked)) return senseless("unknown kind of storage");
  if (head.rows >= UINT32_MAX)
    return Error{EINVAL, fmt::format("has {} rows, more than 32 bits can number", head.rows)};
  // Each row of a sample takes memory; of what was never written, or packs that tightly, nothing can be
  // planned.
  if (head.rows > file_bytes_) return senseless(fmt::format("{} rows in {} bytes", head.rows, file_bytes_));
  Dataset dataset{head};
  if (head.storage == static_cast<uint64_t>(Storage::chunked) && head.chunk_rows == 0)
    return senseless("chunks without rows");
  if (head.storage == static_cast<uint64_t>(Storage::contiguous) && head.offset != kNowhere) {
    const bool overflow = __builtin_mul_overflow(head.rows, head.row_bytes, &dataset.stored);
    if (overflow || head.offset > file_bytes_ || dataset.stored > file_bytes_ - head.offset)
      return senseless("a dataset that does not lie within the file");
  }
  datasets_.push_back(std::move(dataset));
  return {};
}

Status Layout::take_chunk(const StoredChunk& chunk) {
  if (datasets_.empty() || storage_of(datasets_.back()) != Storage::chunked)
    return senseless("chunks of no dataset");
  Dataset& dataset = datasets_.back();
  if (chunk.block >= blocks(dataset.head)) return senseless("a chunk beyond its dataset");
  if (!dataset.chunks.empty() && chunk.block < dataset.chunks.back().block)
    return senseless("chunks out of order");
  if (chunk.length == 0 || chunk.offset > file_bytes_ || chunk.length > file_bytes_ - chunk.offset)
    return senseless("a chunk that does not lie within the file");
  if (chunk.length > file_bytes_ - dataset.stored)  // so that there are fewer chunks than bytes
    return senseless("chunks that lie one upon the other");
  dataset.stored += chunk.length;
  dataset.chunks.push_back(chunk);
  return {};
}

Status Layout::finish() const {
  if (datasets_.empty() || datasets_.size() != wanted_)
    return senseless("fewer datasets than were asked for");
  for (const Dataset& dataset : datasets_) {
    if (dataset.head.rows == datasets_.front().head.rows) continue;
    return Error{EINVAL, fmt::format("has datasets of {} and of {} rows; want as many in each",
                                     datasets_.front().head.rows, dataset.head.rows)};
  }
  return check_pieces(pieces());
}

uint64_t Layout::stored() const {
  uint64_t stored = 0;
  for (const Dataset& dataset : datasets_) stored += dataset.stored;
  return stored;
}

uint64_t Layout::pieces() const {
  const uint64_t all = stored();
  uint64_t pieces = 0;
  for (const Dataset& dataset : datasets_) pieces += is_small(dataset, all) ? 0 : pieces_of(dataset);
  return pieces;
}

void Layout::note_progress(IndexWork& work) const {
  if (datasets_.empty() || datasets_.back().chunks.empty()) return;
  work.note(datasets_.back().chunks.back().block + 1, blocks(datasets_.back().head));
}

Status Layout::add_samples(FileId file, RecordTableBuilder& table) const {
  const uint64_t all_stored = stored();
  std::vector<RowReader> parts;
  for (const Dataset& dataset : datasets_) {
    if (is_small(dataset, all_stored)) {
      if (Status status = share(dataset, file, table); !status) return status;
      continue;
    }
    parts.emplace_back(dataset, file, table);
    if (storage_of(dataset) != Storage::contiguous || dataset.head.row_bytes >= kSieveBytes) continue;
    const ByteRange all{file, dataset.stored == 0 ? 0 : dataset.head.offset, dataset.stored};
    if (Status status = table.set_read_on(all, kSieveBytes); !status) return status;
  }
  for (uint64_t row = 0; row < datasets_.front().head.rows; ++row) {
    if (Status status = table.add_sample(); !status) return status;
    for (RowReader& part : parts) {
      if (Status status = part.add_ranges(row); !status) return status;
    }
  }
  return {};
}

}  // namespace clairfs::hdf5
