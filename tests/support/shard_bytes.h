// Shards as programs write them, byte by byte.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_tree.h"

namespace clairfs {

/// Bit by bit, to be compared with what is made with tables.
inline uint32_t crc32c_bitwise(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
  }
  return ~crc;
}

inline std::string as_little_endian(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

/// The first 12 bytes of a frame.
inline std::string frame_head(uint64_t length) {
  const std::string bytes = as_little_endian(length, 8);
  const uint32_t crc = crc32c_bitwise(bytes);
  return bytes + as_little_endian(((crc >> 15) | (crc << 17)) + 0xa282ead8U, 4);
}

inline std::string frame(const std::string& data) {
  return frame_head(data.size()) + data + "foot";
}

inline std::string padded(std::string text, size_t multiple = 512) {
  text.resize((text.size() + multiple - 1) / multiple * multiple);
  return text;
}

/// Sets the checksum of a header.
inline std::string with_checksum(std::string block, bool of_signed_bytes = false) {
  block.replace(148, 8, "        ");
  int sum = 0;
  for (const char c : block) sum += of_signed_bytes ? static_cast<int8_t>(c) : static_cast<uint8_t>(c);
  char digits[8] = {};
  std::snprintf(digits, sizeof digits, "%06o", static_cast<unsigned>(sum));
  block.replace(148, 7, std::string(digits, 7));
  return block;
}

inline std::string octal(uint64_t number) {
  std::string digits(12, '\0');
  for (size_t i = 11; i-- > 0; number /= 8) digits[i] = static_cast<char>('0' + number % 8);
  return digits;
}

/// A header whose size is the 12 bytes of `size`.
inline std::string tar_header(const std::string& name, const std::string& size, char type = '0',
                              const std::string& prefix = "") {
  std::string block(512, '\0');
  block.replace(0, std::min<size_t>(name.size(), 100), name.substr(0, 100));
  block.replace(100, 8, std::string("0000644\0", 8));
  block.replace(124, 12, size);
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  block.replace(345, prefix.size(), prefix);
  return with_checksum(block);
}

/// A member: its header, and its data in whole blocks.
inline std::string tar_member(const std::string& name, const std::string& data, char type = '0') {
  return tar_header(name, octal(data.size()), type) + padded(data);
}

inline std::string pax_record(const std::string& key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (length != rest + std::to_string(length).size()) ++length;
  return std::to_string(length) + " " + key + "=" + value + "\n";
}

inline std::string tar_end() {
  return std::string(1024, '\0');
}

inline void write_shard(const TempTree& tree, const std::string& path, const std::string& bytes) {
  tree.write(path, 0);
  std::ofstream(tree.at(path), std::ios::binary) << bytes;
}

}  // namespace clairfs
