// Two threads write one variable without a lock: for ThreadSanitizer to find.
#include <cstdio>
#include <thread>

int main() {
  int shared = 0;
  const auto count = [&shared] {
    for (int i = 0; i < 100000; ++i) ++shared;
  };
  {
    const std::jthread one(count);
    const std::jthread other(count);
  }
  std::printf("survived: %d\n", shared);
}
