// Words and numbers in text that people or other programs wrote.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>

namespace clairfs {

/// The characters of std::isspace() but vertical tab and form feed, which texts do not contain.
inline constexpr std::string_view kBlank = " \t\r\n";

/// Without blanks at either end.
constexpr std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// The number that all of `text` is, in decimal; nothing if it is none, or does not fit.
template <std::integral T>
std::optional<T> parse_whole(std::string_view text) {
  T number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace clairfs
