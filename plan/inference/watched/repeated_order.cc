#include "plan/inference/watched/repeated_order.h"

#include <iterator>
#include <unordered_map>

#include <fmt/format.h>

namespace clairfs {
namespace {

// Opens that tell a second pass from a few samples that are read again: strays are 5 % and a few.
constexpr size_t kTelling = 24;
constexpr size_t kMostFirst = 3;  // of these, samples that were not opened before

}  // namespace

std::optional<FirstPass> find_first_pass(std::span<const uint32_t> samples) {
  std::unordered_map<uint32_t, size_t> first;  // sample -> its first open
  std::vector<bool> again(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) again[i] = !first.try_emplace(samples[i], i).second;
  size_t new_ones = 0;  // among the kTelling opens up to i
  for (size_t i = 0; i < samples.size(); ++i) {
    new_ones += again[i] ? 0 : 1;
    if (i >= kTelling) new_ones -= again[i - kTelling] ? 0 : 1;
    if (i + 1 < kTelling || new_ones > kMostFirst || !again[i + 1 - kTelling]) continue;
    FirstPass pass;
    pass.repeated_from = i + 1 - kTelling;
    for (size_t j = 0; j < pass.repeated_from; ++j) {
      if (!again[j]) pass.order.push_back(samples[j]);
    }
    return pass;
  }
  return std::nullopt;
}

std::string list_in_place(std::span<const uint32_t> order) {
  std::string text = "[";
  for (const uint32_t sample : order) fmt::format_to(std::back_inserter(text), "{},", sample);
  text.back() = ']';
  return text;
}

}  // namespace clairfs
