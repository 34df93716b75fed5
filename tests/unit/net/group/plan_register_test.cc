#include "net/group/plan_register.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <vector>

#include "plan/run/found_in_job.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

PlanSpec order(int seed) {
  return *parse_plan("name=auto root=train format=files world=3 ranks_per_node=1 seed=" +
                     std::to_string(seed));
}

/// What a node of three makes of what it and the others find and leave.
struct Finder {
  explicit Finder(NodeId self) : plans(self), found({self, 3}) {}

  std::optional<wire::PlanEntry> finds(int seed) {
    if (!found.found(order(seed))) return std::nullopt;
    return *plans.enter("auto", format_plan(order(seed)));
  }
  std::optional<wire::PlanEntry> leaves(int seed) {
    const auto withdrawn = found.left(order(seed));
    return withdrawn ? plans.withdraw("auto", format_plan(*withdrawn)) : std::nullopt;
  }
  void hears(const wire::PlanEntry& entry) {
    if (!plans.merge(entry)) return;
    if (entry.cancelled) {
      found.cancelled();
    } else {
      found.told(*parse_plan(entry.text), entry.origin);
    }
  }
  std::string word() const { return found.word() ? format_plan(found.word()->plan) : "none"; }

  PlanRegister plans;
  FoundInJob found;
};

}  // namespace

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

TEST_CASE("a plan that is withdrawn late withdraws no later one, in whatever order both are heard of") {
  std::vector<std::unique_ptr<Finder>> nodes;
  for (uint32_t n = 0; n < 3; ++n) nodes.push_back(std::make_unique<Finder>(NodeId(n)));
  const auto first = nodes[0]->finds(1);
  REQUIRE(first);
  nodes[1]->hears(*first);
  nodes[2]->hears(*first);
  // These two cross.
  const auto second = nodes[0]->finds(2);
  const auto withdrawn = nodes[1]->leaves(1);
  REQUIRE((second && withdrawn));
  nodes[0]->hears(*withdrawn);
  nodes[1]->hears(*second);
  const bool second_first = GENERATE(false, true);
  nodes[2]->hears(second_first ? *second : *withdrawn);
  nodes[2]->hears(second_first ? *withdrawn : *second);
  for (const auto& node : nodes) {
    CHECK(node->word() == format_plan(order(2)));
    CHECK(node->plans.digest() == nodes[0]->plans.digest());
  }
  CHECK(!nodes[1]->plans.withdraw("auto", format_plan(order(1))));
}

TEST_CASE("a plan that is withdrawn is it on all nodes, and those that missed it see so") {
  Finder finder(NodeId(0));
  Finder other(NodeId(1));
  const auto said = finder.finds(1);
  REQUIRE(said);
  other.hears(*said);
  const auto withdrawn = other.leaves(1);
  REQUIRE(withdrawn);
  CHECK(finder.plans.digest() != other.plans.digest());
  finder.hears(*withdrawn);
  finder.hears(*said);
  CHECK(finder.word() == "none");
  CHECK(finder.plans.digest() == other.plans.digest());
  CHECK(finder.finds(1));  // anew
}

TEST_CASE("nodes that find, leave and hear in any order end with the same word") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::unique_ptr<Finder>> nodes;
    for (uint32_t n = 0; n < 3; ++n) nodes.push_back(std::make_unique<Finder>(NodeId(n)));
    std::vector<wire::PlanEntry> said;
    for (int i = 0; i < 20; ++i) {
      Finder& node = *nodes[random() % 3];
      const int seed = static_cast<int>(random() % 3);
      if (const auto entry = random() % 2 == 0 ? node.finds(seed) : node.leaves(seed)) said.push_back(*entry);
      if (!said.empty()) nodes[random() % 3]->hears(said[random() % said.size()]);
    }
    for (auto& node : nodes) {
      std::shuffle(said.begin(), said.end(), random);
      for (const auto& entry : said) node->hears(entry);
    }
    CHECK(nodes[0]->word() == nodes[1]->word());
    CHECK(nodes[1]->word() == nodes[2]->word());
    CHECK(nodes[0]->plans.entries() == nodes[2]->plans.entries());
  }
}
