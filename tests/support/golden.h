// Reads the vectors in tests/data/golden (its README.md has the format).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <xxhash.h>

namespace clairfs::golden {

using Json = nlohmann::json;

/// The cases of a section.
inline Json cases(const std::string& section) {
  std::ifstream file(std::string(CLAIRFS_TEST_DATA) + "/golden/" + section + ".json");
  if (!file) throw std::runtime_error("no golden section " + section);
  return Json::parse(file).at("cases");
}

/// One answer to a case and the environments that gave it ("torch1.13.1+numpy1.24.2+py3.11.2+gcc12.2").
struct Answer {
  Json result;
  std::vector<std::string> environments;
};

/// All answers to a case: the canonical one first, then what other environments gave instead.
inline std::vector<Answer> answers(const Json& test) {
  std::vector<Answer> all = {{test.at("result"), test.at("verified_on")}};
  const Json variants = test.value("variants", Json::object());
  for (const auto& [environment, result] : variants.items()) all.push_back({result, {environment}});
  return all;
}

/// "2.6" out of "torch2.6.0+...": the text after `library` up to the second dot, or to the '+'.
inline std::string version_of(const std::string& environment, const std::string& library) {
  const size_t start = environment.find(library) + library.size();
  const size_t dot = environment.find('.', start);
  return environment.substr(start, environment.find_first_of(".+", dot + 1) - start);
}

inline int64_t integer(const Json& value) {
  if (!value.is_string()) return value.get<int64_t>();
  const std::string text = value.get<std::string>();
  return text.starts_with('-') ? std::stoll(text) : static_cast<int64_t>(std::stoull(text));
}

/// The xxh64 of the sequence as an int64 array, made in pieces: the longest would take 1.7 GB.
template <class T>
uint64_t hash_of(const std::vector<T>& values) {
  constexpr size_t kAtOnce = 1 << 16;
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(),
                                                                         XXH64_freeState);
  XXH64_reset(state.get(), 0);
  for (size_t first = 0; first < values.size(); first += kAtOnce) {
    const std::vector<int64_t> wide(
        values.begin() + static_cast<std::ptrdiff_t>(first),
        values.begin() + static_cast<std::ptrdiff_t>(std::min(first + kAtOnce, values.size())));
    XXH64_update(state.get(), wide.data(), wide.size() * sizeof(int64_t));
  }
  return XXH64_digest(state.get());
}

/// Whether `expected` describes exactly this sequence.
template <class T>
bool same_sequence(const Json& expected, const std::vector<T>& actual) {
  const auto agrees = [&](const char* key, size_t from) {
    if (!expected.contains(key)) return true;
    for (size_t i = 0; i < expected.at(key).size(); ++i) {
      if (from + i >= actual.size()) return false;
      if (integer(expected.at(key)[i]) != static_cast<int64_t>(actual[from + i])) return false;
    }
    return true;
  };
  if (expected.at("count").get<size_t>() != actual.size()) return false;
  if (!agrees("values", 0) || !agrees("head", 0)) return false;
  if (expected.contains("tail") && !agrees("tail", actual.size() - expected.at("tail").size())) return false;
  return std::stoull(expected.at("xxh64").get<std::string>(), nullptr, 16) == hash_of(actual);
}

}  // namespace clairfs::golden
