// Faults that tests inject into the slow filesystem while it runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/result.h"

namespace clairfs::slowfs {

enum class Op { lookup, getattr, open, read, readdir, readlink, statfs };
inline constexpr size_t kOpCount = 7;

/// What a request has to suffer.
struct Verdict {
  bool eio = false;
  Duration hang{0};
};

/// Not thread-safe. Paths are relative to the served directory, the root is "". Patterns are fnmatch(3)
/// patterns in which `*` also matches slashes.
class Faults {
 public:
  /// The next `count` reads of files that match `pattern` fail with EIO; without a count all do.
  void add_eio(std::string pattern, std::optional<uint64_t> count);
  /// The same for every operation on any path.
  void add_eio_all(std::optional<uint64_t> count);
  /// Every operation on a path that matches is answered `hang` later.
  void add_hang(std::string pattern, Duration hang);
  void clear() { faults_.clear(); }

  /// Counts down the faults that it applies.
  Verdict judge(Op op, const std::string& path);

 private:
  struct Fault {
    std::string pattern;
    bool reads_only = false;
    bool eio = false;
    Duration hang{0};
    std::optional<uint64_t> left = std::nullopt;
  };
  std::vector<Fault> faults_;
};

}  // namespace clairfs::slowfs
