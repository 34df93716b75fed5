#include "cache/catalog/catalog.h"

#include <algorithm>
#include <cstring>

#include "cache/catalog/image.h"

namespace clairfs {
namespace {

timespec to_timespec(int64_t ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t seconds = ns / kSecond;
  int64_t rest = ns % kSecond;
  if (rest < 0) {  // before 1970: tv_nsec still counts forward
    rest += kSecond;
    --seconds;
  }
  return {seconds, rest};
}

}  // namespace

Catalog::Catalog(Mapping image) : image_(std::move(image)) {
  header_ = reinterpret_cast<const catalog_image::Header*>(image_.data());
  const catalog_image::Layout layout = catalog_image::layout_of(*header_);
  rows_ = reinterpret_cast<const catalog_image::Row*>(image_.data() + layout.rows);
  chunk_start_ = reinterpret_cast<const uint32_t*>(image_.data() + layout.chunk_start);
  string_start_ = reinterpret_cast<const uint64_t*>(image_.data() + layout.string_start);
  characters_ = reinterpret_cast<const char*>(image_.data() + layout.characters);
}

Result<std::shared_ptr<const Catalog>> Catalog::adopt(Mapping&& image) {
  const Status status = catalog_image::verify({image.data(), image.size()});
  if (!status) return status.error();
  return std::shared_ptr<const Catalog>(new Catalog(std::move(image)));
}

Result<std::shared_ptr<const Catalog>> Catalog::deserialize(std::span<const std::byte> bytes) {
  Result<Mapping> image = Mapping::anonymous(bytes.size());
  if (!image) return image.error();
  if (!bytes.empty()) std::memcpy(image->data(), bytes.data(), bytes.size());
  return adopt(std::move(*image));
}

uint32_t Catalog::size() const {
  return header_->entries;
}
uint32_t Catalog::chunk_count() const {
  return header_->chunks;
}
uint32_t Catalog::largest_chunk() const {
  return header_->chunk_size;
}
uint64_t Catalog::total_bytes() const {
  return header_->total_bytes;
}
uint64_t Catalog::skipped_special() const {
  return header_->skipped_special;
}
uint64_t Catalog::unreadable() const {
  return header_->unreadable;
}
uint64_t Catalog::memory_bytes() const {
  return header_->bytes;
}
uint64_t Catalog::name_bytes() const {
  return header_->characters - header_->strings;
}  // without the NULs
uint64_t Catalog::identity() const {
  return header_->identity;
}
std::string_view Catalog::source() const {
  return text(header_->source);
}

uint32_t Catalog::count(Kind kind) const {
  if (kind == Kind::directory) return header_->directories;
  return kind == Kind::file ? header_->files : header_->symlinks;
}

std::string_view Catalog::text(uint32_t string) const {
  return {characters_ + string_start_[string], string_start_[string + 1] - string_start_[string] - 1};
}

Catalog::Kind Catalog::kind(FileId id) const {
  const uint32_t mode = rows_[id.index()].mode;
  if (S_ISDIR(mode)) return Kind::directory;
  return S_ISREG(mode) ? Kind::file : Kind::symlink;
}

std::string_view Catalog::name(FileId id) const {
  return text(rows_[id.index()].name);
}
FileId Catalog::parent(FileId id) const {
  return FileId(rows_[id.index()].parent);
}
std::string_view Catalog::symlink_target(FileId id) const {
  return text(rows_[id.index()].extra);
}

FileStamp Catalog::stamp(FileId id) const {
  return FileStamp{rows_[id.index()].size, rows_[id.index()].mtime_ns};
}

struct stat Catalog::attributes(FileId id) const {
  const catalog_image::Row& row = rows_[id.index()];
  struct stat out = {};
  out.st_mode = row.mode;
  out.st_uid = row.uid;
  out.st_gid = row.gid;
  out.st_size = static_cast<off_t>(row.size);
  out.st_ino = ino_t{id.value} + 1;
  out.st_nlink = S_ISDIR(row.mode) ? nlink_t{row.subdirectories} + 2 : 1;  // its name, its ".", their ".."
  out.st_blksize = 4096;
  out.st_blocks = static_cast<blkcnt_t>((row.size + 511) / 512);
  out.st_mtim = to_timespec(row.mtime_ns);
  out.st_atim = out.st_mtim;
  out.st_ctim = to_timespec(row.ctime_ns);
  return out;
}

Catalog::SourceState Catalog::source_state(FileId id) const {
  const catalog_image::Row& row = rows_[id.index()];
  return {row.inode, row.ctime_ns, S_ISDIR(row.mode) && row.extra != 0};
}

std::string Catalog::path(FileId id) const {
  size_t length = 0;
  for (FileId at = id; at.value != 0; at = parent(at)) length += name(at).size() + 1;
  if (length == 0) return {};
  std::string out(length - 1, '/');
  size_t end = out.size();
  for (FileId at = id; at.value != 0; at = parent(at)) {
    const std::string_view part = name(at);
    part.copy(out.data() + end - part.size(), part.size());
    end -= std::min(end, part.size() + 1);
  }
  return out;
}

Catalog::Children Catalog::children(FileId directory) const {
  const uint32_t first = rows_[directory.index()].first_child;
  return {FileId(first), rows_[directory.index() + 1].first_child - first};
}

std::optional<FileId> Catalog::lookup(FileId directory, std::string_view wanted) const {
  const Children range = children(directory);
  const auto* first = rows_ + range.first.index();
  const auto* end = first + range.count;
  const auto* found = std::lower_bound(
      first, end, wanted,
      [this](const catalog_image::Row& row, std::string_view text_) { return text(row.name) < text_; });
  if (found == end || text(found->name) != wanted) return std::nullopt;
  return FileId(static_cast<uint32_t>(found - rows_));
}

std::optional<FileId> Catalog::find(std::string_view path) const {
  FileId at(0);
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::optional<FileId> next = lookup(at, path.substr(0, slash));
    if (!next || slash == std::string_view::npos) return next;
    path.remove_prefix(slash + 1);
    if (path.empty()) return std::nullopt;  // "a/" names nothing
    at = *next;
  }
  return at;
}

Catalog::Chunks Catalog::chunks(FileId file) const {
  const uint32_t first = chunk_start_[file.index()];
  return {ChunkId(first), chunk_start_[file.index() + 1] - first};
}

uint32_t Catalog::chunk_size(FileId file) const {
  return catalog_image::chunk_size_of(rows_[file.index()], *header_);
}

ChunkRange Catalog::range(ChunkId chunk) const {
  // The last entry that starts at or before the chunk: those without chunks start where the next one does.
  const uint32_t* next = std::upper_bound(chunk_start_, chunk_start_ + size(), chunk.value);
  const FileId file(static_cast<uint32_t>(next - chunk_start_ - 1));
  const uint64_t offset = uint64_t{chunk.value - chunk_start_[file.index()]} * chunk_size(file);
  const uint64_t rest = rows_[file.index()].size - offset;
  return {file, offset, static_cast<uint32_t>(std::min<uint64_t>(rest, chunk_size(file)))};
}

}  // namespace clairfs
