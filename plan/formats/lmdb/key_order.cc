#include "plan/formats/lmdb/key_order.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "cache/base/text.h"
#include "plan/formats/list_text.h"
#include "plan/spec/keys.h"

namespace clairfs::lmdb {
namespace {

Error wrong_keys(std::string why) {
  return {EINVAL, std::move(why)};
}

// A leaf waits for those before it.
class CursorOrder final : public KeyOrder {
 public:
  explicit CursorOrder(RecordTableBuilder& table) : table_(table) {}

  Status begin_leaf(uint64_t rank) override {
    if (Status status = flush(); !status) return status;
    leaf_ = &waiting_[rank];
    return {};
  }
  Result<bool> take(std::string_view, const ByteRange& value) override {
    leaf_->push_back(value);
    return true;
  }
  Status end_file() override {
    if (Status status = flush(); !status) return status;
    next_ = 0;
    return {};
  }

 private:
  Status flush() {
    for (; !waiting_.empty() && waiting_.begin()->first == next_; ++next_) {
      for (const ByteRange& value : waiting_.begin()->second) {
        if (Status status = table_.add_sample(value); !status) return status;
      }
      waiting_.erase(waiting_.begin());
    }
    return {};
  }

  RecordTableBuilder& table_;
  std::map<uint64_t, std::vector<ByteRange>> waiting_;  // values, by rank of their leaf
  std::vector<ByteRange>* leaf_ = nullptr;              // that is being taken
  uint64_t next_ = 0;                                   // the leaf before which nothing waits
};

// A key made by printf() of one number.
class KeyPattern {
 public:
  // Nothing if `text` is not a pattern with one "%d" or "%0Nd", and "%%" for a percent sign.
  static std::optional<KeyPattern> parse(std::string_view text) {
    KeyPattern pattern;
    bool number = false;
    while (!text.empty()) {
      const bool conversion = text.starts_with('%') && !text.starts_with("%%");
      std::string& literal = number ? pattern.suffix_ : pattern.prefix_;
      if (!conversion) {
        literal += text.front();
        text.remove_prefix(text.starts_with("%%") ? 2 : 1);
        continue;
      }
      const size_t end = text.find('d');
      if (number || end == std::string_view::npos) return std::nullopt;
      const std::string_view width = text.substr(1, end - 1);
      const auto zeros = width.starts_with('0') ? parse_whole<uint32_t>(width) : std::nullopt;
      if (!width.empty() && (!zeros || *zeros > kMostDigits)) return std::nullopt;
      pattern.digits_ = zeros.value_or(1);
      number = true;
      text.remove_prefix(end + 1);
    }
    return number ? std::optional(pattern) : std::nullopt;
  }

  // The number of which `key` is the spelling.
  std::optional<uint64_t> number_in(std::string_view key) const {
    if (key.size() <= prefix_.size() + suffix_.size() || !key.starts_with(prefix_) || !key.ends_with(suffix_))
      return std::nullopt;
    const std::string_view digits = key.substr(prefix_.size(), key.size() - prefix_.size() - suffix_.size());
    const bool shortest = digits.size() == digits_ || (digits.size() > digits_ && digits.front() != '0');
    return shortest ? parse_whole<uint64_t>(digits) : std::nullopt;
  }

 private:
  static constexpr uint32_t kMostDigits = 20;  // of 64 bits

  std::string prefix_;
  std::string suffix_;
  uint32_t digits_ = 1;  // at least so many
};

// Sample i of a file has the values of which the keys say first + i.
class PatternOrder final : public KeyOrder {
 public:
  PatternOrder(std::vector<KeyPattern> patterns, RecordTableBuilder& table) : table_(table) {
    for (KeyPattern& pattern : patterns) columns_.push_back({std::move(pattern), {}});
  }

  Result<bool> take(std::string_view key, const ByteRange& value) override {
    bool taken = false;
    for (Column& column : columns_) {
      const auto number = column.pattern.number_in(key);
      if (number) column.values.push_back({*number, value});
      taken = taken || number;
    }
    return taken;
  }

  Status end_file() override {
    for (Column& column : columns_) {
      if (Status status = sort(column.values); !status) return status;
    }
    const std::vector<Value>& first = columns_.front().values;
    for (const Column& column : columns_) {
      const bool alike = column.values.size() == first.size() &&
                         (first.empty() || column.values.front().number == first.front().number);
      if (!alike)
        return wrong_keys("the patterns meet different numbers; want a value of each for every sample");
    }
    for (size_t i = 0; i < first.size(); ++i) {
      if (Status status = table_.add_sample(); !status) return status;
      for (const Column& column : columns_) {
        if (Status status = table_.add_range(column.values[i].range); !status) return status;
      }
    }
    for (Column& column : columns_) column.values.clear();
    return {};
  }

 private:
  struct Value {
    uint64_t number;
    ByteRange range;
  };
  struct Column {
    KeyPattern pattern;
    std::vector<Value> values;
  };

  static Status sort(std::vector<Value>& values) {
    std::sort(values.begin(), values.end(),
              [](const Value& a, const Value& b) { return a.number < b.number; });
    for (size_t i = 1; i < values.size(); ++i) {
      const uint64_t before = values[i - 1].number;
      if (values[i].number == before + 1) continue;
      return wrong_keys(
          fmt::format("there are keys of the numbers {} and {} and none between; want a file that "
                      "lists the keys, or keys=cursor",
                      before, values[i].number));
    }
    return {};
  }

  RecordTableBuilder& table_;
  std::vector<Column> columns_;
};

// Sample i is the key that somebody wrote into line i.
class ListedOrder final : public KeyOrder {
 public:
  explicit ListedOrder(RecordTableBuilder& table) : table_(table) {}

  void add(const ListLine& line) {
    const auto [known, added] = places_.try_emplace(unescaped(line.text), Place{line.number, {}});
    order_.push_back(&known->second);
  }

  Result<bool> take(std::string_view key, const ByteRange& value) override {
    const auto wanted = places_.find(std::string(key));
    if (wanted == places_.end()) return false;
    if (wanted->second.value) return wrong_keys("two of the files have a key that is listed; want one file");
    wanted->second.value = value;
    return true;
  }

  Status end() override {
    for (const Place* place : order_) {
      if (!place->value) return wrong_keys(fmt::format("no record has the key in line {}", place->line));
      if (Status status = table_.add_sample(*place->value); !status) return status;
    }
    return {};
  }

 private:
  struct Place {
    uint64_t line;
    std::optional<ByteRange> value;
  };

  RecordTableBuilder& table_;
  std::unordered_map<std::string, Place> places_;
  std::vector<const Place*> order_;
};

std::optional<std::vector<KeyPattern>> parse_patterns(std::string_view keys) {
  std::vector<KeyPattern> patterns;
  for (bool more = true; more;) {
    const size_t end = std::min(keys.find(','), keys.size());
    more = end < keys.size();
    const auto pattern = KeyPattern::parse(keys.substr(0, end));
    if (!pattern) return std::nullopt;
    patterns.push_back(*pattern);
    keys.remove_prefix(std::min(end + 1, keys.size()));
  }
  return patterns;
}

std::optional<unsigned> hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

std::string unescaped(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto high = text[i] == '%' && i + 2 < text.size() ? hexadecimal(text[i + 1]) : std::nullopt;
    const auto low = high ? hexadecimal(text[i + 2]) : std::nullopt;
    bytes += low ? static_cast<char>(*high << 4 | *low) : text[i];
    if (low) i += 2;
  }
  return bytes;
}

Result<std::string> key_order_text(const std::string& keys, const DatasetSource& source) {
  if (!keys_name_file(keys)) return keys;
  Result<std::string> text = read_list_file(source.list_path(keys));
  if (!text) return text;
  const XXH128_hash_t hash = XXH3_128bits(text->data(), text->size());
  return fmt::format("/{:016x}{:016x}", hash.high64, hash.low64);  // with a slash as file names have one
}

Result<std::unique_ptr<KeyOrder>> make_key_order(const std::string& keys, const DatasetSource& source,
                                                 RecordTableBuilder& table) {
  if (keys == "cursor") return std::unique_ptr<KeyOrder>(new CursorOrder(table));
  if (!keys_name_file(keys)) {
    auto patterns = parse_patterns(keys == "decimal" ? "%d" : std::string_view(keys));
    if (!patterns) return wrong_keys("want %d or %0Nd once in each pattern, such as image-%09d");
    return std::unique_ptr<KeyOrder>(new PatternOrder(std::move(*patterns), table));
  }
  const Result<std::string> text = read_list_file(source.list_path(keys));
  if (!text) return text.error();
  auto listed = std::make_unique<ListedOrder>(table);
  const Status read = for_each_line(*text, [&](const ListLine& line) -> Status {
    if (line.kind == ListLine::Kind::entry) listed->add(line);
    return {};
  });
  if (!read) return read.error();
  return std::unique_ptr<KeyOrder>(std::move(listed));
}

}  // namespace clairfs::lmdb
