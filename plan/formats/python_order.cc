#include "plan/formats/python_order.h"

#include <cstdint>

namespace clairfs {
// Unicode 15, table 3-7.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto continues = [&](size_t i, uint8_t least = 0x80, uint8_t most = 0xBF) {
    return byte(i) >= least && byte(i) <= most;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = lead == 0xE0   ? continues(1, 0xA0)
                        : lead == 0xED ? continues(1, 0x80, 0x9F)
                                       : continues(1);
    return second && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = lead == 0xF0   ? continues(1, 0x90)
                        : lead == 0xF4 ? continues(1, 0x80, 0x8F)
                                       : continues(1);
    return second && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool is_utf8(std::string_view name) {
  while (!name.empty()) {
    const size_t length = utf8_length(name);
    if (length == 0) return false;
    name.remove_prefix(length);
  }
  return true;
}

std::string python_sort_key(std::string_view name) {
  std::string key;
  key.reserve(name.size());
  while (!name.empty()) {
    const size_t length = utf8_length(name);
    if (length != 0) {
      key += name.substr(0, length);
    } else {
      // U+DC80 .. U+DCFF are ED B2 80 .. ED B3 BF.
      const auto byte = static_cast<uint8_t>(name[0]);
      key += static_cast<char>(0xED);
      key += static_cast<char>(0xB0 | byte >> 6);
      key += static_cast<char>(0x80 | (byte & 0x3F));
    }
    name.remove_prefix(length != 0 ? length : 1);
  }
  return key;
}

}  // namespace clairfs
