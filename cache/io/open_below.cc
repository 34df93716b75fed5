#include "cache/io/open_below.h"

#include <cerrno>
#include <climits>
#include <string>

#include <fcntl.h>

#include "cache/base/escaped.h"
#include "cache/io/open_inside.h"

namespace clairfs {

Result<Fd> open_below(int directory, std::string_view path, int flags) {
  std::string_view rest = path;
  Fd step;
  for (;;) {
    const int base = step ? step.get() : directory;
    const bool last = rest.size() < PATH_MAX;  // which counts the NUL
    const size_t cut = last ? rest.size() : rest.rfind('/', PATH_MAX - 1);
    if (cut == std::string_view::npos) return system_error(ENAMETOOLONG, "open " + escaped(path));
    const std::string piece = rest.empty() ? "." : std::string(rest.substr(0, cut));
    Fd next(open_inside(base, piece.c_str(), (last ? flags : O_PATH | O_DIRECTORY) | O_CLOEXEC));
    if (!next) return system_error(errno, "open " + escaped(path));
    if (last) return next;
    step = std::move(next);
    rest.remove_prefix(cut + 1);
  }
}

}  // namespace clairfs
