// Reads the vectors in tests/data/golden (its README.md has the format).
#pragma once

#include <cstdint>
#include <fstream>
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

/// Whether `expected` describes exactly this sequence.
template <class T>
bool same_sequence(const Json& expected, const std::vector<T>& actual) {
  const std::vector<int64_t> wide(actual.begin(), actual.end());
  const auto agrees = [&](const char* key, size_t from) {
    if (!expected.contains(key)) return true;
    for (size_t i = 0; i < expected.at(key).size(); ++i) {
      if (from + i >= wide.size() || integer(expected.at(key)[i]) != wide[from + i]) return false;
    }
    return true;
  };
  if (expected.at("count").get<size_t>() != wide.size()) return false;
  if (!agrees("values", 0) || !agrees("head", 0)) return false;
  if (expected.contains("tail") && !agrees("tail", wide.size() - expected.at("tail").size())) return false;
  const auto hash = XXH64(wide.data(), wide.size() * sizeof(int64_t), 0);
  return std::stoull(expected.at("xxh64").get<std::string>(), nullptr, 16) == hash;
}

}  // namespace clairfs::golden
