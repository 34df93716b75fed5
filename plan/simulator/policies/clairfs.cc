#include "plan/simulator/policies.h"

#include <cerrno>

namespace clairfs {

Result<Strategy> make_clairfs(const PolicyInput&) {
  return Error{ENOTSUP, "to come"};
}

}  // namespace clairfs
