// Small text files read whole: /proc entries, control files, configuration.
#pragma once

#include <string>

#include "cache/base/result.h"

namespace clairfs {

/// The content of `path`. Errors: what open(2) and read(2) say, with the path; EFBIG above 64 MiB, which no
/// such file reaches unless the path is a mistake.
Result<std::string> read_text_file(const std::string& path);

/// Makes the file or replaces what it holds. Errors: what open(2), write(2) and close(2) say, with the path.
Status write_text_file(const std::string& path, const std::string& text);

}  // namespace clairfs
