#include "plan/simulator/model/request_pump.h"

#include <cerrno>
#include <memory>
#include <vector>

namespace clairfs {
namespace {

// A filesystem that does not answer for so long is not worth measuring.
constexpr auto kPatience = std::chrono::minutes(1);

// Shared with the requests, which may outlive run_pump().
struct State {
  Mutex mutex;  // leaf
  CondVar changed;
  std::vector<unsigned> free_slots GUARDED_BY(mutex);
  PumpResult result GUARDED_BY(mutex);
};

void complete(State& state, unsigned slot, const Result<uint64_t>& moved) {
  MutexLock lock(state.mutex);
  state.free_slots.push_back(slot);
  ++state.result.requests;
  if (moved) {
    state.result.bytes += *moved;
  } else {
    ++state.result.failed;
    if (!state.result.first_failure) state.result.first_failure = moved.error();
  }
  state.changed.notify_all();
}

// Waits until `count` slots are free; false when that takes too long.
bool wait_for_slots(State& state, MutexLock& lock, size_t count) REQUIRES(state.mutex) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (state.free_slots.size() < count) {
    if (state.changed.wait_until(lock, deadline) == std::cv_status::timeout)
      return state.free_slots.size() >= count;
  }
  return true;
}

}  // namespace

Result<PumpResult> run_pump(const PumpLimits& limits, const Clock& clock, const PumpStart& start) {
  const auto state = std::make_shared<State>();
  const TimePoint begin = clock.now();
  MutexLock lock(state->mutex);
  for (unsigned slot = 0; slot < limits.in_flight; ++slot) state->free_slots.push_back(slot);
  bool more = true;
  while (more && clock.now() - begin < limits.time && state->result.bytes < limits.bytes) {
    if (!wait_for_slots(*state, lock, 1)) break;
    const unsigned slot = state->free_slots.back();
    state->free_slots.pop_back();
    lock.unlock();
    more = start(slot, [state, slot](const Result<uint64_t>& moved) { complete(*state, slot, moved); });
    lock.lock();
    if (!more) state->free_slots.push_back(slot);
  }
  if (!wait_for_slots(*state, lock, limits.in_flight)) {
    return Error{ETIMEDOUT, "a request was not answered within a minute"};
  }
  state->result.seconds = std::chrono::duration<double>(clock.now() - begin).count();
  return state->result;
}

}  // namespace clairfs
