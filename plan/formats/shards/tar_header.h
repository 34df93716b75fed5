// The headers of tar archives: a block of 512 bytes before each member.
// Sources: POSIX.1-2008 pax; GNU tar, "Basic Tar Format"; CPython, Lib/tarfile.py (TarInfo.frombuf, nti,
// _proc_pax), which is what WebDataset reads archives with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

inline constexpr uint64_t kTarBlock = 512;

/// Bytes in whole blocks. REQUIRES: bytes < 2^63.
constexpr uint64_t in_tar_blocks(uint64_t bytes) {
  return (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
}

struct TarHeader {
  std::string name;
  uint64_t size = 0;  ///< bytes that the header says, less than 2^63
  char type = '0';

  bool is_regular() const;
  bool is_sparse() const { return type == 'S'; }
  /// More about the next member: a pax header, or a long name or link of GNU tar.
  bool is_extension() const;
  /// Of all members that follow.
  bool is_global() const { return type == 'g'; }
  /// Bytes between this header and the next one, apart from what fills up the last block: what links and
  /// folders have as their size is none.
  uint64_t data() const;
};

/// Whether the archive ends here. REQUIRES: a block.
bool is_tar_end(std::string_view block);

/// Nothing when the block is no header: its checksum is wrong, or a number in it. REQUIRES: a block.
std::optional<TarHeader> parse_tar_header(std::string_view block);

/// The fields that extensions set for the next member.
struct TarExtension {
  std::optional<std::string> name;
  std::optional<uint64_t> size;  ///< less than 2^63
  bool sparse = false;
};

/// Adds what that extension's data says. Errors: EINVAL with the cause alone.
Status read_tar_extension(const TarHeader& header, std::string_view data, TarExtension& found);

}  // namespace clairfs
