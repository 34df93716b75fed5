#include "net/group/plan_register.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("entries merge to the same in any order and however often they come") {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    // Three nodes that register and cancel, hearing of each other only now and then.
    std::vector<std::unique_ptr<PlanRegister>> nodes;
    for (uint32_t n = 0; n < 3; ++n) nodes.push_back(std::make_unique<PlanRegister>(NodeId(n)));
    std::vector<wire::PlanEntry> said;
    for (int i = 0; i < 30; ++i) {
      PlanRegister& node = *nodes[random() % 3];
      const std::string name(1, static_cast<char>('a' + random() % 3));
      const auto text = random() % 3 == 0 ? std::nullopt : std::optional(std::to_string(random()));
      said.push_back(*node.enter(name, text));
      if (random() % 2 == 0) nodes[random() % 3]->merge(said[random() % said.size()]);
    }
    for (auto& node : nodes) {
      std::shuffle(said.begin(), said.end(), random);
      for (const auto& entry : said) {
        node->merge(entry);
        CHECK(!node->merge(entry));
      }
    }
    CHECK(nodes[0]->entries() == nodes[1]->entries());
    CHECK(nodes[1]->entries() == nodes[2]->entries());
    CHECK(nodes[0]->digest() == nodes[2]->digest());
  }
}

TEST_CASE("what is registered later holds, on every node") {
  PlanRegister a(NodeId(0));
  PlanRegister b(NodeId(1));
  const auto first = *a.enter("default", "seed=1");
  CHECK(a.digest() != b.digest());
  CHECK(b.merge(first));
  const auto second = *b.enter("default", "seed=2");
  CHECK(a.merge(second));
  CHECK(!b.merge(first));
  CHECK(a.entry("default")->text == "seed=2");
  const auto end = *a.enter("default", std::nullopt);
  CHECK(end.cancelled);
  CHECK(b.merge(end));
  CHECK(!b.merge(second));  // a cancelled plan does not come back
  CHECK(b.entry("default")->cancelled);
  CHECK(!b.entry("other"));
}

TEST_CASE("what is too long or too much is refused, and a damaged stamp ignored") {
  PlanRegister board(NodeId(0));
  CHECK(board.enter("p", std::string(wire::kMaxText + 1, 'x')).error().code == E2BIG);
  CHECK(board.enter(std::string(wire::kMaxName + 1, 'x'), "t").error().code == E2BIG);
  CHECK(!board.merge({~0ULL, NodeId(1), false, "p", "t"}));
  CHECK(board.enter("p", "t")->stamp == 1);
  for (int i = 0; i < 999; ++i) CHECK(board.enter("p" + std::to_string(i), "t"));
  CHECK(board.enter("one more", "t").error().code == E2BIG);
  CHECK(board.enter("p5", "again"));
  CHECK(!board.merge({5000, NodeId(1), false, "one more", "t"}));
  CHECK(board.entries().size() == 1000);
}

TEST_CASE("a plan is never registered under a stamp that the others ignore") {
  PlanRegister here(NodeId(0));
  PlanRegister there(NodeId(1));
  const wire::PlanEntry last_but_one{(1ULL << 60) - 1, NodeId(1), false, "p", "t"};
  CHECK(here.merge(last_but_one));
  const auto last = here.enter("p", "u");
  REQUIRE(last);
  CHECK(there.merge(*last));
  CHECK(here.enter("p", "v").error().code == EOVERFLOW);
  CHECK(there.enter("q", std::nullopt).error().code == EOVERFLOW);
  CHECK(here.entries() == there.entries());
}
