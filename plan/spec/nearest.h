// The known word that an unknown one may have been meant for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clairfs {

/// Letters to insert, remove, replace or swap with their neighbour to make `b` of `a` (optimal string
/// alignment).
inline size_t typing_errors(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

/// The nearest of `words`, or nothing: with more than a third of its letters wrong (or two, of short ones)
/// a suggestion only confuses. `words` is any range of what converts to std::string_view.
template <class Words>
std::string nearest_word(std::string_view typed, const Words& words) {
  constexpr size_t kLongest = 40;  // longer words are no typing errors
  const std::string_view word = typed.substr(0, kLongest);
  std::string best;
  size_t least = kLongest;
  for (const auto& candidate : words) {
    const std::string_view other = candidate;
    const size_t errors = typing_errors(word, other);
    if (errors >= least || errors > std::max<size_t>(1, std::max(other.size(), word.size()) / 3)) continue;
    least = errors;
    best = other;
  }
  return best;
}

/// "; did you mean X?", or nothing.
inline std::string did_you_mean(const std::string& word) {
  return word.empty() ? "" : "; did you mean " + word + "?";
}

}  // namespace clairfs
