// Waiting for what another thread brings about.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace clairfs {

/// Waits for what must come; false only after half a minute, which no healthy run takes.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 15000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

}  // namespace clairfs
