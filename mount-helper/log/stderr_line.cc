#include "mount-helper/log/stderr_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include "mount-helper/log/log_output.h"

namespace clairfs {

void print_to_stderr(std::string_view line) {
  (void)write_whole(STDERR_FILENO, fmt::format("clairfs: {}\n", line));
}

}  // namespace clairfs
