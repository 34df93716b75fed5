// Paths as they may stand in a log line or an error: a file name can hold any byte but '/' and NUL.
#pragma once

#include <string>
#include <string_view>

namespace clairfs {

/// `text` with control characters and backslashes escaped ("\n", "\x1b", "\\"), so that it stays on one line
/// and cannot steer a terminal. Bytes from 0x80 on are left as they are: mostly UTF-8.
std::string escaped(std::string_view text);

/// The lines of a text that another process sent, with all control characters but newlines escaped.
std::string escape_controls(std::string_view text);

}  // namespace clairfs
