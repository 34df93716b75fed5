#include "cache/base/escaped.h"

#include <cctype>

#include <fmt/format.h>

namespace clairfs {

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string escape_controls(std::string_view text) {
  std::string shown;
  for (const char c : text)
    shown += c != '\n' && std::iscntrl(static_cast<unsigned char>(c)) != 0
                 ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c))
                 : std::string(1, c);
  return shown;
}

}  // namespace clairfs
