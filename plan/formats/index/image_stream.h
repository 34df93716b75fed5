// Numbers, texts and arrays one after the other in bytes, in this machine's byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace clairfs {

class ImageWriter {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void put(Number number) { put_bytes(std::as_bytes(std::span(&number, 1))); }
  template <class Number>
  void put_array(std::span<const Number> numbers) {
    put(uint64_t{numbers.size()});
    put_bytes(std::as_bytes(numbers));
  }
  void put_text(std::string_view text) { put_array(std::span<const char>(text)); }

  size_t size() const { return bytes_.size(); }
  /// Puts a number where another one is. REQUIRES: it lies before size().
  template <class Number>
  void replace(size_t at, Number number) {
    std::memcpy(bytes_.data() + at, &number, sizeof number);
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte> bytes_;
};

/// Reads bytes that any process may have written: nothing where there are too few of them, and no memory
/// taken for bytes that are not there.
class ImageReader {
 public:
  explicit ImageReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  std::optional<Number> get() {
    Number number = 0;
    if (bytes_.size() < sizeof number) return std::nullopt;
    std::memcpy(&number, bytes_.data(), sizeof number);
    bytes_ = bytes_.subspan(sizeof number);
    return number;
  }
  template <class Number>
  std::optional<std::vector<Number>> get_array() {
    const auto count = get<uint64_t>();
    if (!count || *count > bytes_.size() / sizeof(Number)) return std::nullopt;
    std::vector<Number> numbers(*count);
    if (!numbers.empty()) std::memcpy(numbers.data(), bytes_.data(), *count * sizeof(Number));
    bytes_ = bytes_.subspan(*count * sizeof(Number));
    return numbers;
  }
  std::optional<std::string> get_text() {
    const auto text = get_array<char>();
    return text ? std::optional(std::string(text->begin(), text->end())) : std::nullopt;
  }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace clairfs
