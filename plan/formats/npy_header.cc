#include "plan/formats/npy_header.h"

#include <cerrno>
#include <map>

#include <fmt/format.h>

#include "cache/base/text.h"

namespace clairfs {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

Error wrong(const std::string& why) {
  return {EINVAL, "npy: " + why};
}

uint32_t byte_at(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

// Reads the dictionary that NumPy prints: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. Values
// stay text; a tuple or list is kept with its brackets.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  Result<std::map<std::string, std::string>> read() {
    std::map<std::string, std::string> values;
    if (!take('{')) return wrong("the header is no dictionary");
    while (!take('}')) {
      std::string key;
      std::string value;
      if (!take_string(key) || !take(':') || !take_value(value))
        return wrong("the header's dictionary is malformed");
      values[key] = value;
      if (!take(',') && !next_is('}')) return wrong("the header's dictionary is malformed");
    }
    skip_space();
    if (!rest_.empty()) return wrong("text after the header's dictionary");
    return values;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool next_is(char c) {
    skip_space();
    return rest_.starts_with(c);
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_string(std::string& value) {
    if (!next_is('\'') && !next_is('"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return false;
    value = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool take_value(std::string& value) {
    if (take_string(value)) return true;
    size_t end = 0;
    if (next_is('(') || next_is('[')) {
      end = rest_.find(rest_[0] == '(' ? ')' : ']');
      if (end++ == std::string_view::npos) return false;
    } else {
      end = std::min(rest_.find_first_of(",}"), rest_.size());
    }
    value = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return !value.empty();
  }

  std::string_view rest_;
};

// "<f4", "|u1", "<U7", "<M8[ns]": byte order, kind, bytes (characters of four bytes in U).
Result<uint64_t> item_bytes(std::string_view descr) {
  const std::string shown(descr.substr(0, 40));
  if (descr.starts_with('[') || descr.starts_with('('))
    return wrong("structured elements are not read; want plain ones");
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos)
    descr.remove_prefix(1);
  if (descr.starts_with('O')) return wrong("its elements are Python objects, which have no fixed place");
  if (descr.empty() || std::string_view("biufcSUVmM").find(descr[0]) == std::string_view::npos) {
    return wrong(fmt::format("unknown type of element {}", shown));
  }
  const std::string_view digits = descr.substr(1, std::min(descr.find('['), descr.size()) - 1);
  // 2^31 - 1 is NumPy's own limit.
  const auto bytes = parse_whole<uint64_t>(digits);
  if (!bytes || *bytes > INT32_MAX) return wrong(fmt::format("unknown type of element {}", shown));
  return descr[0] == 'U' ? *bytes * 4 : *bytes;
}

Result<std::vector<uint64_t>> parse_shape(std::string_view text) {
  if (!text.starts_with('(')) return wrong("its shape is no tuple");
  text = text.substr(1, text.size() - 2);
  std::vector<uint64_t> shape;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view number = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (number.starts_with(' ')) number.remove_prefix(1);
    while (number.ends_with(' ')) number.remove_suffix(1);
    if (number.empty() && text.empty()) break;
    if (number.ends_with('L')) number.remove_suffix(1);  // Python 2
    const auto extent = parse_whole<uint64_t>(number);
    if (!extent) return wrong("its shape holds something that is no number");
    shape.push_back(*extent);
    if (shape.size() > 64) return wrong("it has more than 64 dimensions");  // NumPy 2's limit
  }
  return shape;
}

}  // namespace

Result<uint32_t> npy_header_end(std::string_view preamble) {
  if (preamble.size() < kNpyPreamble || !preamble.starts_with(kMagic)) return wrong("no NumPy array file");
  const uint32_t version = byte_at(preamble, 6);
  if (version < 1 || version > 3) return wrong(fmt::format("unknown format version {}", version));
  uint64_t length = byte_at(preamble, 8) | byte_at(preamble, 9) << 8;
  if (version > 1) length |= uint64_t{byte_at(preamble, 10)} << 16 | uint64_t{byte_at(preamble, 11)} << 24;
  if (length > kMaxNpyHeader)
    return wrong(fmt::format("a header of {} bytes; want at most {}", length, kMaxNpyHeader));
  return static_cast<uint32_t>(length + (version == 1 ? 10 : 12));
}

Result<NpyHeader> parse_npy_header(std::string_view start) {
  const Result<uint32_t> end = npy_header_end(start.substr(0, kNpyPreamble));
  if (!end) return end.error();
  if (start.size() < *end) return wrong("the file ends inside its header");
  const size_t begin = byte_at(start, 6) == 1 ? 10 : 12;
  auto values = Literal(start.substr(begin, *end - begin)).read();
  if (!values) return values.error();
  for (const char* key : {"descr", "fortran_order", "shape"}) {
    if (!values->contains(key)) return wrong(fmt::format("the header lacks {}", key));
  }
  const std::string& fortran = values->at("fortran_order");
  if (fortran != "False" && fortran != "True") return wrong("fortran_order is neither True nor False");
  if (fortran == "True")
    return wrong("the array is in Fortran order, where a row is not one piece; want C order");
  const Result<uint64_t> bytes = item_bytes(values->at("descr"));
  if (!bytes) return bytes.error();
  Result<std::vector<uint64_t>> shape = parse_shape(values->at("shape"));
  if (!shape) return shape.error();
  return NpyHeader{*end, values->at("descr"), *bytes, std::move(*shape)};
}

}  // namespace clairfs
