// Sizes and durations as people write and read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

/// Bytes from text such as "4096", "512M", "1.5G", "20GiB", "0": the suffixes K, M, G, T (also KiB, KB, ...)
/// are powers of 1024 in either spelling. Errors: EINVAL with what would be right.
Result<uint64_t> parse_size(std::string_view text);

/// "1.5 GiB", "110.0 KiB", "17 B".
std::string format_size(uint64_t bytes);

/// "1.25 s", "3.4 ms", "120 us".
std::string format_duration(std::chrono::nanoseconds duration);

/// Hours, minutes and seconds: "26:03:09".
std::string format_uptime(std::chrono::nanoseconds duration);

}  // namespace clairfs
