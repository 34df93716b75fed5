// The shuffling algorithms of MosaicML Streaming.
// Source: mosaicml/streaming, streaming/base/shuffle/{naive,py1s,py2s,py1b,py1br,py1e}.py (0.5 to 0.14; py1e
// since September 2023, py1b until 0.10).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/base/types.h"
#include "plan/random/big_integer.h"

namespace clairfs {

enum class StreamingAlgorithm { naive, py1s, py2s, py1b, py1br, py1e };

/// "py1e". Empty for any other name.
std::optional<StreamingAlgorithm> parse_streaming_algorithm(std::string_view name);

struct StreamingShuffle {
  StreamingAlgorithm algorithm = StreamingAlgorithm::py1e;
  std::vector<uint32_t> shard_sizes = {};  ///< samples; none is 0, and their sum fits 32 bits
  uint64_t canonical_nodes = 1;            ///< at least 1
  BigInteger seed = BigInteger(0);         ///< not negative
  uint32_t block_size = 1 << 18;           ///< samples; at least 4
};

/// get_shuffle(): the sample at each position of the epoch. Memory: 4 bytes a sample, with py1e 20 more for
/// those of a canonical node while it is made.
std::vector<uint32_t> streaming_shuffle(const StreamingShuffle& shuffle, Epoch epoch);

}  // namespace clairfs
