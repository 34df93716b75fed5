#include "plan/formats/index/table_image.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace clairfs {
namespace {

uint32_t number_of(std::span<const FileId> files, FileId file) {
  return static_cast<uint32_t>(std::find(files.begin(), files.end(), file) - files.begin());
}

void write_numbers(const CompactNumbers& numbers, ImageWriter& to) {
  to.put_array(numbers.low());
  to.put_array(numbers.high());
}

std::optional<CompactNumbers> read_numbers(ImageReader& from) {
  auto low = from.get_array<uint32_t>();
  auto high = from.get_array<uint16_t>();
  if (!low || !high || (!high->empty() && high->size() != low->size())) return std::nullopt;
  return CompactNumbers(std::move(*low), std::move(*high));
}

void write_places(std::span<const ByteRange> places, std::span<const FileId> files, ImageWriter& to) {
  to.put(uint64_t{places.size()});
  for (const ByteRange& range : places) {
    to.put(number_of(files, range.file));
    to.put(range.offset);
    to.put(range.length);
  }
}

// Ranges within the files, that follow one another. Nothing where they do not.
std::optional<std::vector<ByteRange>> read_places(ImageReader& from, std::span<const FileId> files,
                                                  const Catalog& catalog) {
  std::vector<ByteRange> places;
  const auto count = from.get<uint64_t>();
  for (uint64_t i = 0; count && i < *count; ++i) {
    const auto file = from.get<uint32_t>();
    const auto offset = from.get<uint64_t>();
    const auto length = from.get<uint64_t>();
    if (!file || !offset || !length || *file >= files.size()) return std::nullopt;
    const ByteRange range{files[*file], *offset, *length};
    const uint64_t size = catalog.stamp(range.file).size;
    if (range.length == 0 || range.offset > size || range.length > size - range.offset) return std::nullopt;
    if (!places.empty()) {
      const ByteRange& before = places.back();
      const bool ascends = before.file < range.file ||
                           (before.file == range.file && before.offset + before.length <= range.offset);
      if (!ascends) return std::nullopt;
    }
    places.push_back(range);
  }
  return count ? std::optional(std::move(places)) : std::nullopt;
}

}  // namespace

void TableImage::write(const RecordTable& table, std::span<const FileId> files, ImageWriter& to) {
  std::vector<uint32_t> numbers;
  for (const RecordTable::File& file : table.files_) numbers.push_back(number_of(files, file.id));
  to.put_array(std::span<const uint32_t>(numbers));
  to.put(table.samples_);
  to.put(table.read_block_);
  to.put(uint32_t{table.shares_bytes_});
  write_numbers(table.addresses_, to);
  write_numbers(table.lengths_, to);
  to.put_array(std::span<const uint32_t>(table.starts_));
  to.put_array(std::span<const uint32_t>(table.by_address_));
  write_numbers(table.reach_, to);
  write_places(table.shared_, files, to);
  write_places(table.read_on_, files, to);
}

std::shared_ptr<const RecordTable> TableImage::read(ImageReader& from, std::span<const FileId> files,
                                                    std::shared_ptr<const Catalog> catalog,
                                                    std::string_view format) {
  const std::shared_ptr<RecordTable> table(new RecordTable(std::move(catalog), format));
  const bool whole = read_files(from, files, *table) && read_ranges(from, *table) &&
                     read_shared(from, files, *table) && ranges_lie_in_files(*table) && starts_ascend(*table);
  if (!whole) return nullptr;
  table->sort_files();
  table->note_identity();
  return table;
}

bool TableImage::read_files(ImageReader& from, std::span<const FileId> files, RecordTable& table) {
  const auto numbers = from.get_array<uint32_t>();
  if (!numbers || numbers->size() > files.size()) return false;
  std::vector<bool> seen(files.size());
  uint64_t start = 0;
  for (const uint32_t number : *numbers) {
    if (number >= files.size() || seen[number]) return false;
    seen[number] = true;
    const uint64_t size = table.catalog_->stamp(files[number]).size;
    if (size >= CompactNumbers::kMost - start) return false;
    table.files_.push_back({files[number], start});
    start += size + 1;
  }
  return true;
}

bool TableImage::read_ranges(ImageReader& from, RecordTable& table) {
  const auto samples = from.get<uint32_t>();
  const auto read_block = from.get<uint32_t>();
  const auto shares_bytes = from.get<uint32_t>();
  auto addresses = read_numbers(from);
  auto lengths = read_numbers(from);
  auto starts = from.get_array<uint32_t>();
  auto by_address = from.get_array<uint32_t>();
  auto reach = read_numbers(from);
  if (!samples || !read_block || *read_block == 0 || !shares_bytes || *shares_bytes > 1 || !addresses ||
      !lengths || !starts || !by_address || !reach)
    return false;
  table.samples_ = *samples;
  table.read_block_ = *read_block;
  table.shares_bytes_ = *shares_bytes == 1;
  table.addresses_ = std::move(*addresses);
  table.lengths_ = std::move(*lengths);
  table.starts_ = std::move(*starts);
  table.by_address_ = std::move(*by_address);
  table.reach_ = std::move(*reach);
  const size_t ranges = table.addresses_.size();
  const auto of_each_or_none = [ranges](size_t size) { return size == 0 || size == ranges; };
  // That they are in order is left to the checksum: else no sample may be found, but nothing else happens.
  const bool inside = std::all_of(table.by_address_.begin(), table.by_address_.end(),
                                  [ranges](uint32_t range) { return range < ranges; });
  return *samples < UINT32_MAX && ranges < UINT32_MAX && table.lengths_.size() == ranges && inside &&
         of_each_or_none(table.by_address_.size()) && of_each_or_none(table.reach_.size());
}

bool TableImage::read_shared(ImageReader& from, std::span<const FileId> files, RecordTable& table) {
  auto shared = read_places(from, files, *table.catalog_);
  auto read_on = read_places(from, files, *table.catalog_);
  if (!shared || !read_on) return false;
  table.shared_ = std::move(*shared);
  table.read_on_ = std::move(*read_on);
  return true;
}

// Files are few and ranges come in their order or nearly so: the file of one is mostly that of the next.
bool TableImage::ranges_lie_in_files(const RecordTable& table) {
  if (table.ranges() != 0 && table.files_.empty()) return false;
  size_t at = 0;
  for (uint32_t range = 0; range < table.ranges(); ++range) {
    const uint64_t address = table.addresses_[range];
    const auto begins_at_or_before = [&](size_t file) { return table.files_[file].start <= address; };
    const bool same =
        begins_at_or_before(at) && (at + 1 == table.files_.size() || !begins_at_or_before(at + 1));
    if (!same) {
      const auto after = std::upper_bound(
          table.files_.begin(), table.files_.end(), address,
          [](uint64_t wanted, const RecordTable::File& file) { return wanted < file.start; });
      at = static_cast<size_t>(after - table.files_.begin()) - 1;  // the first one starts at 0
    }
    const RecordTable::File& file = table.files_[at];
    if (table.end_of(range) > file.start + table.catalog_->stamp(file.id).size) return false;
  }
  return true;
}

bool TableImage::starts_ascend(const RecordTable& table) {
  const std::vector<uint32_t>& starts = table.starts_;
  if (starts.empty()) return table.samples_ == table.ranges();
  return starts.size() == size_t{table.samples_} + 1 && starts.front() == 0 &&
         starts.back() == table.ranges() && std::is_sorted(starts.begin(), starts.end());
}

}  // namespace clairfs
