#include "net/meeting/keyed_hash.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include <fmt/format.h>
#include <sys/random.h>

#include "plan/random/sha512.h"

namespace clairfs {
namespace {

constexpr size_t kBlock = 128;       // bytes that SHA-512 takes at a time (FIPS 180-4)
constexpr size_t kRandomBytes = 16;  // nobody guesses 128 bits

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string_view characters(const std::array<uint8_t, 64>& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string keyed_hash(std::string_view key, std::string_view message) {
  std::string block(kBlock, '\0');
  if (key.size() > kBlock) {
    const auto shortened = sha512(key);
    block.replace(0, shortened.size(), characters(shortened));
  } else {
    block.replace(0, key.size(), key);
  }
  const auto padded = [&](int pad) {
    std::string text = block;
    for (char& c : text) c = static_cast<char>(c ^ pad);
    return text;
  };
  const auto inner = sha512(padded(0x36).append(message));
  return hex(sha512(padded(0x5c).append(characters(inner))));
}

Result<std::string> random_word() {
  std::array<uint8_t, kRandomBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return system_error(errno, "draw random bytes");
  return hex(bytes);
}

bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace clairfs
