#include "plan/formats/index/saved_index.h"

#include <array>
#include <cerrno>
#include <optional>

#include <fmt/format.h>
#include <xxhash.h>

#include "cache/base/escaped.h"
#include "plan/formats/index/image_stream.h"
#include "plan/formats/index/table_image.h"

namespace clairfs {
namespace {

constexpr std::array<char, 8> kIndexMagic{'C', 'L', 'A', 'I', 'R', 'I', 'D', 'X'};
// Counted up with every change to the layout, and to what any format makes of its files.
constexpr uint32_t kIndexVersion = 2;
// Reads differently on a machine of the other byte order.
constexpr uint32_t kIndexByteOrder = 0x01020304;
constexpr size_t kChecksumAt = kIndexMagic.size() + sizeof kIndexVersion + sizeof kIndexByteOrder;

Error bad(const std::string& why) {
  return {EBADMSG, "index: " + why};
}

static_assert(kIndexStartBytes == kChecksumAt + sizeof(uint64_t));

uint64_t checksum_behind(std::span<const std::byte> image) {
  const auto rest = image.subspan(kIndexStartBytes);
  return XXH3_64bits(rest.data(), rest.size());
}

// What tells that a file is the one that was indexed.
struct IndexedFile {
  std::string path;
  FileStamp stamp;
  int64_t ctime_ns = 0;
  uint64_t inode = 0;
};

IndexedFile describe(const Catalog& catalog, FileId file) {
  const Catalog::SourceState state = catalog.source_state(file);
  return {catalog.path(file), catalog.stamp(file), state.ctime_ns, state.inode};
}

// On the node that has saved it.
bool is_as_saved(const IndexedFile& saved, const IndexedFile& now) {
  return saved.stamp == now.stamp && saved.ctime_ns == now.ctime_ns && saved.inode == now.inode;
}

void write_file(const IndexedFile& file, ImageWriter& to) {
  to.put_text(file.path);
  to.put(file.stamp.size);
  to.put(file.stamp.mtime_ns);
  to.put(file.ctime_ns);
  to.put(file.inode);
}

std::optional<IndexedFile> read_file(ImageReader& from) {
  IndexedFile file;
  auto path = from.get_text();
  const auto size = from.get<uint64_t>();
  const auto mtime = from.get<int64_t>();
  const auto ctime = from.get<int64_t>();
  const auto inode = from.get<uint64_t>();
  if (!path || !size || !mtime || !ctime || !inode) return std::nullopt;
  return IndexedFile{std::move(*path), {*size, *mtime}, *ctime, *inode};
}

void write_key(const Catalog& catalog, const IndexKey& key, ImageWriter& to) {
  to.put_text(key.format);
  to.put_text(key.parameters);
  for (const FileId file : key.files) to.put_text(catalog.path(file));
}

Status check_key(ImageReader& from, const IndexKey& key, const Catalog& catalog, IndexOrigin origin) {
  const auto source = from.get_text();
  const auto format = from.get_text();
  const auto parameters = from.get_text();
  const auto files = from.get<uint64_t>();
  if (!source || !format || !parameters || !files) return bad("cut off");
  if (origin == IndexOrigin::here && *source != catalog.source()) return bad("of another source");
  if (*format != key.format || *parameters != key.parameters || *files != key.files.size())
    return bad("of other samples than the plan's");
  for (const FileId file : key.files) {
    const auto saved = read_file(from);
    if (!saved) return bad("cut off");
    const IndexedFile now = describe(catalog, file);
    if (saved->path != now.path) return bad("of other files than the plan's");
    const bool same = origin == IndexOrigin::here ? is_as_saved(*saved, now) : saved->stamp == now.stamp;
    if (!same) return bad(fmt::format("{} has changed since", escaped(now.path)));
  }
  return {};
}

}  // namespace

Status check_index_start(std::span<const std::byte> bytes) {
  ImageReader start(bytes);
  for (const char expected : kIndexMagic) {
    if (start.get<char>() != expected) return bad("not an index");
  }
  if (start.get<uint32_t>() != kIndexVersion) return bad("of another version of clairfs");
  if (start.get<uint32_t>() != kIndexByteOrder) return bad("of a machine with another byte order");
  return start.get<uint64_t>() ? Status() : bad("cut off");
}

Result<std::string> indexed_source(std::span<const std::byte> beginning) {
  if (Status status = check_index_start(beginning); !status) return status.error();
  auto source = ImageReader(beginning.subspan(kIndexStartBytes)).get_text();
  if (!source) return bad("cut off");
  return std::move(*source);
}

Result<IndexKey> key_of_saved(std::span<const std::byte> beginning, const Catalog& catalog) {
  if (Status status = check_index_start(beginning); !status) return status.error();
  ImageReader from(beginning.subspan(kIndexStartBytes));
  const auto source = from.get_text();
  const auto format = from.get_text();
  const auto parameters = from.get_text();
  const auto files = from.get<uint64_t>();
  if (!source || !format || !parameters || !files) return bad("cut off");
  if (*source != catalog.source()) return bad("of another source");
  IndexKey key{*format, *parameters, {}};
  for (uint64_t i = 0; i < *files; ++i) {
    const auto saved = read_file(from);
    if (!saved) return bad("cut off");
    const auto file = catalog.find(saved->path);
    if (!file || !is_as_saved(*saved, describe(catalog, *file)))
      return bad(fmt::format("{} has changed since", escaped(saved->path)));
    key.files.push_back(*file);
  }
  return key;
}

uint64_t index_number(const Catalog& catalog, const IndexKey& key) {
  ImageWriter name;
  write_key(catalog, key, name);
  return XXH3_64bits(name.bytes().data(), name.size());
}

std::string saved_index_name(const Catalog& catalog, const IndexKey& key) {
  ImageWriter name;
  name.put_text(catalog.source());
  write_key(catalog, key, name);
  const XXH128_hash_t hash = XXH3_128bits(name.bytes().data(), name.size());
  return fmt::format("{:016x}{:016x}.idx", hash.high64, hash.low64);
}

std::vector<std::byte> encode_index(const RecordTable& table, const IndexKey& key, const Catalog& catalog) {
  ImageWriter image;
  for (const char c : kIndexMagic) image.put(c);
  image.put(kIndexVersion);
  image.put(kIndexByteOrder);
  image.put(uint64_t{0});
  image.put_text(catalog.source());
  image.put_text(key.format);
  image.put_text(key.parameters);
  image.put(uint64_t{key.files.size()});
  for (const FileId file : key.files) write_file(describe(catalog, file), image);
  TableImage::write(table, key.files, image);
  image.replace(kChecksumAt, checksum_behind(image.bytes()));
  return image.take();
}

Result<std::shared_ptr<const RecordTable>> decode_index(std::span<const std::byte> image, const IndexKey& key,
                                                        const std::shared_ptr<const Catalog>& catalog,
                                                        IndexOrigin origin) {
  if (Status status = check_index_start(image); !status) return status.error();
  if (ImageReader(image.subspan(kChecksumAt)).get<uint64_t>() != checksum_behind(image))
    return bad("damaged: its checksum does not hold");
  ImageReader rest(image.subspan(kIndexStartBytes));
  if (Status status = check_key(rest, key, *catalog, origin); !status) return status.error();
  std::shared_ptr<const RecordTable> table = TableImage::read(rest, key.files, catalog, key.format);
  if (!table || !rest.rest().empty()) return bad("damaged: it contradicts itself");
  return table;
}

}  // namespace clairfs
