// The lines of a list file, or the elements of an array in a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs {

/// The meaning of one line.
struct ListLine {
  enum class Kind : uint8_t {
    entry,      ///< `text` is a path or an index
    epoch_end,  ///< a blank line, or one that starts with "# epoch"
  };
  Kind kind = Kind::entry;
  std::string_view text;
  uint64_t number = 0;  ///< of the line, counted from 1; of the element in an array
};

/// Calls `visit` for every line of `text` but comments (lines that start with '#'; a file of such a name is
/// written "./#name"), until it returns an error, which is returned. A '\r' before the line's end belongs to
/// the end.
Status for_each_line(std::string_view text, const std::function<Status(const ListLine&)>& visit);

/// The elements of a JSON array as lines of their own. REQUIRES: what a plan's `list` or `indices` may be.
std::string array_to_lines(const std::string& array);

/// Whether the first entry of the text is a sample's number and not a path.
bool lists_indices(std::string_view text);

}  // namespace clairfs
