// index.json of a MosaicML Streaming dataset: its shards and how many samples each holds.
// Source: mosaicml/streaming, streaming/base/format/base/writer.py, format/mds/reader.py (version 2).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// The largest index that is read: a hundred thousand shards at 500 bytes each, or 6 TB in shards of 64 MiB.
inline constexpr uint64_t kMaxMdsIndexBytes = 64 << 20;

struct MdsShard {
  std::string format = {};    ///< "mds", or what other writers of the package make
  std::string basename = {};  ///< of the shard's file as it is read, beside index.json
  uint32_t samples = 0;
  bool compressed = false;
};

/// Errors: EINVAL with what is wrong. The text may be anything.
Result<std::vector<MdsShard>> parse_mds_index(std::string_view text);

/// The samples of each shard. Errors: EINVAL for a shard without one, and for more than 32 bits count.
Result<std::vector<uint32_t>> mds_shard_sizes(const std::vector<MdsShard>& shards);

}  // namespace clairfs
