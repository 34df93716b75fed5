#include "cache/catalog/builder.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <xxhash.h>

namespace clairfs {
namespace {

template <class T>
void copy_to(std::byte* to, const std::vector<T>& from) {
  std::memcpy(to, from.data(), from.size() * sizeof(T));
}

}  // namespace

SourceAttributes source_attributes(const struct stat& from) {
  SourceAttributes out;
  out.mtime_ns = stamp_nanoseconds(from.st_mtim.tv_sec, from.st_mtim.tv_nsec);
  out.ctime_ns = stamp_nanoseconds(from.st_ctim.tv_sec, from.st_ctim.tv_nsec);
  out.size = static_cast<uint64_t>(from.st_size);
  out.inode = from.st_ino;
  out.mode = from.st_mode;
  out.uid = from.st_uid;
  out.gid = from.st_gid;
  return out;
}

uint32_t StringTable::intern(std::string_view text) {
  // At most half full, so that probing stays short.
  if (starts_.size() * 2 > slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  size_t slot = XXH3_64bits(text.data(), text.size()) & mask;
  while (slots_[slot] != 0) {
    if (this->text(slots_[slot] - 1) == text) return slots_[slot] - 1;
    slot = (slot + 1) & mask;
  }
  characters_.append(text).push_back('\0');
  starts_.push_back(characters_.size());
  slots_[slot] = static_cast<uint32_t>(starts_.size() - 1);
  return slots_[slot] - 1;
}

void StringTable::grow() {
  slots_.assign(slots_.empty() ? 64 : slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i + 1 < starts_.size(); ++i) {
    size_t slot = XXH3_64bits(characters_.data() + starts_[i], starts_[i + 1] - starts_[i] - 1) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

CatalogBuilder::CatalogBuilder(std::string_view source, uint32_t chunk_size, size_t expected_entries,
                               RecordChunks records)
    : records_(std::move(records)) {
  rows_.reserve(expected_entries + 1);
  header_.chunk_size = chunk_size;
  header_.source = strings_.intern(source);
}

FileId CatalogBuilder::add(FileId parent, std::string_view name, const SourceAttributes& attributes) {
  catalog_image::Row row;
  row.mtime_ns = attributes.mtime_ns;
  row.ctime_ns = attributes.ctime_ns;
  row.size = attributes.size;
  row.inode = attributes.inode;
  row.mode = attributes.mode;
  row.uid = attributes.uid;
  row.gid = attributes.gid;
  row.parent = parent.value;
  row.name = strings_.intern(name);
  rows_.push_back(row);
  return FileId(static_cast<uint32_t>(rows_.size() - 1));
}

void CatalogBuilder::set_target(std::string_view target) {
  rows_.back().extra = strings_.intern(target);
  rows_.back().size = target.size();
}

std::string CatalogBuilder::path_of(uint32_t entry) const {
  std::string path;
  for (uint32_t at = entry; at != 0; at = rows_[at].parent)
    path.insert(0, '/' + std::string(strings_.text(rows_[at].name)));
  return path.substr(1);
}

void CatalogBuilder::choose_chunk_sizes() {
  const auto set = [this](catalog_image::Row& row, uint32_t chunk) {
    row.extra = chunk < header_.chunk_size ? chunk : 0;
  };
  std::vector<uint32_t> of_records;
  uint64_t bytes = 0;
  for (uint32_t i = 1; i < rows_.size(); ++i) {
    catalog_image::Row& row = rows_[i];
    if (!S_ISREG(row.mode)) continue;
    if (const uint32_t wished = records_.empty() ? 0 : records_.wished(path_of(i)); wished != 0) {
      set(row, wished);
    } else if (RecordChunks::holds_records(strings_.text(row.name), row.size)) {
      of_records.push_back(i);
      bytes += row.size;
    }
  }
  for (const uint32_t i : of_records) set(rows_[i], RecordChunks::usual(bytes));
}

Status CatalogBuilder::number_chunks(std::vector<uint32_t>& chunk_start) {
  chunk_start.reserve(rows_.size() + 1);
  uint64_t chunks = 0;
  for (const catalog_image::Row& row : rows_) {
    chunk_start.push_back(static_cast<uint32_t>(chunks));
    if (!S_ISREG(row.mode)) continue;
    chunks += catalog_image::chunks_of(row, header_);
    header_.total_bytes += row.size;
    if (chunks > std::numeric_limits<uint32_t>::max()) {
      return Error{EOVERFLOW,
                   fmt::format("the dataset has more than {} chunks of {} bytes; choose larger chunks",
                               std::numeric_limits<uint32_t>::max(), header_.chunk_size)};
    }
  }
  chunk_start.push_back(static_cast<uint32_t>(chunks));
  header_.chunks = static_cast<uint32_t>(chunks);
  return {};
}

void CatalogBuilder::link_children() {
  uint32_t next = 1;
  for (uint32_t i = 0; i < header_.entries; ++i) {
    rows_[i].first_child = next;
    while (next < header_.entries && rows_[next].parent == i) {
      if (S_ISDIR(rows_[next].mode)) ++rows_[i].subdirectories;
      ++next;
    }
    const uint32_t mode = rows_[i].mode;
    ++(S_ISDIR(mode) ? header_.directories : S_ISREG(mode) ? header_.files : header_.symlinks);
  }
  catalog_image::Row end;
  end.first_child = header_.entries;
  rows_.push_back(end);
}

Result<std::shared_ptr<const Catalog>> CatalogBuilder::finish(uint64_t skipped_special, uint64_t unreadable) {
  std::vector<uint32_t> chunk_start;
  choose_chunk_sizes();
  if (const Status status = number_chunks(chunk_start); !status) return status.error();
  header_.entries = static_cast<uint32_t>(rows_.size());
  header_.strings = static_cast<uint32_t>(strings_.starts().size() - 1);
  header_.characters = strings_.characters().size();
  header_.skipped_special = skipped_special;
  header_.unreadable = unreadable;
  link_children();

  const catalog_image::Layout layout = catalog_image::layout_of(header_);
  header_.bytes = layout.bytes;
  Result<Mapping> image = Mapping::anonymous(layout.bytes);
  if (!image) return image.error();
  std::byte* data = image->data();
  copy_to(data + layout.rows, rows_);
  copy_to(data + layout.chunk_start, chunk_start);
  copy_to(data + layout.string_start, strings_.starts());
  std::memcpy(data + layout.characters, strings_.characters().data(), header_.characters);
  auto* header = new (data) catalog_image::Header(header_);
  header->identity = catalog_image::identity_of({data, layout.bytes});
  header->checksum = catalog_image::checksum_of({data, layout.bytes});
  return std::shared_ptr<const Catalog>(new Catalog(std::move(*image)));
}

}  // namespace clairfs
