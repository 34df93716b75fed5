#include "plan/formats/shards/tar_header.h"

#include <algorithm>
#include <cerrno>

#include "cache/base/text.h"

namespace clairfs {
namespace {

constexpr size_t kNameBytes = 100;
constexpr size_t kSizeAt = 124;
constexpr size_t kSizeBytes = 12;
constexpr size_t kChecksumAt = 148;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kTypeAt = 156;
constexpr size_t kPrefixAt = 345;
constexpr size_t kPrefixBytes = 155;

std::string_view up_to_nul(std::string_view field) {
  return field.substr(0, field.find('\0'));
}

// Octal digits between blanks, or, after a first byte of 0x80, a number of base 256.
std::optional<uint64_t> parse_tar_number(std::string_view field) {
  uint64_t number = 0;
  if (static_cast<uint8_t>(field[0]) == 0x80) {
    for (const char c : field.substr(1)) {
      if (number >> 55 != 0) return std::nullopt;
      number = number << 8 | static_cast<uint8_t>(c);
    }
    return number;
  }
  std::string_view digits = up_to_nul(field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char c : digits) {  // twelve of them at most
    if (c < '0' || c > '7') return std::nullopt;
    number = number << 3 | static_cast<uint64_t>(c - '0');
  }
  return number;
}

// Of the block with blanks in place of the checksum; some old programs summed up signed bytes.
bool has_checksum(std::string_view block) {
  const auto said = parse_tar_number(block.substr(kChecksumAt, kChecksumBytes));
  if (!said) return false;
  int64_t bytes = 0;
  int64_t signed_bytes = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool within = i >= kChecksumAt && i < kChecksumAt + kChecksumBytes;
    const char c = within ? ' ' : block[i];
    bytes += static_cast<uint8_t>(c);
    signed_bytes += static_cast<int8_t>(c);
  }
  const auto sum = static_cast<int64_t>(*said);
  return sum == bytes || sum == signed_bytes;
}

// "LENGTH KEY=VALUE\n", where the length is that of the whole record.
Status read_pax(std::string_view data, TarExtension& found) {
  const Error damaged{EINVAL, "has a damaged pax header"};
  while (!data.empty() && data[0] != '\0') {
    const size_t blank = data.find(' ');
    if (blank == std::string_view::npos) return damaged;
    const auto length = parse_whole<uint64_t>(data.substr(0, blank));
    if (!length || *length < blank + 3 || *length > data.size() || data[*length - 1] != '\n') return damaged;
    const std::string_view record = data.substr(blank + 1, *length - blank - 2);
    data.remove_prefix(*length);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return damaged;
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") found.name = std::string(value);
    if (key.starts_with("GNU.sparse.")) found.sparse = true;
    if (key == "size") {
      found.size = parse_whole<uint64_t>(value);
      if (!found.size || *found.size > INT64_MAX) return damaged;
    }
  }
  return {};
}

}  // namespace

bool TarHeader::is_regular() const {
  return type == '0' || type == '\0' || type == '7' || is_sparse();
}

bool TarHeader::is_extension() const {
  return type == 'x' || type == 'X' || type == 'L' || type == 'K';
}

uint64_t TarHeader::data() const {
  const bool without = type >= '1' && type <= '6';  // links, devices, folders, pipes
  return without ? 0 : size;
}

bool is_tar_end(std::string_view block) {
  return std::all_of(block.begin(), block.begin() + kTarBlock, [](char c) { return c == '\0'; });
}

std::optional<TarHeader> parse_tar_header(std::string_view block) {
  if (!has_checksum(block)) return std::nullopt;
  const auto size = parse_tar_number(block.substr(kSizeAt, kSizeBytes));
  if (!size || *size > INT64_MAX) return std::nullopt;
  TarHeader header;
  header.size = *size;
  header.type = block[kTypeAt];
  header.name = up_to_nul(block.substr(0, kNameBytes));
  // Archives from before POSIX have no type for folders.
  if (header.type == '\0' && header.name.ends_with('/')) header.type = '5';
  const std::string_view prefix = up_to_nul(block.substr(kPrefixAt, kPrefixBytes));
  const bool of_gnu = header.type == 'L' || header.type == 'K' || header.type == 'S';
  if (!prefix.empty() && !of_gnu) header.name = std::string(prefix) + "/" + header.name;
  return header;
}

Status read_tar_extension(const TarHeader& header, std::string_view data, TarExtension& found) {
  if (header.type == 'L') found.name = std::string(up_to_nul(data));
  if (header.type == 'x' || header.type == 'X' || header.type == 'g') return read_pax(data, found);
  return {};
}

}  // namespace clairfs
