#include "plan/formats/shards/listed_records.h"

#include <algorithm>

#include "cache/base/text.h"
#include "plan/formats/shards/tar_header.h"
#include "plan/formats/shards/tar_samples.h"

namespace clairfs {
namespace {

// Ten million frames; a shard with more is walked through.
constexpr uint64_t kMostListBytes = 256 << 20;

// Headers that are looked at. A list of another shard is right at hardly any of them.
constexpr uint64_t kHeadersChecked = 32;

// As long a name as the first field of a header takes; GNU tar keeps its last byte for a NUL.
constexpr size_t kWholeName = 99;

using Listed = std::optional<std::vector<ListedRecord>>;
using Places = std::optional<std::vector<RecordPlace>>;

std::string_view take_word(std::string_view& text, char end) {
  const size_t size = std::min(text.find(end), text.size());
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(std::min(size + 1, text.size()));
  return word;
}

std::optional<RecordPlace> parse_place(std::string_view offset, std::string_view length, uint64_t size) {
  const auto at = parse_whole<uint64_t>(offset);
  const auto bytes = parse_whole<uint64_t>(length);
  if (!at || !bytes || *at > size || *bytes > size - *at) return std::nullopt;
  return RecordPlace{*at, *bytes};
}

// The first, the last, and others evenly between them.
std::vector<size_t> spread(size_t count) {
  std::vector<size_t> chosen;
  const uint64_t most = std::min<uint64_t>(count, kHeadersChecked);
  for (uint64_t i = 0; i < most; ++i) chosen.push_back(most == 1 ? 0 : i * (count - 1) / (most - 1));
  return chosen;
}

bool is_header_of(std::string_view block, const ListedRecord& member) {
  const auto header = parse_tar_header(block);
  if (!header || !header->is_regular() || header->is_sparse() || header->size != member.place.length)
    return false;
  const bool shortened = header->name.size() >= kWholeName && member.name.starts_with(header->name);
  return header->name == member.name || shortened;
}

Result<Listed> read_list(const DatasetSource& source, FileId shard, FileId list,
                         Listed (*parse)(std::string_view text, uint64_t shard_size)) {
  if (source.catalog->stamp(list).size > kMostListBytes) return Listed();
  const Result<std::string> text = source.read_whole(list);
  if (!text) return text.error();
  return parse(*text, source.catalog->stamp(shard).size);
}

}  // namespace

std::optional<FileId> find_shard_index(const Catalog& catalog, FileId shard) {
  const std::string path = catalog.path(shard);
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  for (const size_t end : {std::string::npos, path.rfind('.'), path.find('.', name + 1)}) {
    if (end != std::string::npos && end <= name) continue;
    for (const char* ending : {".idx", ".index"}) {
      const auto found = catalog.find(path.substr(0, end) + ending);
      if (found && catalog.kind(*found) == Catalog::Kind::file) return found;
    }
  }
  return std::nullopt;
}

Listed parse_tfrecord_list(std::string_view text, uint64_t shard_size) {
  std::vector<ListedRecord> frames;
  uint64_t end = 0;
  while (!text.empty()) {
    std::string_view line = take_word(text, '\n');
    const std::string_view offset = take_word(line, ' ');
    const auto place = parse_place(offset, line, shard_size);
    if (!place || place->offset != end || place->length < kTfrecordHead) return std::nullopt;
    end += place->length;
    frames.push_back({*place, ""});
  }
  return end == shard_size ? Listed(std::move(frames)) : std::nullopt;
}

Listed parse_tar_list(std::string_view text, uint64_t shard_size) {
  std::string_view first = take_word(text, '\n');
  if (take_word(first, ' ') != "v1.2") return std::nullopt;
  std::vector<ListedRecord> members;
  uint64_t end = 0;
  while (!text.empty()) {
    std::string_view line = take_word(text, '\n');
    while (!line.empty()) {
      take_word(line, ' ');  // the extension, which the name has, too
      const std::string_view offset = take_word(line, ' ');
      const auto place = parse_place(offset, take_word(line, ' '), shard_size);
      const std::string_view member = take_word(line, ' ');
      if (!place || place->offset % kTarBlock != 0 || place->offset < in_tar_blocks(end) + kTarBlock)
        return std::nullopt;
      end = place->offset + place->length;
      members.push_back({*place, std::string(member)});
    }
  }
  return members;
}

Result<Places> listed_tfrecord(const DatasetSource& source, FileId shard, FileId list) {
  const Result<Listed> frames = read_list(source, shard, list, parse_tfrecord_list);
  if (!frames) return frames.error();
  if (!*frames) return Places();
  const std::vector<size_t> checked = spread((*frames)->size());
  std::vector<ByteRange> heads;
  for (const size_t i : checked) heads.push_back({shard, (**frames)[i].place.offset, kTfrecordHead});
  const auto read = source.read_all(heads);
  if (!read) return read.error();
  for (size_t i = 0; i < checked.size(); ++i) {
    const Result<uint64_t> frame = tfrecord_frame((*read)[i]);
    if (!frame || *frame != (**frames)[checked[i]].place.length) return Places();
  }
  std::vector<RecordPlace> places;
  for (const ListedRecord& frame : **frames) places.push_back(frame.place);
  return Places(std::move(places));
}

Result<Places> listed_tar(const DatasetSource& source, FileId shard, FileId list) {
  const Result<Listed> listed = read_list(source, shard, list, parse_tar_list);
  if (!listed) return listed.error();
  if (!*listed || (*listed)->empty()) return Places();
  const std::vector<ListedRecord>& members = **listed;
  const std::vector<size_t> checked = spread(members.size());
  std::vector<ByteRange> blocks;
  for (const size_t i : checked) blocks.push_back({shard, members[i].place.offset - kTarBlock, kTarBlock});
  // Nothing comes after the last one, such as what was appended later.
  const RecordPlace& last = members.back().place;
  const uint64_t end = in_tar_blocks(last.offset + last.length);
  const uint64_t size = source.catalog->stamp(shard).size;
  if (end < size) blocks.push_back({shard, end, std::min(kTarBlock, size - end)});
  const auto read = source.read_all(blocks);
  if (!read) return read.error();
  for (size_t i = 0; i < checked.size(); ++i) {
    const std::string& block = (*read)[i];
    if (block.size() != kTarBlock || !is_header_of(block, members[checked[i]])) return Places();
  }
  if (end < size && (read->back().size() != kTarBlock || !is_tar_end(read->back()))) return Places();
  std::vector<RecordPlace> places;
  TarSamples samples(places);
  for (const ListedRecord& member : members) samples.add(member.name, member.place);
  return Places(std::move(places));
}

}  // namespace clairfs
