#include "plan/formats/samples/record_table.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "cache/base/checksum.h"
#include "cache/base/escaped.h"

namespace clairfs {
namespace {

void sort_unique(std::vector<uint32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

bool comes_before(const ByteRange& a, const ByteRange& b) {
  return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
}

}  // namespace

// Samples with bytes at addresses [begin, end): by where they begin, the likeliest first.
struct RecordTable::Found {
  uint64_t begin;
  uint64_t likely_until;
  uint64_t end;
  std::vector<uint32_t> likely{};  // from `begin` to before `likely_until`
  std::vector<uint32_t> before{};
  std::vector<uint32_t> behind{};

  std::vector<uint32_t>& of(uint64_t address) {
    return address < begin ? before : address < likely_until ? likely : behind;
  }
};

ByteRange RecordTable::range(uint32_t sample, uint32_t piece) const {
  const uint32_t range = first_range(sample) + piece;
  const uint64_t address = addresses_[range];
  const auto after = std::upper_bound(files_.begin(), files_.end(), address,
                                      [](uint64_t wanted, const File& file) { return wanted < file.start; });
  const File& file = *std::prev(after);
  return {file.id, address - file.start, lengths_[range]};
}

uint64_t RecordTable::read_end(const ByteRange& piece) const {
  if (read_on_.empty()) return SampleIndex::read_end(piece);
  const uint64_t end = piece.offset + piece.length;
  const auto after = std::upper_bound(read_on_.begin(), read_on_.end(), piece, comes_before);
  if (after == read_on_.begin()) return end;
  const ByteRange& place = *std::prev(after);
  const uint64_t last = place.offset + place.length;
  if (place.file != piece.file || last <= piece.offset) return end;
  return std::max(end, std::min(piece.offset + read_block_, last));
}

uint32_t RecordTable::sample_of(uint32_t range) const {
  if (starts_.empty()) return range;
  return static_cast<uint32_t>(std::upper_bound(starts_.begin(), starts_.end(), range) - starts_.begin() - 1);
}

const RecordTable::File* RecordTable::find_file(FileId file) const {
  const auto found = std::lower_bound(files_by_id_.begin(), files_by_id_.end(), file,
                                      [&](uint32_t at, FileId wanted) { return files_[at].id < wanted; });
  return found != files_by_id_.end() && files_[*found].id == file ? &files_[*found] : nullptr;
}

void RecordTable::samples_of(FileId file, uint64_t offset, uint64_t length,
                             const std::function<void(uint32_t sample)>& visit) const {
  const File* const known = find_file(file);
  const uint64_t size = known != nullptr ? catalog_->stamp(file).size : 0;
  if (offset >= size || length == 0) return;
  const uint64_t end = offset + std::min(length, size - offset);
  Found found{known->start + offset, known->start + likely_until(offset, end), known->start + end};
  find(0, ranges(), found);
  const std::array kinds{&found.likely, &found.before, &found.behind};
  for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
    sort_unique(**kind);
    for (const uint32_t sample : **kind) {
      const bool visited = std::any_of(kinds.begin(), kind, [sample](const auto* sooner) {
        return std::binary_search(sooner->begin(), sooner->end(), sample);
      });
      if (!visited) visit(sample);
    }
  }
}

// Of the ranges by address from `first` to before `past`: a binary search that looks at both halves, unless
// all of one ends before what is wanted, or begins behind it.
void RecordTable::find(uint32_t first, uint32_t past, Found& found) const {
  if (first == past) return;
  const uint32_t middle = first + (past - first) / 2;
  const uint64_t reach = reach_.size() == 0 ? end_of(by_address(past - 1)) : reach_[middle];
  if (reach <= found.begin) return;
  find(first, middle, found);
  const uint32_t range = by_address(middle);
  if (addresses_[range] >= found.end) return;
  if (lengths_[range] != 0 && end_of(range) > found.begin)
    found.of(addresses_[range]).push_back(sample_of(range));
  find(middle + 1, past, found);
}

uint64_t RecordTable::note_reach(uint32_t first, uint32_t past) {
  if (first == past) return 0;
  const uint32_t middle = first + (past - first) / 2;
  const uint64_t reach =
      std::max({note_reach(first, middle), end_of(by_address(middle)), note_reach(middle + 1, past)});
  reach_.set(middle, reach);
  return reach;
}

void RecordTable::sort_files() {
  files_by_id_.resize(files_.size());
  std::iota(files_by_id_.begin(), files_by_id_.end(), 0U);
  std::sort(files_by_id_.begin(), files_by_id_.end(),
            [&](uint32_t a, uint32_t b) { return files_[a].id < files_[b].id; });
}

void RecordTable::sort_ranges() {
  const auto before = [&](uint32_t a, uint32_t b) {
    return std::pair(addresses_[a], end_of(a)) < std::pair(addresses_[b], end_of(b));
  };
  bool sorted = true;
  for (uint32_t range = 1; range < ranges() && sorted; ++range) sorted = !before(range, range - 1);
  if (!sorted) {
    by_address_.resize(ranges());
    std::iota(by_address_.begin(), by_address_.end(), 0U);
    std::sort(by_address_.begin(), by_address_.end(), before);
  }
  bool ends_ascend = true;
  uint64_t end = 0;  // of what lies before
  for (uint32_t rank = 0; rank < ranges(); ++rank) {
    const uint32_t range = by_address(rank);
    shares_bytes_ = shares_bytes_ || (lengths_[range] != 0 && addresses_[range] < end);
    ends_ascend = ends_ascend && end <= end_of(range);
    end = std::max(end, end_of(range));
  }
  if (ends_ascend) return;
  reach_.resize(ranges());
  note_reach(0, ranges());
}

void RecordTable::note_identity() {
  Xxh3Stream stream;
  const auto add = [&](const auto& numbers) {
    const std::span bytes = std::as_bytes(std::span(numbers));
    uint64_t count = bytes.size();
    stream.add(
        std::vector<iovec>{{&count, sizeof count}, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  };
  add(format_);
  for (const File& file : files_) {
    const FileStamp stamp = catalog_->stamp(file.id);
    add(catalog_->path(file.id));
    add(std::array{stamp.size, static_cast<uint64_t>(stamp.mtime_ns)});
  }
  add(std::array{samples_, read_block_, static_cast<uint32_t>(read_on_.size())});
  for (const CompactNumbers* numbers : {&addresses_, &lengths_}) {
    add(numbers->low());
    add(numbers->high());
  }
  add(starts_);
  identity_ = stream.digest();
}

std::string RecordTable::path(uint32_t sample) const {
  const std::string file = range_count(sample) == 0 ? "" : catalog_->path(range(sample, 0).file);
  return fmt::format("{}[{}]", file, sample);
}

uint64_t RecordTable::memory_bytes() const {
  return sizeof(*this) + files_.capacity() * sizeof(File) + addresses_.memory_bytes() +
         lengths_.memory_bytes() + reach_.memory_bytes() +
         (shared_.capacity() + read_on_.capacity()) * sizeof(ByteRange) +
         (files_by_id_.capacity() + starts_.capacity() + by_address_.capacity()) * sizeof(uint32_t);
}

RecordTableBuilder::RecordTableBuilder(std::shared_ptr<const Catalog> catalog, std::string_view format)
    : table_(new RecordTable(std::move(catalog), format)) {}

Status RecordTableBuilder::check(const ByteRange& range) const {
  const uint64_t size = table_->catalog_->stamp(range.file).size;
  if (range.offset <= size && range.length <= size - range.offset) return {};
  return Error{EINVAL, fmt::format("{} bytes at {} lie outside {}, which has {}", range.length, range.offset,
                                   escaped(table_->catalog_->path(range.file)), size)};
}

Result<uint64_t> RecordTableBuilder::start_of(FileId file) {
  if (!starts_.empty() && file == latest_) return latest_start_;
  const auto [known, added] = starts_.emplace(file, next_start_);
  if (added) {
    const uint64_t size = table_->catalog_->stamp(file).size;
    if (size >= CompactNumbers::kMost - next_start_) {
      starts_.erase(known);
      return Error{EINVAL, "files of more than 256 TiB in all; want several plans"};
    }
    table_->files_.push_back({file, next_start_});
    next_start_ += size + 1;
  }
  latest_ = file;
  latest_start_ = known->second;
  return latest_start_;
}

Status RecordTableBuilder::add_sample() {
  if (table_->samples_ == UINT32_MAX - 1) return Error{EINVAL, "too many samples; want less than 2^32 - 1"};
  table_->starts_.push_back(table_->ranges());
  ++table_->samples_;
  return {};
}

Status RecordTableBuilder::add_range(const ByteRange& range) {
  if (Status status = check(range); !status) return status;
  if (table_->ranges() == UINT32_MAX - 1) return Error{EINVAL, "too many ranges; want less than 2^32 - 1"};
  const Result<uint64_t> start = start_of(range.file);
  if (!start) return start.error();
  table_->addresses_.push_back(*start + range.offset);
  table_->lengths_.push_back(range.length);
  return {};
}

Status RecordTableBuilder::add_sample(const ByteRange& range) {
  if (Status status = add_sample(); !status) return status;
  return add_range(range);
}

Status RecordTableBuilder::share(const ByteRange& range) {
  if (Status status = check(range); !status) return status;
  if (range.length != 0) table_->shared_.push_back(range);
  return {};
}

Status RecordTableBuilder::set_read_on(const ByteRange& place, uint32_t bytes) {
  if (Status status = check(place); !status) return status;
  if (place.length != 0) table_->read_on_.push_back(place);
  table_->read_block_ = bytes;
  return {};
}

void RecordTableBuilder::merge(std::vector<ByteRange>& places) {
  std::sort(places.begin(), places.end(), comes_before);
  size_t merged = 0;
  for (const ByteRange& next : places) {
    ByteRange* const last = merged == 0 ? nullptr : &places[merged - 1];
    if (last != nullptr && last->file == next.file && next.offset <= last->offset + last->length) {
      last->length = std::max(last->length, next.offset + next.length - last->offset);
    } else {
      places[merged++] = next;
    }
  }
  places.resize(merged);
  places.shrink_to_fit();
}

std::shared_ptr<const RecordTable> RecordTableBuilder::finish() {
  RecordTable& table = *table_;
  bool one_each = table.samples_ == table.ranges();
  for (uint32_t sample = 0; sample < table.samples_ && one_each; ++sample)
    one_each = table.starts_[sample] == sample;
  table.starts_.push_back(table.ranges());
  if (one_each) table.starts_.clear();
  table.starts_.shrink_to_fit();
  table.files_.shrink_to_fit();
  table.addresses_.shrink_to_fit();
  table.lengths_.shrink_to_fit();

  table.sort_files();
  table.sort_ranges();
  merge(table.shared_);
  merge(table.read_on_);
  table.note_identity();
  return std::move(table_);
}

}  // namespace clairfs
