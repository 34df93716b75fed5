// Waiting for what another thread brings about.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace clairfs {

/// Waits for what must come; false only after four minutes, which no healthy run takes: a search for an order
/// gives way to whatever else wants the processor. ctest ends a test after five.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 120'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

}  // namespace clairfs
