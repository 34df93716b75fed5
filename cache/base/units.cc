#include "cache/base/units.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace clairfs {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};

// The power of 1024 that a suffix stands for, or -1.
int suffix_power(std::string_view suffix) {
  std::string lower;
  for (char c : suffix) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.empty() || lower == "b") return 0;
  const size_t power = std::string_view("bkmgt").find(lower[0]);
  if (power == std::string_view::npos || power == 0) return -1;
  const std::string_view rest = std::string_view(lower).substr(1);
  return rest.empty() || rest == "b" || rest == "ib" ? static_cast<int>(power) : -1;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  const Error bad{EINVAL, fmt::format("'{}' is not a size; write for example 4096, 512M or 20GiB", text)};
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || !std::isfinite(number) || number < 0) return bad;
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  const int power = suffix_power(suffix);
  if (power < 0) return bad;
  const double bytes = number * std::pow(1024.0, power);
  constexpr double kLargest = 1ULL << 62;  // fits off_t with room for sums of a few sizes
  if (bytes > kLargest) return bad;
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

std::string format_uptime(std::chrono::nanoseconds duration) {
  const int64_t seconds = std::chrono::floor<std::chrono::seconds>(duration).count();
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

}  // namespace clairfs
