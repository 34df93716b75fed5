// Files that no server has to be asked for.
#pragma once

namespace clairfs {

/// Whether `directory` is on a filesystem that is this machine's alone. A file of it whose inode is in memory
/// is opened, and its attributes are read, in a microsecond; handing that to another thread would take twenty
/// times as long. Filesystems that are not known to be local are not: the server of a network filesystem may
/// hang. Thread-safe. Asks the server where there is one (statfs): for the beginning of a mount, not for
/// reads.
bool is_on_local_filesystem(int directory);

}  // namespace clairfs
