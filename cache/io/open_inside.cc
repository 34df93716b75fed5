#include "cache/io/open_inside.h"

#include <cerrno>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace clairfs {
namespace {

int walk(int directory, std::string_view path, int flags) {
  Fd step;
  for (;;) {
    const size_t slash = path.find('/');
    const bool last = slash == std::string_view::npos;
    const std::string name(path.substr(0, slash));
    const int base = step ? step.get() : directory;
    const int opened =
        ::openat(base, name.c_str(), (last ? flags : O_PATH | O_DIRECTORY | O_CLOEXEC) | O_NOFOLLOW);
    if (last || opened < 0) return opened;
    step.reset(opened);
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

int open_inside(int directory, const char* path, int flags) {
  open_how how = how_inside(flags);
  const auto opened = static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof how));
  if (opened >= 0 || (errno != ENOSYS && errno != EPERM)) return opened;
  return walk(directory, path, flags);
}

}  // namespace clairfs
