#include "cache/tasks/task_thread.h"

#include <atomic>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("tasks run one after the other, and the end waits for all of them") {
  std::vector<int> ran;
  std::vector<bool> stopping;
  std::binary_semaphore begun{0};
  std::binary_semaphore go_on{0};
  {
    TaskThread thread("tasks");
    thread.post([&](const std::atomic<bool>& stops) {
      begun.release();
      go_on.acquire();
      ran.push_back(0);
      stopping.push_back(stops);
    });
    for (int i = 1; i < 4; ++i) {
      thread.post([&, i](const std::atomic<bool>& stops) {
        while (i == 3 && !stops) std::this_thread::yield();
        ran.push_back(i);
        stopping.push_back(stops);
      });
    }
    begun.acquire();
    go_on.release();
  }
  CHECK(ran == std::vector<int>{0, 1, 2, 3});
  CHECK(stopping.back());
}

TEST_CASE("what is posted after the end never runs") {
  std::atomic<int> ran{0};
  TaskThread thread("tasks");
  thread.post([&](const std::atomic<bool>&) { ++ran; });
  thread.end();
  CHECK(ran == 1);
  thread.post([&](const std::atomic<bool>&) { ++ran; });
  thread.end();
  CHECK(ran == 1);
}
