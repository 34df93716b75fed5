// Counts as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clairfs {

/// "1 entry", "2 entries".
inline std::string pluralize(uint64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

}  // namespace clairfs
