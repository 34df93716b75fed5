#include <cerrno>

#include "plan/simulator/engine.h"

namespace clairfs {

Status simulate_by_time(const SimulationInput&, Outcome&) {
  return Error{ENOTSUP, "to come"};
}

}  // namespace clairfs
