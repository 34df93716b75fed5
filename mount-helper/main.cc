// clairfs; also mount.clairfs and mount.fuse.clairfs, which are links to it.
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "mount-helper/commands/cli.h"

namespace {

// Some services start programs with standard streams closed. The next file opened would take their number,
// and what is printed would go there.
void open_standard_streams() {
  int fd = 0;
  while ((fd = ::open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::string_view name = argc > 0 ? argv[0] : "";
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with("mount.") ? clairfs::run_mount_helper(argc, argv)
                                    : clairfs::run_clairfs(argc, argv);
}
