// Opens by relative path, however long.
#pragma once

#include <string_view>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// open_inside(directory, path, flags | O_CLOEXEC), for paths beyond PATH_MAX too: those are walked in
/// pieces, holding at most two descriptors at a time. "" opens the directory itself. Thread-safe. Errors:
/// those of open_inside(), with the path.
Result<Fd> open_below(int directory, std::string_view path, int flags);

}  // namespace clairfs
