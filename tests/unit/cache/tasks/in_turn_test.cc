#include "cache/tasks/in_turn.h"

#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a task that another adds comes after it, and all are run") {
  InTurn turns;
  std::vector<int> order;
  turns.run([&] {
    turns.run([&] {
      turns.run([&] { order.push_back(4); });
      order.push_back(2);
    });
    turns.run([&] { order.push_back(3); });
    order.push_back(1);
  });
  CHECK(order == std::vector{1, 2, 3, 4});
  turns.run([&] { order.push_back(5); });
  CHECK(order.size() == 5);
}
