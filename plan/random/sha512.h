// SHA-512 (FIPS 180-4), which Python's random.seed(str) applies to its argument.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace clairfs {

/// The digest, first byte first. Thread-safe.
std::array<uint8_t, 64> sha512(std::string_view message);

}  // namespace clairfs
