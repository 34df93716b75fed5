#include "plan/run/found_in_job.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

PlanSpec plan(const std::string& text) {
  auto spec = parse_plan("root=train format=files " + text);
  REQUIRE(spec);
  return *spec;
}

constexpr const char* kTwoNodes = "sampler=torch.distributed seed=42 world=4 ranks_per_node=2 epochs=1";

}  // namespace

TEST_CASE("an order is the job's if all its ranks share it and this node has those that a plan gives it") {
  const FoundInJob node({NodeId(1), 2});
  const auto place = [&](const std::string& text, uint32_t found_node) {
    return node.place_of({.plan = plan(text), .node = found_node});
  };
  CHECK(place(kTwoNodes, 1).size == 2);
  CHECK(place(kTwoNodes, 1).self == NodeId(1));
  // Others follow it by themselves: this node's ranks are not those that its number says.
  CHECK(place(kTwoNodes, 0).size == 1);
  CHECK(place(kTwoNodes, 0).self == NodeId(0));
  CHECK(place("sampler=torch.distributed seed=1 world=8 ranks_per_node=2", 1).size == 1);
  CHECK(place("sampler=torch.distributed seed=1 world=2 ranks_per_node=2", 0).size == 1);
  CHECK(place("sampler=python.random seed=1 world=2 ranks_per_node=1", 1).size == 1);  // each reads all
  const FoundInJob single({NodeId(0), 1});
  CHECK(single.place_of({.plan = plan(kTwoNodes), .node = 0}).size == 1);
}

TEST_CASE("orders are the same whatever is known of workers and of where their reader begins") {
  CHECK(same_order(plan("seed=1 batch=8 workers=2 start_sample=16"), plan("name=auto seed=1 batch=1")));
  CHECK(!same_order(plan("seed=1"), plan("seed=2")));
  CHECK(!same_order(plan("seed=1 epochs=1"), plan("seed=1")));
  CHECK(!same_order(plan("seed=1 first_epoch=1"), plan("seed=1")));
  CHECK(!same_order(plan("seed=1"), plan("seed=1 set_epoch=never")));
}

TEST_CASE("what is found is told once") {
  FoundInJob node({NodeId(0), 2});
  CHECK(node.found(plan(kTwoNodes)));
  CHECK(node.is_word(plan(kTwoNodes)));
  CHECK(!node.found(plan(kTwoNodes)));
  // Both have found it: of two words that cross, the register keeps one, and nobody says it again.
  CHECK(node.told(plan(std::string(kTwoNodes) + " batch=8"), NodeId(1)));
  CHECK(!node.found(plan(kTwoNodes)));
  CHECK(node.word()->origin == NodeId(1));
  CHECK(node.found(plan("seed=42 world=4 ranks_per_node=2 first_epoch=1")));
}

TEST_CASE("a word that readers leave is withdrawn, and not taken over again before it is found here") {
  FoundInJob finder({NodeId(0), 2});
  FoundInJob other({NodeId(1), 2});
  CHECK(finder.found(plan(kTwoNodes)));
  CHECK(other.told(plan(kTwoNodes), NodeId(0)));
  CHECK(other.left(plan(kTwoNodes)));
  CHECK(!other.word());
  finder.cancelled();
  CHECK(!finder.word());
  CHECK(finder.found(plan(kTwoNodes)));
  CHECK(!other.told(plan(kTwoNodes), NodeId(0)));
  CHECK(!other.found(plan(kTwoNodes)));  // found here, too: the job agrees
  CHECK(other.told(plan(kTwoNodes), NodeId(0)));
}

TEST_CASE("a reader that comes late to the end of a plan withdraws no later word") {
  FoundInJob node({NodeId(1), 2});
  CHECK(node.told(plan("seed=1 epochs=1"), NodeId(0)));
  CHECK(node.told(plan("seed=2 epochs=1"), NodeId(0)));
  CHECK(!node.left(plan("seed=1 epochs=1")));
  CHECK(node.is_word(plan("seed=2 epochs=1")));
  node.cancelled();
  CHECK(!node.word());
}

TEST_CASE("plans that readers left are not taken over in turn, and only so many are remembered") {
  FoundInJob node({NodeId(1), 2});
  const auto nth = [](int seed) { return plan("world=2 ranks_per_node=1 seed=" + std::to_string(seed)); };
  for (int seed = 0; seed < 5; ++seed) {
    CHECK(node.told(nth(seed), NodeId(0)));
    CHECK(node.left(nth(seed)));
  }
  for (int seed = 0; seed < 5; ++seed) CHECK(!node.told(nth(seed), NodeId(0)));
  CHECK(node.found(nth(2)));
  CHECK(!node.has_left(nth(2)));
  CHECK(node.has_left(nth(3)));
  for (int seed = 0; seed < 1000; ++seed) node.left(nth(seed));
  CHECK(!node.has_left(nth(900)));
  CHECK(node.has_left(nth(999)));
}
