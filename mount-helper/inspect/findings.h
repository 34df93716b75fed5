// The findings of `clairfs doctor`: whether this machine has what a mount needs, and the troubles of one that
// runs, each with its cure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mount-helper/options/defaults.h"
#include "mount-helper/options/permissions.h"

namespace clairfs {

struct Finding {
  enum class Kind { good, note, bad };  ///< a note costs speed, or something that only some users want
  Kind kind = Kind::good;
  std::string subject;  ///< "/dev/fuse"
  std::string text;
  std::string cure;  ///< empty for good ones
};

/// The facts that the machine's findings are made from, besides FuseFacts; tests make their own.
struct MachineFacts {
  std::string kernel;             ///< uname -r
  int io_uring_errno = 0;         ///< of making a ring
  uint64_t memory = 0;            ///< available_memory()
  uint64_t open_files = 0;        ///< RLIMIT_NOFILE
  std::string options_error;      ///< of the environment or the config file; empty: none
  std::string catalog_dir;        ///< empty: this user has no home
  uint64_t catalog_free = 0;      ///< bytes there
  bool catalog_writable = false;  ///< it, or the nearest folder above that is there
  std::string mpi_error;          ///< why MPI cannot be loaded; empty: it can
  std::string launcher;           ///< path of mpiexec or srun; empty: none
};

/// This machine, this user.
MachineFacts gather_machine_facts();

std::vector<Finding> machine_findings(const FuseFacts& fuse, const MachineFacts& machine);

/// The findings in a mount's stats.json. Any user may have made that mount, so nothing in it has to be as
/// expected.
std::vector<Finding> mount_findings(const std::string& mountpoint, const nlohmann::json& stats);

/// A line each, cures below: "  ok    /dev/fuse  can be opened".
std::string findings_text(const std::vector<Finding>& findings);
/// An array of objects {kind, subject, text, cure}; kind is "good", "note" or "bad".
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace clairfs
