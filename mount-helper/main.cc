// clairfs; also mount.clairfs and mount.fuse.clairfs, which are links to it.
#include <string_view>

#include "mount-helper/cli.h"

int main(int argc, char** argv) {
  std::string_view name = argc > 0 ? argv[0] : "";
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with("mount.") ? clairfs::run_mount_helper(argc, argv)
                                    : clairfs::run_clairfs(argc, argv);
}
