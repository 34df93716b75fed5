// The order in which Python sorts file names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace clairfs {

/// A key whose bytewise order is Python's order of the name: Python decodes names as UTF-8 with
/// surrogateescape (an undecodable byte b becomes U+DC00 + b) and compares code points (PEP 383). For valid
/// UTF-8 that is the name itself; an undecodable byte is spelled as the three bytes UTF-8 would give its
/// surrogate, which sorts it between U+D7FF and U+E000.
std::string python_sort_key(std::string_view name);

/// Bytes of the well-formed UTF-8 character that `text` begins with; 0 if it begins with none.
size_t utf8_length(std::string_view text);

/// Whether all of it is UTF-8 as Python decodes it (no surrogates, no overlong forms, at most U+10FFFF).
bool is_utf8(std::string_view name);

}  // namespace clairfs
