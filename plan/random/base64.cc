#include "plan/random/base64.h"

#include <cerrno>
#include <cstdint>

namespace clairfs {

Result<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  if (text.size() % 4 == 1) return Error{EINVAL, "base64 text is cut short"};
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t buffer = 0;
  int bits = 0;
  for (const char letter : text) {
    const size_t digit = kAlphabet.find(letter);
    if (digit == std::string_view::npos)
      return Error{EINVAL, "not base64 text (A-Z a-z 0-9 + / and = at the end)"};
    buffer = (buffer << 6) | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(buffer >> bits));
  }
  return bytes;
}

}  // namespace clairfs
